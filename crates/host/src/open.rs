//! Opens files by directory and name, by paths of any length, without following symbolic links.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::preload::has_preload;

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

/// Opens the regular file `name` for reading. Fails if it is a symbolic link now, and does not wait
/// if it is a pipe.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
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
    // pseudo would not know the directory: libc has no function for this call.
    if has_preload() {
        return open_each_name(at, piece, flags);
    }
    loop {
        match rustix::fs::openat2(at, piece, flags, Mode::empty(), resolve) {
            // The kernel could not exclude a race with a rename, or a signal arrived: try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Linux before 5.6 does not have the call, and some sandboxes refuse it.
            Err(Errno::NOSYS | Errno::PERM) => return open_each_name(at, piece, flags),
            result => return result,
        }
    }
}

/// Opens a directory one name after the other, so that no name is a symbolic link.
fn open_each_name(at: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut here: Option<OwnedFd> = None;
    let mut names = piece.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        // Such a name could leave the directory; openat2(2) returns this error then.
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let dir = here.as_ref().map_or(at, AsFd::as_fd);
        let flags = if names.peek().is_some() { flags | OFlags::PATH } else { flags };
        here = Some(retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?);
    }
    here.ok_or(Errno::NOENT)
}
