//! The target directory: opening what is below it, through no symbolic link, however long the path.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Existing;
use crate::error::{Error, Result};

/// A piece of a path that one system call takes, with some room.
const PATH_PIECE: usize = 4000;

/// The directory that nothing is written outside of.
#[derive(Debug)]
pub(super) struct Target {
    root: OwnedFd,
}

impl Target {
    /// Opens the target, and makes it if it does not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path, e))?;
        Ok(Self { root })
    }

    /// Opens the directory `path`, relative to the target.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        let open = || -> Result<OwnedFd, Errno> {
            let mut dir: Option<OwnedFd> = None;
            let mut piece = PathBuf::from(".");
            for component in path.components() {
                if piece.as_os_str().len() + component.as_os_str().len() >= PATH_PIECE {
                    dir = Some(open_beneath(dir.as_ref().unwrap_or(&self.root), &piece)?);
                    piece = PathBuf::from(".");
                }
                piece.push(component);
            }
            open_beneath(dir.as_ref().unwrap_or(&self.root), &piece)
        };
        open().map_err(|e| Error::io("open", path, e))
    }

    /// Makes the directory `name` in `dir`; one that exists is taken as it is.
    pub(super) fn make_dir(&self, dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<()> {
        match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => open_beneath(dir, Path::new(name)).map(drop),
            Err(error) => Err(error),
        }
        .map_err(|e| Error::io("create", path, e))
    }

    /// Gives the file `first` the further name `path`; false if it has that name already, and is to keep it.
    pub(super) fn link(&self, first: &Path, path: &Path, existing: Existing) -> Result<bool> {
        let dir_of = |path: &Path| self.open_dir(path.parent().unwrap_or(Path::new("")));
        let (from, to) = (dir_of(first)?, dir_of(path)?);
        let (old, new) = (first.file_name().unwrap_or_default(), path.file_name().unwrap_or_default());
        let link = || rustix::fs::linkat(&from, old, &to, new, AtFlags::empty());
        let failed = |e| Error::io("link", path, e);
        match link() {
            Err(Errno::EXIST) if existing != Existing::Refuse => {}
            linked => return linked.map(|()| true).map_err(failed),
        }
        let id = |dir: &OwnedFd, name: &OsStr| {
            rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
        };
        if id(&from, old).is_ok_and(|first| id(&to, new) == Ok(first)) {
            return Ok(false);
        }
        rustix::fs::unlinkat(&to, new, AtFlags::empty()).map_err(|e| Error::io("replace", path, e))?;
        link().map(|()| true).map_err(failed)
    }
}

fn open_beneath(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir.as_fd(), path, flags, Mode::empty(), resolve) {
            // The kernel could not rule out a race with a rename, and asks to try again.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
}
