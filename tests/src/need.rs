//! What a test needs from the machine. If something is missing, the test is skipped with a message;
//! in CI (`CI=true`) it fails, because a test that never runs proves nothing. `MAY_LACK` lists the
//! exceptions.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use crate::tools;

/// The environment variable that `cargo xtask test --quick` sets. Then tests mount nothing and use
/// smaller inputs.
pub const QUICK: &str = "FEROFS_TEST_QUICK";

/// What may be missing in CI, and why.
const MAY_LACK: &[(&str, &str)] = &[
    (
        WITHOUT_QUICK,
        "CI runs everything; who sets CI=true on their own machine may still want a quick run",
    ),
    (PEERS, "Debian unstable may be unreachable or broken for a day"),
    (MOTO, "it comes from PyPI, and Debian has no other S3 store"),
    (GO, "Debian 12 has an older one, and go-erofs comes from Go's proxy"),
    ("pseudo", "Debian 13 has no such package"),
    (HISTORY, "a release's archive has none, and CI may clone the last commit alone"),
    (CGROUPS, "a container may not make them"),
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
/// All commits.
pub const HISTORY: &str = "git, and a clone with the whole history";
/// A server for S3.
pub const MOTO: &str = "moto_server (pip install 'moto[server]')";
/// The compiler of go-erofs, and the sources.
pub const GO: &str = "Go 1.23 and go-erofs from Go's proxy";
/// The kernel sends requests again to a new FUSE daemon.
pub const LINUX_6_9: &str = "Linux 6.9";
/// The memory of a group of processes can be limited.
pub const CGROUPS: &str = "cgroups with limits on memory";
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

/// Whether a quick run skips this test, which mounts.
fn is_skipped_as_slow() -> bool {
    is_quick() && !lacks(WITHOUT_QUICK)
}

/// Whether this process is root; if not, says that the test is skipped.
pub fn root() -> bool {
    is_root() || lacks("root")
}

/// The path of the tool `name`; if it is missing, says that the test is skipped.
///
/// # Panics
/// When the table in [`tools`] does not list it, because then nothing would install it. In CI when
/// it is missing.
pub fn tool(name: &str) -> Option<PathBuf> {
    assert!(tools::is_known(name), "{name} is not in the table of tools (tests/src/tools.rs)");
    let found = find_tool(name);
    if found.is_none() {
        lacks(name);
    }
    found
}

/// The program for devices; if it is missing, because the tested ferofs lies alone, says that it is
/// skipped.
pub fn device_program() -> Option<PathBuf> {
    let path = crate::run::device_path();
    (path.exists() || lacks("ferofs-device beside ferofs")).then_some(path)
}

/// Whether `/dev/fuse` can be opened; if not, says that the test is skipped.
pub fn fuse() -> bool {
    if is_skipped_as_slow() {
        return false;
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    match device {
        Ok(_) => is_root() || tool("fusermount3").is_some(),
        Err(_) => lacks("/dev/fuse"),
    }
}

/// Whether the kernel has EROFS and this process may mount; if not, says that the test is skipped.
pub fn kernel_erofs() -> bool {
    !is_skipped_as_slow() && root() && (kernel_has_erofs() || lacks("EROFS in the kernel"))
}

/// Says that the test is skipped because `missing` is missing. Always false, so that callers can
/// return it. The thread of a test has its name.
///
/// # Panics
/// In CI, unless `MAY_LACK` lists `missing`.
pub fn lacks(missing: &str) -> bool {
    let thread = std::thread::current();
    let message = format!("SKIPPED {}: needs {missing}\n", thread.name().unwrap_or("a part"));
    assert!(!is_ci() || may_lack(missing), "{message}");
    // Not eprint!: the test harness hides its output if the test passes. An error of stderr cannot
    // be reported anywhere.
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

/// Whether this process can make a user namespace; if not, says that the test is skipped. In a
/// chroot, Linux makes none.
pub fn user_namespaces() -> bool {
    let unshare = tool("unshare");
    let made = unshare
        .map(|unshare| Command::new(unshare).args(["--user", "--map-root-user", "true"]).output());
    made.is_some_and(|made| {
        made.is_ok_and(|output| output.status.success())
            || lacks("the right to make user namespaces")
    })
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds the program `name` in PATH and in the directories of system tools, which are often not in
/// the PATH of ordinary users.
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

/// Raises this process's limit on open files to the maximum: creating a deep tree needs a
/// descriptor per level.
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
        assert!(may_lack(PEERS) && may_lack(LINUX_6_9) && may_lack("pseudo"));
        assert!(!may_lack("root") && !may_lack("fusermount3") && !may_lack("/dev/fuse"));
    }
}
