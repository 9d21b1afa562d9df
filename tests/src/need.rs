//! What a test needs of the machine. At home a missing thing skips the test and says so; in CI (`CI=true`) it fails
//! it, because a test that is never run proves nothing.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::tools;

/// The variable that `cargo xtask test --quick` sets: nothing is mounted then.
pub const QUICK: &str = "FEROFS_TEST_QUICK";

/// Whether mounts are left out; then `what` is skipped.
fn is_quick(what: &str) -> bool {
    let quick = env::var_os(QUICK).is_some();
    if quick {
        skipped(what, "a test without --quick");
    }
    quick
}

/// Whether this process is root; if not, `what` is skipped.
pub fn root(what: &str) -> bool {
    is_root() || lacks(what, "root")
}

/// Where the tool `name` is; if nowhere, `what` is skipped.
///
/// # Panics
/// When [`tools`] does not have it: then nothing would install it. In CI when it is missing.
pub fn tool(name: &str, what: &str) -> Option<PathBuf> {
    assert!(tools::is_known(name), "{name} is not in the table of tools (tests/src/tools.rs)");
    let found = find_tool(name);
    if found.is_none() {
        lacks(what, name);
    }
    found
}

/// Whether `/dev/fuse` can be opened; if not, `what` is skipped.
pub fn fuse(what: &str) -> bool {
    if is_quick(what) {
        return false;
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    match device {
        Ok(_) => is_root() || tool("fusermount3", what).is_some(),
        Err(_) => lacks(what, "/dev/fuse"),
    }
}

/// Whether the kernel mounts EROFS and we may ask it to; if not, `what` is skipped.
pub fn kernel_erofs(what: &str) -> bool {
    !is_quick(what) && root(what) && (kernel_has_erofs() || lacks(what, "EROFS in the kernel"))
}

/// Says that `what` is skipped for want of `missing`. Always false, so that callers can return it.
///
/// # Panics
/// In CI.
pub fn lacks(what: &str, missing: &str) -> bool {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "SKIPPED {what}: needs {missing}");
    skipped(what, missing);
    false
}

/// Says that `what` is skipped for want of `missing`, which CI may lack too.
pub fn skipped(what: &str, missing: &str) {
    let message = format!("SKIPPED {what}: needs {missing}\n");
    // Not eprint!, which the test harness swallows when the test passes. Nobody can be told if stderr is gone.
    let _ = io::stderr().write_all(message.as_bytes());
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks `name` up in PATH and in the directories of system tools, which ordinary users' PATH may lack.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Whether the running kernel has EROFS, loading its module if need be.
pub fn kernel_has_erofs() -> bool {
    let listed = || {
        std::fs::read_to_string("/proc/filesystems")
            .is_ok_and(|all| all.lines().any(|line| line.trim() == "erofs"))
    };
    listed()
        || (is_root()
            && find_tool("modprobe").is_some_and(|modprobe| {
                std::process::Command::new(modprobe)
                    .arg("-q")
                    .arg("erofs")
                    .status()
                    .is_ok_and(|s| s.success())
            })
            && listed())
}

/// Raises this process's limit on open files as far as it may: a deep tree holds a descriptor a level.
pub fn many_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Lowering nothing, this fails only where rlimits are policed; then the deep tree fails and says why.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
