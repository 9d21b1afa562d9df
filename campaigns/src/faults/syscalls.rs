//! The system calls that fail in this campaign, and how each may fail on a real system.

use libc::c_long;

/// The effect on one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The kernel does not execute it; it returns this error number.
    Error(i32),
    /// The kernel executes it for half of its bytes.
    Short,
    /// The program is killed instead.
    Kill,
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error(libc::EIO) => "EIO",
            Self::Error(libc::ENOSPC) => "ENOSPC",
            Self::Error(libc::EINTR) => "EINTR",
            Self::Error(libc::EAGAIN) => "EAGAIN",
            Self::Error(libc::ENOMEM) => "ENOMEM",
            Self::Error(_) => "EPERM",
            Self::Short => "short",
            Self::Kill => "kill",
        }
    }

    /// Whether a program that tries again must not be affected at all.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::Short | Self::Error(libc::EINTR))
    }
}

/// A system call that can fail.
pub(crate) struct Call {
    pub(crate) number: c_long,
    pub(crate) name: &'static str,
    pub(crate) faults: &'static [Fault],
    /// The index of the argument with the number of bytes, for calls that may process fewer.
    pub(crate) length: Option<usize>,
}

const EIO: Fault = Fault::Error(libc::EIO);
const ENOSPC: Fault = Fault::Error(libc::ENOSPC);
const EINTR: Fault = Fault::Error(libc::EINTR);
const EAGAIN: Fault = Fault::Error(libc::EAGAIN);
const ENOMEM: Fault = Fault::Error(libc::ENOMEM);
const EPERM: Fault = Fault::Error(libc::EPERM);

const READS: &[Fault] = &[EIO, EINTR, Fault::Short];
const ONLY_EIO: &[Fault] = &[EIO];
const WRITES: &[Fault] = &[EIO, ENOSPC, EINTR, Fault::Short, Fault::Kill];
const CHANGES: &[Fault] = &[EIO, ENOSPC, Fault::Kill];
/// Without the right to change an attribute, the kernel returns EPERM.
const ATTRIBUTES: &[Fault] = &[EIO, EPERM, Fault::Kill];

const fn call(number: c_long, name: &'static str, faults: &'static [Fault]) -> Call {
    Call { number, name, faults, length: None }
}

const fn sized(
    number: c_long,
    name: &'static str,
    faults: &'static [Fault],
    length: usize,
) -> Call {
    Call { number, name, faults, length: Some(length) }
}

