//! What a test needs from the machine. If something is missing, the test is skipped with a message; in CI (`CI=true`) it fails,
//! because a test that never runs proves nothing. `MAY_LACK` lists the exceptions.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::tools;

/// The environment variable that `cargo xtask test --quick` sets. Then tests mount nothing and use smaller inputs.
pub const QUICK: &str = "FEROFS_TEST_QUICK";

/// What may be missing in CI, and why.
const MAY_LACK: &[(&str, &str)] = &[
    (
        WITHOUT_QUICK,
        "CI runs everything; who sets CI=true on their own machine may still want a quick run",
    ),
    (PEERS, "Debian unstable may be unreachable or broken for a day"),
    (MOTO, "it comes from PyPI, and Debian has no other S3 store"),
    (LINUX_6_9, "the kernel of a CI machine cannot be chosen"),
    (LINUX_6_12, "the kernel of a CI machine cannot be chosen"),
    (
        X86_64,
        "the campaigns know the system calls of this processor alone, and have virtual machines with it",
    ),
];
/// The reason of a quick run.
pub const WITHOUT_QUICK: &str = "a test without --quick";
/// The newest tools of others.
pub const PEERS: &str = "cargo xtask peers";
/// A server for S3.
pub const MOTO: &str = "moto_server (pip install 'moto[server]')";
/// The kernel sends requests again to a new FUSE daemon.
pub const LINUX_6_9: &str = "Linux 6.9";
/// The processor for which the campaigns of failing system calls and of kernels are written.
pub const X86_64: &str = "an x86-64 processor";
/// Where Debian's kernels are.
pub const DEBIAN_MIRROR: &str =
    "a mirror of Debian, in apt's configuration or in the variable DEBIAN_MIRROR";
/// The kernel mounts files without a loop device.
pub const LINUX_6_12: &str = "Linux 6.12";

/// Whether this is a run of `cargo xtask test --quick`.
pub fn is_quick() -> bool {
    env::var_os(QUICK).is_some()
}

/// The settings to test: all of them, or each fourth in a run of `cargo xtask test --quick`.
pub fn sample<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(if is_quick() { 4 } else { 1 })
}

/// Whether a quick run skips `what`, which mounts.
fn is_skipped_as_slow(what: &str) -> bool {
    let quick = is_quick();
    if quick {
        lacks(what, WITHOUT_QUICK);
    }
    quick
}

/// Whether this process is root; if not, says that `what` is skipped.
pub fn root(what: &str) -> bool {
    is_root() || lacks(what, "root")
}

/// The path of the tool `name`; if it is missing, says that `what` is skipped.
///
/// # Panics
/// When the table in [`tools`] does not list it, because then nothing would install it. In CI when it is missing.
pub fn tool(name: &str, what: &str) -> Option<PathBuf> {
    assert!(tools::is_known(name), "{name} is not in the table of tools (tests/src/tools.rs)");
    let found = find_tool(name);
    if found.is_none() {
        lacks(what, name);
    }
    found
}

/// Whether `/dev/fuse` can be opened; if not, says that `what` is skipped.
pub fn fuse(what: &str) -> bool {
    if is_skipped_as_slow(what) {
        return false;
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    match device {
        Ok(_) => is_root() || tool("fusermount3", what).is_some(),
        Err(_) => lacks(what, "/dev/fuse"),
    }
}

/// Whether the kernel has EROFS and this process may mount; if not, says that `what` is skipped.
pub fn kernel_erofs(what: &str) -> bool {
    !is_skipped_as_slow(what)
        && root(what)
        && (kernel_has_erofs() || lacks(what, "EROFS in the kernel"))
}

/// Says that `what` is skipped because `missing` is missing. Always false, so that callers can return it.
///
/// # Panics
/// In CI, unless `MAY_LACK` lists `missing`.
pub fn lacks(what: &str, missing: &str) -> bool {
    assert!(!is_ci() || may_lack(missing), "SKIPPED {what}: needs {missing}");
    let message = format!("SKIPPED {what}: needs {missing}\n");
    // Not eprint!: the test harness hides its output if the test passes. An error of stderr cannot be reported anywhere.
    let _ = io::stderr().write_all(message.as_bytes());
    false
}

/// Whether this is a run in CI, which must skip nothing.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// Whether `MAY_LACK` lists `missing`.
pub fn may_lack(missing: &str) -> bool {
    MAY_LACK.iter().any(|(listed, _)| *listed == missing)
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds the program `name` in PATH and in the directories of system tools, which are often not in the PATH of ordinary users.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Whether the running kernel has at least this version.
pub fn is_linux_since(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Whether the running kernel has EROFS. Loads its module if necessary.
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

/// Raises this process's limit on open files to the maximum: creating a deep tree needs a descriptor per level.
pub fn many_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system forbids this, creating the deep tree fails with a message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_may_be_skipped_in_ci_only_for_a_listed_reason() {
        assert!(may_lack(PEERS) && may_lack(LINUX_6_9));
        assert!(!may_lack("root") && !may_lack("fusermount3") && !may_lack("/dev/fuse"));
    }
}
