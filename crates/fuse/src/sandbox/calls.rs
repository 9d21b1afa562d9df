//! The system calls that the daemon may make: filters of seccomp.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::{SandboxError, Threads, failed};

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`: the only ioctl(2) that a session makes.
const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;
/// The flags that clone(2) must have: they create a thread of this process.
#[expect(clippy::as_conversions, reason = "the flags are positive, and this is a constant")]
const THREAD_FLAGS: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
/// The flags that clone(2) must not have: all `CLONE_NEW*` flags, which create namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0080;

/// Makes unmounting and executing programs fail.
pub(super) fn forbid_unmount(threads: Threads) -> Result<(), SandboxError> {
    let calls = [libc::SYS_umount2, libc::SYS_execve, libc::SYS_execveat];
    let rules = calls.into_iter().map(|call| (call, vec![])).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, processor()?)
        .and_then(TryInto::try_into);
    apply_if_supported(&filter.map_err(failed("seccomp"))?, threads).map(drop)
}

/// Installs the seccomp filters. A system call that is not allowed fails with `EPERM` and does not
/// kill the process: a C library or an allocator that tries a newer call then uses an older one.
pub(super) fn restrict(threads: Threads) -> Result<bool, SandboxError> {
    let arch = processor()?;
    for filter in [without_clone3(arch), filter(arch)] {
        if !apply_if_supported(&filter.map_err(failed("seccomp"))?, threads)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn processor() -> Result<TargetArch, SandboxError> {
    TargetArch::try_from(std::env::consts::ARCH).map_err(failed("seccomp"))
}

/// Installs a filter; returns false if the kernel has no seccomp.
fn apply_if_supported(filter: &BpfProgram, threads: Threads) -> Result<bool, SandboxError> {
    let applied = match threads {
        Threads::All => seccompiler::apply_filter_all_threads(filter),
        #[cfg(test)]
        Threads::This => seccompiler::apply_filter(filter),
    };
    match applied {
        Ok(()) => Ok(true),
        // Linux without filters, or without the call, as valgrind has none.
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
        {
            Ok(false)
        }
        Err(error) => Err(failed("seccomp")(error)),
    }
}

/// Makes clone3(2) fail with ENOSYS. Its flags are in memory, where a filter cannot check them; C
/// libraries then call clone(2).
fn without_clone3(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let rules = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    SeccompFilter::new(rules, SeccompAction::Allow, absent, arch)?.try_into()
}

fn filter(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        allowed().into_iter().map(|call| (call, vec![])).collect();
    for (call, argument, comparison, value) in allowed_if() {
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)?;
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?.try_into()
}

/// System calls that are allowed only with certain arguments: the call, the index of the argument,
/// the comparison, the value.
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

/// System calls that are always allowed: for requests, the log, threads, memory, and the end of the
/// process.
fn allowed() -> Vec<i64> {
    let calls = vec![
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
        // Threads. The other filter refuses clone3(2) with ENOSYS; EPERM from this filter would
        // take precedence.
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
    let calls = [calls, vec![libc::SYS_poll, libc::SYS_dup2, libc::SYS_open]].concat();
    calls
}
