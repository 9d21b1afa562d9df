//! Removes all privileges that the daemon does not need to answer requests.
//!
//! Called after the mount and after all files are open, and before the first byte of the image is decoded. Landlock, user
//! and capabilities are properties of one thread: it must be the only thread, and threads that it starts later inherit
//! them.
//! docs/SECURITY.md lists the guarantees.

use std::collections::BTreeMap;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Each thread of a session opens this device for itself.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";
/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`: the only ioctl(2) that a session makes.
const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;

/// The user and group of a daemon that root started. No account has this number. With nobody (65534), other processes of
/// nobody could send signals to the daemon.
const UNUSED_ID: u32 = 65533;
/// The flags that clone(2) must have: they create a thread of this process.
#[expect(clippy::as_conversions, reason = "the flags are positive, and this is a constant")]
const THREAD_FLAGS: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
/// The flags that clone(2) must not have: all `CLONE_NEW*` flags, which create namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0080;

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
fn failed<E: std::error::Error + Send + Sync + 'static>(part: &'static str) -> impl Fn(E) -> SandboxError {
    move |error| SandboxError { part, reason: error.into() }
}

/// Restricts this process, whose only thread calls this, and the threads that it starts from now on.
///
/// Afterwards, the process cannot execute programs, open files or unmount.
///
/// # Errors
/// [`SandboxError`], also if the process has other threads. After an error the process may be partly restricted.
pub fn restrict() -> Result<Sandbox, SandboxError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(failed("/proc/self/task"))?.count();
    if threads != 1 {
        return Err(failed("threads")(io::Error::other("other threads run already")));
    }
    restrict_thread(seccompiler::apply_filter_all_threads)
}

/// Restricts a process that decodes nothing, but makes copies of itself that call [`restrict`]. Returns whether the user was root, and is another
/// user now.
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
/// When a session has ended, fuser 0.18 unmounts its directory although the kernel has removed the mount already: that would remove what
/// somebody else has mounted there since. [`restrict`] contains this.
///
/// # Errors
/// [`SandboxError`]. Systems without seccomp are no error.
pub fn forbid_unmount() -> Result<(), SandboxError> {
    forbid_unmount_with(seccompiler::apply_filter_all_threads)
}

fn forbid_unmount_with(apply: Apply) -> Result<(), SandboxError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    let calls = [libc::SYS_umount2, libc::SYS_execve, libc::SYS_execveat];
    let rules = calls.into_iter().map(|call| (call, vec![])).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).and_then(TryInto::try_into);
    apply_if_supported(&filter.map_err(failed("seccomp"))?, apply).map(drop)
}

/// Restricts the calling thread; `apply` installs a seccomp filter.
fn restrict_thread(apply: Apply) -> Result<Sandbox, SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("privileges"))?;
    let landlock = restrict_paths().map_err(failed("Landlock"))?;
    let user = leave_root().map_err(failed("user"))?;
    drop_capabilities()?;
    Ok(Sandbox { landlock, seccomp: restrict_calls(apply)?, user })
}

fn drop_capabilities() -> Result<(), SandboxError> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none).map_err(failed("capabilities"))
}

/// Changes from root to [`UNUSED_ID`]. Returns `false` if the user is not root, or if the user namespace does not have this
/// ID.
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
        // A user namespace may forbid this (/proc/PID/setgroups): a group can be used to deny access to its members, and
        // leaving the group would give this access.
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

/// The function that installs a filter: for all threads, or in tests for one thread.
type Apply = fn(&[seccompiler::sock_filter]) -> Result<(), seccompiler::Error>;

/// Installs the seccomp filters. A system call that is not allowed fails with `EPERM` and does not kill the process: a C
/// library or an allocator that tries a newer call then uses an older one.
fn restrict_calls(apply: Apply) -> Result<bool, SandboxError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    for filter in [without_clone3(arch), filter(arch)] {
        if !apply_if_supported(&filter.map_err(failed("seccomp"))?, apply)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Installs a filter; returns false if the kernel has no seccomp.
fn apply_if_supported(filter: &BpfProgram, apply: Apply) -> Result<bool, SandboxError> {
    match apply(filter) {
        Ok(()) => Ok(true),
        Err(seccompiler::Error::Seccomp(error)) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(failed("seccomp")(error)),
    }
}

/// Makes clone3(2) fail with ENOSYS. Its flags are in memory, where a filter cannot check them; C libraries then call clone(2).
fn without_clone3(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let rules = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    SeccompFilter::new(rules, SeccompAction::Allow, absent, arch)?.try_into()
}

fn filter(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        allowed().into_iter().map(|call| (call, vec![])).collect();
    for (call, argument, comparison, value) in allowed_if() {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)?;
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?.try_into()
}

/// System calls that are allowed only with certain arguments: the call, the index of the argument, the comparison, the
/// value.
fn allowed_if() -> [(i64, u8, SeccompCmpOp, u64); 7] {
    use SeccompCmpOp::{Eq, MaskedEq};
    let number = |value: i32| u64::from(value.unsigned_abs());
    let exec = number(libc::PROT_EXEC);
    [
        (libc::SYS_ioctl, 1, Eq, FUSE_DEV_IOC_CLONE),
        // Allows threads, but not processes and namespaces.
        (libc::SYS_clone, 0, MaskedEq(THREAD_FLAGS | NAMESPACE_FLAGS), THREAD_FLAGS),
        // Allows memory, but not executable memory.
        (libc::SYS_mmap, 2, MaskedEq(exec), 0),
        (libc::SYS_mprotect, 2, MaskedEq(exec), 0),
        // A lower priority of the thread that calls it.
        (libc::SYS_setpriority, 1, Eq, 0),
        // Names of threads.
        (libc::SYS_prctl, 0, Eq, number(libc::PR_SET_NAME)),
        // abort(3) and raise(3): signals only to this process.
        (libc::SYS_tgkill, 0, Eq, u64::from(std::process::id())),
    ]
}

/// System calls that are always allowed: for requests, the log, threads, memory, and the end of the process.
fn allowed() -> Vec<i64> {
    let mut calls = vec![
        // For requests, replies, the image and the log.
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_fadvise64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        libc::SYS_lseek,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_fcntl,
        libc::SYS_dup3,
        // Landlock limits this to /dev/fuse.
        libc::SYS_openat,
        // The signal handler wakes the signal thread through a pair of sockets.
        libc::SYS_sendto,
        libc::SYS_recvfrom,
        libc::SYS_ppoll,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Memory shared by several mappings.
        libc::SYS_memfd_create,
        libc::SYS_ftruncate,
        // Threads. The other filter refuses clone3(2) with ENOSYS; EPERM from this filter would take precedence.
        libc::SYS_clone3,
        libc::SYS_futex,
        libc::SYS_rseq,
        libc::SYS_set_robust_list,
        libc::SYS_set_tid_address,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_geteuid,
        libc::SYS_exit,
        libc::SYS_exit_group,
        // Waiting for the unmount helper.
        libc::SYS_wait4,
        libc::SYS_waitid,
        // Clocks and randomness (hash tables).
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_getrandom,
    ];
    // musl opens files by open(2), which Landlock limits as it limits openat(2).
    #[cfg(target_arch = "x86_64")]
    calls.extend([libc::SYS_poll, libc::SYS_dup2, libc::SYS_open]);
    calls
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    /// Runs `work` in a restricted thread, because a thread cannot remove its restrictions.
    fn restricted<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            restrict_thread(seccompiler::apply_filter).unwrap();
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
            forbid_unmount_with(seccompiler::apply_filter).unwrap();
            let unmounted = rustix::mount::unmount("/nonexistent", rustix::mount::UnmountFlags::empty());
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