/// Calls that are not here either cannot fail in practice, or only if memory is exhausted, which
/// ends any program.
pub(crate) static CALLS: &[Call] = &[
    sized(libc::SYS_read, "read", READS, 2),
    sized(libc::SYS_pread64, "pread64", READS, 2),
    call(libc::SYS_preadv, "preadv", ONLY_EIO),
    call(libc::SYS_preadv2, "preadv2", ONLY_EIO),
    sized(libc::SYS_write, "write", WRITES, 2),
    sized(libc::SYS_pwrite64, "pwrite64", WRITES, 2),
    call(libc::SYS_writev, "writev", CHANGES),
    call(libc::SYS_pwritev, "pwritev", CHANGES),
    call(libc::SYS_pwritev2, "pwritev2", CHANGES),
    sized(libc::SYS_copy_file_range, "copy_file_range", WRITES, 4),
    sized(libc::SYS_sendfile, "sendfile", WRITES, 3),
    sized(libc::SYS_splice, "splice", WRITES, 4),
    call(libc::SYS_openat, "openat", &[EIO, ENOSPC, EINTR, Fault::Kill]),
    call(libc::SYS_openat2, "openat2", &[EIO, ENOSPC, EINTR, Fault::Kill]),
    call(libc::SYS_statx, "statx", ONLY_EIO),
    call(libc::SYS_fstat, "fstat", ONLY_EIO),
    call(libc::SYS_newfstatat, "newfstatat", ONLY_EIO),
    call(libc::SYS_fstatfs, "fstatfs", ONLY_EIO),
    call(libc::SYS_getdents64, "getdents64", ONLY_EIO),
    call(libc::SYS_readlinkat, "readlinkat", ONLY_EIO),
    call(libc::SYS_llistxattr, "llistxattr", ONLY_EIO),
    call(libc::SYS_flistxattr, "flistxattr", ONLY_EIO),
    call(libc::SYS_lgetxattr, "lgetxattr", ONLY_EIO),
    call(libc::SYS_fgetxattr, "fgetxattr", ONLY_EIO),
    call(libc::SYS_lseek, "lseek", ONLY_EIO),
    call(libc::SYS_ftruncate, "ftruncate", CHANGES),
    call(libc::SYS_fallocate, "fallocate", CHANGES),
    call(libc::SYS_fsync, "fsync", CHANGES),
    call(libc::SYS_fdatasync, "fdatasync", CHANGES),
    call(libc::SYS_sync_file_range, "sync_file_range", ONLY_EIO),
    call(libc::SYS_rename, "rename", CHANGES),
    call(libc::SYS_renameat, "renameat", CHANGES),
    call(libc::SYS_renameat2, "renameat2", CHANGES),
    call(libc::SYS_linkat, "linkat", CHANGES),
    call(libc::SYS_symlinkat, "symlinkat", CHANGES),
    call(libc::SYS_mkdirat, "mkdirat", CHANGES),
    call(libc::SYS_mknodat, "mknodat", CHANGES),
    call(libc::SYS_unlink, "unlink", ONLY_EIO),
    call(libc::SYS_unlinkat, "unlinkat", ONLY_EIO),
    call(libc::SYS_fchmod, "fchmod", ATTRIBUTES),
    call(libc::SYS_fchmodat, "fchmodat", ATTRIBUTES),
    call(libc::SYS_fchown, "fchown", ATTRIBUTES),
    call(libc::SYS_fchownat, "fchownat", ATTRIBUTES),
    call(libc::SYS_utimensat, "utimensat", ATTRIBUTES),
    call(libc::SYS_fsetxattr, "fsetxattr", ATTRIBUTES),
    call(libc::SYS_lsetxattr, "lsetxattr", ATTRIBUTES),
    call(libc::SYS_setxattr, "setxattr", ATTRIBUTES),
    call(libc::SYS_fcntl, "fcntl", ONLY_EIO),
    call(libc::SYS_flock, "flock", ONLY_EIO),
    call(libc::SYS_ioctl, "ioctl", ONLY_EIO),
    call(libc::SYS_dup, "dup", ONLY_EIO),
    call(libc::SYS_pipe2, "pipe2", ONLY_EIO),
    call(libc::SYS_memfd_create, "memfd_create", &[ENOMEM]),
    call(libc::SYS_clone3, "clone3", &[EAGAIN]),
    call(libc::SYS_clone, "clone", &[EAGAIN]),
    call(libc::SYS_vfork, "vfork", &[EAGAIN]),
    call(libc::SYS_execve, "execve", ONLY_EIO),
    call(libc::SYS_mount, "mount", &[EPERM, Fault::Kill]),
    call(libc::SYS_umount2, "umount2", ONLY_EIO),
    call(libc::SYS_prctl, "prctl", &[EPERM]),
    call(libc::SYS_capset, "capset", &[EPERM]),
    call(libc::SYS_seccomp, "seccomp", &[EPERM]),
    call(libc::SYS_landlock_create_ruleset, "landlock_create_ruleset", &[ENOMEM]),
    call(libc::SYS_landlock_restrict_self, "landlock_restrict_self", &[EPERM]),
    call(libc::SYS_ppoll, "ppoll", &[EINTR]),
    call(libc::SYS_poll, "poll", &[EINTR]),
    call(libc::SYS_epoll_wait, "epoll_wait", &[EINTR]),
    call(libc::SYS_wait4, "wait4", &[EINTR]),
];

pub(crate) fn call_of(number: c_long) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.number == number)
}
