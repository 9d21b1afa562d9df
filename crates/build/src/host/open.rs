//! Opens files below a source directory by paths of any length, without following symbolic links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ferofs_format::inode::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::host::preload;

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

/// Where the symbolic link `path` leads to, also if nothing is there yet. Asks for no other file than links.
#[must_use]
pub fn follow_links(path: &Path) -> PathBuf {
    /// More links than Linux follows.
    const LINKS: usize = 41;
    let next = |path: &PathBuf| {
        let target = std::fs::read_link(path).ok()?;
        Some(path.parent().unwrap_or(Path::new("")).join(target).components().collect())
    };
    // Without a slash at the end, which would lead through the link.
    let first = path.components().collect();
    std::iter::successors(Some(first), next).take(LINKS).last().unwrap_or_else(|| path.to_owned())
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
    // pseudo would not know the directory: libc has no function for this call.
    if preload::is_active() {
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

/// Calls fstatat(2) for `name` in the directory `dir`. Not statx(2), which not all preloaded libraries see.
pub fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Calls fstat(2) for the open file `fd`.
pub fn stat_fd(fd: BorrowedFd<'_>) -> Result<Stat, Errno> {
    rustix::fs::fstat(fd)
}

/// Bytes of the file.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Bytes of the file's blocks: fewer than its size if it is sparse.
pub fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The time of the last change of the content.
pub fn mtime(stat: &Stat) -> Timestamp {
    // Less than a second.
    Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_names_without_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, target) in [("a", "b"), ("b", "none"), ("loop", "again"), ("again", "loop")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        assert_eq!(follow_links(&path("a")), path("none"));
        assert_eq!(follow_links(&path("a/")), path("none"));
        assert_eq!(follow_links(&path("x/../none")), path("x/../none"));
        assert!(["loop", "again"].map(path).contains(&follow_links(&path("loop"))));
    }

    /// Both ways to open a directory, because Linux before 5.6 and preloaded libraries need the second.
    #[test]
    fn no_name_of_a_path_is_a_link_or_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for open in [open_piece, open_each_name] {
            let open = |path: &str| open(root.as_fd(), path.as_bytes(), flags);
            let inode = |path: &str| stat_fd(open(path).unwrap().as_fd()).unwrap().st_ino;
            let expected = stat_at(root.as_fd(), b"a/b/c").unwrap().st_ino;
            assert_eq!((inode("a/b/c"), inode("./a//b/c")), (expected, expected));
            assert_eq!(inode("."), stat_fd(root.as_fd()).unwrap().st_ino);
            for path in ["link", "link/b", "../x", "none", ""] {
                assert!(open(path).is_err(), "{path}");
            }
        }
        assert_eq!(open_each_name(root.as_fd(), b"a/../../..", flags).unwrap_err(), Errno::XDEV);
    }
}
