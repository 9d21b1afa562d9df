//! Removes all privileges that the daemon does not need to answer requests.
//!
//! Called after the mount and after all files are open, and before the first byte of the image is
//! decoded. Landlock, user and capabilities are properties of one thread: it must be the only
//! thread, and threads that it starts later inherit them. docs/SECURITY.md lists the guarantees.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod calls;

/// seccompiler makes filters for no other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod calls {
    use crate::sandbox::{SandboxError, Threads};

    pub(super) fn restrict(_: Threads) -> Result<bool, SandboxError> {
        Ok(false)
    }

    pub(super) fn forbid_unmount(_: Threads) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// Each thread of a session opens this device for itself.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";

/// The user and group of a daemon that root started. No account has this number. With nobody
/// (65534), other processes of nobody could send signals to the daemon.
const UNUSED_ID: u32 = 65533;
/// The threads whose system calls are restricted.
#[derive(Clone, Copy, Debug)]
enum Threads {
    All,
    /// A thread cannot remove its restrictions, so tests restrict a thread of their own.
    #[cfg(test)]
    This,
}

/// The active parts of the sandbox. Parts that the kernel does not support are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Landlock: the process can open only `/dev/fuse`, cannot mount, and cannot use the network.
    pub landlock: bool,
    /// Seccomp: system calls that the daemon does not need fail.
    pub seccomp: bool,
    /// The user was root, and is now a user without files and other processes.
    pub user: bool,
}

/// Why the sandbox could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("sandbox: {part}: {reason}")]
pub struct SandboxError {
    part: &'static str,
    reason: Box<dyn std::error::Error + Send + Sync>,
}

/// Converts an error of a part of the sandbox that the kernel supports.
fn failed<E: std::error::Error + Send + Sync + 'static>(
    part: &'static str,
) -> impl Fn(E) -> SandboxError {
    move |error| SandboxError { part, reason: error.into() }
}

/// Restricts this process, whose only thread calls this, and the threads that it starts from now
/// on.
///
/// Afterwards, the process cannot execute programs, open files or unmount.
///
/// # Errors
/// [`SandboxError`], also if the process has other threads. After an error the process may be
/// partly restricted.
pub fn restrict() -> Result<Sandbox, SandboxError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(failed("/proc/self/task"))?.count();
    if threads != 1 {
        return Err(failed("threads")(io::Error::other("other threads run already")));
    }
    restrict_thread(Threads::All)
}

/// Restricts a process that decodes nothing, but makes copies of itself that call [`restrict`].
/// Returns whether the user was root, and is another user now.
///
/// Afterwards, the process has no capabilities, and can neither execute programs nor unmount.
///
/// # Errors
/// As [`restrict`].
pub fn restrict_keeper() -> Result<bool, SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("privileges"))?;
    let user = leave_root().map_err(failed("user"))?;
    drop_capabilities()?;
    forbid_unmount()?;
    Ok(user)
}

/// Lets this process, which is not restricted otherwise, neither unmount nor execute programs.
///
/// When a session has ended, fuser 0.18 unmounts its directory although the kernel has removed the
/// mount already: that would remove what somebody else has mounted there since. [`restrict`]
/// contains this.
///
/// # Errors
/// [`SandboxError`]. Systems without seccomp are not an error.
pub fn forbid_unmount() -> Result<(), SandboxError> {
    calls::forbid_unmount(Threads::All)
}

/// Restricts the calling thread, and the system calls of `threads`.
fn restrict_thread(threads: Threads) -> Result<Sandbox, SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("privileges"))?;
    let landlock = restrict_paths().map_err(failed("Landlock"))?;
    let user = leave_root().map_err(failed("user"))?;
    drop_capabilities()?;
    Ok(Sandbox { landlock, seccomp: calls::restrict(threads)?, user })
}

fn drop_capabilities() -> Result<(), SandboxError> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none).map_err(failed("capabilities"))
}

/// Changes from root to [`UNUSED_ID`]. Returns `false` if the user is not root, or if the user
/// namespace does not have this ID.
fn leave_root() -> Result<bool, Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let (user, group) = (Uid::from_raw(UNUSED_ID), Gid::from_raw(UNUSED_ID));
    match set_thread_res_gid(group, group, group) {
        Err(Errno::INVAL | Errno::PERM) => return Ok(false),
        result => result?,
    }
    match set_thread_groups(&[]) {
        // A user namespace may forbid this (/proc/PID/setgroups): a group can be used to deny
        // access to its members, and leaving the group would give this access.
        Err(Errno::PERM) | Ok(()) => {}
        Err(error) => return Err(error),
    }
    match set_thread_res_uid(user, user, user) {
        Err(Errno::INVAL) => Ok(false),
        result => result.map(|()| true),
    }
}

fn restrict_paths() -> Result<bool, RulesetError> {
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    if let Ok(device) = PathFd::new(FUSE_DEVICE) {
        let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        ruleset = ruleset.add_rule(PathBeneath::new(device, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    /// Runs `work` in a restricted thread, because a thread cannot remove its restrictions.
    fn restricted<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            restrict_thread(Threads::This).unwrap();
            work()
        });
        thread.join().unwrap()
    }

    #[test]
    fn programs_sockets_and_signals_are_refused() {
        let own = Pid::from_raw(1).unwrap_or_else(rustix::process::getpid);
        assert_eq!(restricted(move || rustix::process::test_kill_process(own)), Err(Errno::PERM));
        let run = restricted(|| std::process::Command::new("/bin/true").spawn().map(drop));
        assert_eq!(run.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let listen = restricted(|| std::net::TcpListener::bind("127.0.0.1:0").map(drop));
        assert_eq!(listen.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn unmounting_can_be_forbidden_alone() {
        let outcome = std::thread::spawn(|| {
            calls::forbid_unmount(Threads::This).unwrap();
            let unmounted =
                rustix::mount::unmount("/nonexistent", rustix::mount::UnmountFlags::empty());
            (
                unmounted,
                std::process::Command::new("/bin/true").spawn().is_err(),
                std::fs::read("/proc/self/stat"),
            )
        });
        let (unmounted, is_refused, read) = outcome.join().unwrap();
        assert_eq!(unmounted, Err(Errno::PERM));
        assert!(is_refused && read.is_ok());
    }

    #[test]
    fn open_files_can_be_read_but_no_file_can_be_opened() {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (sandbox, opened, read) = restricted(move || {
            let mut magic = [0; 4];
            let read = file.read_exact_at(&mut magic, 0).map(|()| magic);
            // A second sandbox shows whether the kernel supports Landlock.
            (restrict_paths(), std::fs::read("/etc/passwd").map(drop), read)
        });
        assert_eq!(&read.unwrap(), b"\x7fELF");
        if matches!(sandbox, Ok(true)) {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn threads_and_memory_are_available() {
        let sum = restricted(|| {
            let threads: Vec<_> =
                (0..4u8).map(|i| std::thread::spawn(move || vec![i; 1 << 22].len())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(sum, 4 << 22);
    }
}
