//! The target directory: opens files below it, never through a symbolic link, also if a path is longer than `PATH_MAX`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use super::options::Existing;
use crate::error::{Error, Result};

/// Bytes of a path that are passed to one system call: less than Linux's limit of 4096. Longer paths take several calls.
const PATH_PART: usize = 4000;

/// The directory that all extracted files are in.
#[derive(Debug)]
pub(super) struct Target {
    root: OwnedFd,
}

impl Target {
    /// Opens the target, and creates it if it does not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|e| Error::io("open", path, e))?;
        Ok(Self { root })
    }

    /// Opens the directory `path`, relative to the target.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        let open = || -> Result<OwnedFd, Errno> {
            let mut dir: Option<OwnedFd> = None;
            let mut part = PathBuf::from(".");
            for component in path.components() {
                if part.as_os_str().len() + component.as_os_str().len() >= PATH_PART {
                    dir = Some(open_beneath(dir.as_ref().unwrap_or(&self.root), &part)?);
                    part = PathBuf::from(".");
                }
                part.push(component);
            }
            open_beneath(dir.as_ref().unwrap_or(&self.root), &part)
        };
        open().map_err(|e| Error::io("open", path, e))
    }

    /// Creates the directory `name` in `dir`, unless it exists.
    pub(super) fn make_dir(&self, dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<()> {
        match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => open_beneath(dir, Path::new(name)).map(drop),
            Err(error) => Err(error),
        }
        .map_err(|e| Error::io("create", path, e))
    }

    /// Links the file `first` to the name `path`; false if they are the same file already.
    ///
    /// `is_extracted` says whether a file is the one that was extracted as `first`. Another file can have this name: one that
    /// existed before and was not replaced, or one that another process created.
    pub(super) fn link(
        &self,
        first: &Path,
        path: &Path,
        existing: Existing,
        is_extracted: impl FnOnce(FileId) -> bool,
    ) -> Result<bool> {
        let dir_of = |path: &Path| self.open_dir(path.parent().unwrap_or(Path::new("")));
        let (from, to) = (dir_of(first)?, dir_of(path)?);
        let (old, new) = (first.file_name().unwrap_or_default(), path.file_name().unwrap_or_default());
        let failed = |e| Error::io("link", path, e);
        let file = open_path(&from, old).map_err(failed)?;
        let id = FileId::of(&rustix::fs::fstat(&file).map_err(failed)?);
        if !is_extracted(id) {
            return Err(Error::io("link", path, std::io::Error::other("its first name was not extracted")));
        }
        // By descriptor: the name may lead to another file by now.
        let file = by_descriptor(file.as_fd());
        let link = || rustix::fs::linkat(rustix::fs::CWD, &file, &to, new, AtFlags::SYMLINK_FOLLOW);
        match link() {
            Err(Errno::EXIST) if existing != Existing::Refuse => {}
            linked => return linked.map(|()| true).map_err(failed),
        }
        let there = rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|stat| FileId::of(&stat) == id) {
            return Ok(false);
        }
        rustix::fs::unlinkat(&to, new, AtFlags::empty()).map_err(|e| Error::io("replace", path, e))?;
        link().map(|()| true).map_err(failed)
    }
}

/// The identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) const fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Opens `name` for its attributes only, without following a symbolic link.
pub(super) fn open_path(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// A path to the open file itself, even if that is a symbolic link, for system calls that do not accept a descriptor of
/// [`open_path`].
pub(super) fn by_descriptor(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn open_beneath(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir.as_fd(), path, flags, Mode::empty(), resolve) {
            // The kernel could not exclude a race with a rename, or a signal arrived: try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}
