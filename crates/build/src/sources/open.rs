//! Opens files below a source directory by paths of any length, without following symbolic links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferofs_format::inode::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::{Errno, retry_on_intr};

use crate::tree::origin::Identity;

/// The longest path that one system call is given: `PATH_MAX` with its final NUL is 4096.
const PIECE: usize = 4095;

/// Opens the directory `path`, relative to `root`; empty for `root` itself.
pub fn open_dir(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut rest = if path.is_empty() { b"." } else { path };
    let mut at: Option<OwnedFd> = None;
    loop {
        let (piece, after) = split(rest);
        let here = at.as_ref().map_or(root, AsFd::as_fd);
        let flags = if after.is_empty() { flags } else { flags | OFlags::PATH };
        let next = open_piece(here, piece, flags)?;
        if after.is_empty() {
            return Ok(next);
        }
        (at, rest) = (Some(next), after);
    }
}

/// Opens the regular file `name` for reading. Fails if it is a symbolic link now, and does not wait if it is a pipe.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE {
        return (path, &[]);
    }
    // Names have at most 255 bytes, so there is a slash.
    let slash = path[..PIECE].iter().rposition(|&b| b == b'/').unwrap_or(PIECE);
    (&path[..slash], &path[(slash + 1).min(path.len())..])
}

fn open_piece(at: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match retry_on_intr(|| rustix::fs::openat2(at, piece, flags, Mode::empty(), resolve)) {
        // Linux before 5.6 does not have the call, and some sandboxes refuse it.
        Err(Errno::NOSYS | Errno::PERM) => {
            retry_on_intr(|| rustix::fs::openat(at, piece, flags, Mode::empty()))
        }
        result => result,
    }
}

/// Calls `statx` for `name` in the directory `dir`.
pub fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS)
}

/// Calls `statx` for the open file `fd`.
pub fn stat_fd(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

pub fn timestamp(time: &StatxTimestamp) -> Timestamp {
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec }
}

/// The identity of a file and its state: it changes whenever the file does.
pub fn identity(stat: &Statx) -> Identity {
    Identity::new(stat.stx_ino, timestamp(&stat.stx_mtime), timestamp(&stat.stx_ctime))
}
