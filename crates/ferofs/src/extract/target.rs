//! The target directory: opens files below it, never through a symbolic link, also if a path is
//! longer than `PATH_MAX`.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::options::Existing;
use crate::error::{Error, Result};
use ferofs_host::{check_preload, has_preload};

/// The directory that all extracted files are in.
#[derive(Debug)]
pub(super) struct Target {
    root: OwnedFd,
    /// Whether `/proc/self/fd` exists.
    has_proc: bool,
}

impl Target {
    /// Opens the target, and creates it if it does not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        check_preload()?;
        std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|e| Error::io("open", path, e))?;
        Ok(Self { root, has_proc: Path::new("/proc/self/fd").is_dir() })
    }

    /// Opens the directory `path`, relative to the target.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        let shown = if path.as_os_str().is_empty() { Path::new("/") } else { path };
        open_beneath(&self.root, path).map_err(|e| Error::io("open", shown, e))
    }

    /// The name that system calls use for the file `name` in `dir`, which is open as `file`.
    pub(super) fn address<'a>(
        &self,
        dir: BorrowedFd<'a>,
        name: &'a OsStr,
        file: BorrowedFd<'_>,
    ) -> Address<'a> {
        match self.has_proc && !has_preload() {
            true => Address::Descriptor(format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
            false => Address::Name { dir, name, has_proc: self.has_proc },
        }
    }

    /// Creates the directory `name` in `dir`, unless it exists.
    pub(super) fn make_dir(&self, dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<()> {
        match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                check_name(dir, name).map_err(|e| Error::io("create", path, e))?;
                open_beneath(dir, Path::new(name)).map(drop)
            }
            Err(error) => Err(error),
        }
        .map_err(|e| Error::io("create", path, e))
    }

    /// Links the file `first` to the name `path`; false if they are the same file already. The
    /// inner error is the system's refusal of any more links to this file: the file system has
    /// none, or this file has the most that it allows.
    ///
    /// `is_extracted` says whether a file is the one that was extracted as `first`. Another file
    /// can have this name: one that existed before and was not replaced, or one that another
    /// process created.
    pub(super) fn link(
        &self,
        first: &Path,
        path: &Path,
        existing: Existing,
        is_extracted: impl FnOnce(FileId) -> bool,
    ) -> Result<Result<bool, Errno>> {
        let dir_of = |path: &Path| self.open_dir(path.parent().unwrap_or(Path::new("")));
        let (from, to) = (dir_of(first)?, dir_of(path)?);
        let (old, new) =
            (first.file_name().unwrap_or_default(), path.file_name().unwrap_or_default());
        let failed = |e| Error::io("link", path, e);
        let file = open_path(&from, old).map_err(failed)?;
        let id = FileId::of(&rustix::fs::fstat(&file).map_err(failed)?);
        if !is_extracted(id) {
            return Err(Error::io(
                "link",
                path,
                std::io::Error::other("its first name was not extracted"),
            ));
        }
        let address = self.address(from.as_fd(), old, file.as_fd());
        let (dir, name, flags) = address.at();
        // linkat(2) has the opposite flag of other calls.
        let flags = if flags.is_empty() { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let link = || rustix::fs::linkat(dir, name, &to, new, flags);
        match link() {
            Err(Errno::EXIST) if existing != Existing::Refuse => {}
            linked => return refusal(linked).map_err(failed),
        }
        let present = rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW);
        if present.is_ok_and(|stat| FileId::of(&stat) == id) {
            return Ok(Ok(false));
        }
        check_name(&to, new).map_err(|e| Error::io("link", path, e))?;
        rustix::fs::unlinkat(&to, new, AtFlags::empty())
            .map_err(|e| Error::io("replace", path, e))?;
        refusal(link()).map_err(failed)
    }
}

/// Fails if `dir` has the file that `name` finds under a name in another case only: replacing it
/// would lose another file of the image.
pub(super) fn check_name(dir: &OwnedFd, name: &OsStr) -> std::io::Result<()> {
    // Such file systems compare text.
    let Some(text) = name.to_str() else { return Ok(()) };
    let lower = text.to_lowercase();
    let other = if lower == text { text.to_uppercase() } else { lower };
    // Most directories need not be listed: they do not have the other name.
    if other == text || rustix::fs::statat(dir, other, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    for entry in rustix::fs::Dir::read_from(dir)? {
        if entry?.file_name().to_bytes() == text.as_bytes() {
            return Ok(());
        }
    }
    Err(std::io::Error::other(
        "the directory has this name in another case, and its file system ignores case",
    ))
}

/// The result of linkat(2). Linux refuses links with EPERM where the file system has none, and
/// between mounts with EXDEV.
fn refusal(linked: Result<(), Errno>) -> Result<Result<bool, Errno>, Errno> {
    match linked {
        Err(
            error @ (Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV),
        ) => Ok(Err(error)),
        linked => linked.map(|()| Ok(true)),
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

/// No system call sets attributes of such a file without `/proc`.
pub(super) const NO_PROC: Errno = Errno::NOSYS;

/// How system calls name a file whose attributes they set.
pub(super) enum Address<'a> {
    /// A regular file or directory, which is open.
    Open(BorrowedFd<'a>),
    /// The path of its descriptor in `/proc`: its name could lead to another file by now.
    Descriptor(OsString),
    /// Its directory and name: there is no `/proc`, or a library between ferofs and the system
    /// knows no paths in it ([`preload`]). New directories are accessible to this user only, so
    /// nobody else replaces the file there.
    Name { dir: BorrowedFd<'a>, name: &'a OsStr, has_proc: bool },
}

impl Address<'_> {
    /// The arguments of a system call that takes a directory, a name and flags. Only some calls
    /// take those of an open file.
    pub(super) fn at(&self) -> (BorrowedFd<'_>, &OsStr, AtFlags) {
        match self {
            Self::Open(file) => (*file, OsStr::new(""), AtFlags::EMPTY_PATH),
            Self::Descriptor(path) => (CWD, path, AtFlags::empty()),
            Self::Name { dir, name, .. } => (*dir, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Self::Open(file) => rustix::fs::fstat(file),
            _ => {
                let (dir, name, flags) = self.at();
                rustix::fs::statat(dir, name, flags)
            }
        }
    }

    pub(super) fn set_owner(&self, uid: Uid, gid: Gid) -> std::io::Result<()> {
        match self {
            // rustix's fchown never calls libc.
            Self::Open(file) => {
                std::os::unix::fs::fchown(file, Some(uid.as_raw()), Some(gid.as_raw()))
            }
            _ => {
                let (dir, name, flags) = self.at();
                Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), flags)?)
            }
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::futimens(file, times),
            _ => {
                let (dir, name, flags) = self.at();
                rustix::fs::utimensat(dir, name, times, flags)
            }
        }
    }

    /// Sets the permissions of a file that is not a symbolic link. Before Linux 6.6 no call for
    /// this does not follow a link.
    pub(super) fn set_mode(&self, bits: u16) -> std::io::Result<()> {
        match self {
            Self::Open(file) => set_mode(*file, bits),
            // rustix's call would not go through libc.
            Self::Name { has_proc: true, .. } => {
                std::fs::set_permissions(self.path()?, Permissions::from_mode(bits.into()))
            }
            _ => {
                let (dir, name, _) = self.at();
                Ok(rustix::fs::chmodat(
                    dir,
                    name,
                    Mode::from_raw_mode(bits.into()),
                    AtFlags::empty(),
                )?)
            }
        }
    }

    pub(super) fn set_xattr(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Descriptor(path) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
            Self::Name { .. } => {
                rustix::fs::lsetxattr(self.path()?, name, value, XattrFlags::empty())
            }
        }
    }

    pub(super) fn remove_xattr(&self, name: &CStr) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Descriptor(path) => rustix::fs::removexattr(path, name),
            Self::Name { .. } => rustix::fs::lremovexattr(self.path()?, name),
        }
    }

    /// The file's path: before Linux 6.13 no call for attributes takes a directory and a name.
    fn path(&self) -> Result<OsString, Errno> {
        match self {
            Self::Descriptor(path) => Ok(path.clone()),
            Self::Name { dir, name, has_proc: true } => {
                let mut path = OsString::from(format!("/proc/self/fd/{}/", dir.as_raw_fd()));
                path.push(name);
                Ok(path)
            }
            Self::Open(_) | Self::Name { .. } => Err(NO_PROC),
        }
    }
}

fn open_beneath(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    ferofs_host::open_dir(dir.as_fd(), path.as_os_str().as_bytes(), OFlags::RDONLY)
}

/// Sets permissions. rustix's fchmod never calls libc, and that of the standard library needs a
/// [`File`].
fn set_mode(file: BorrowedFd<'_>, bits: u16) -> std::io::Result<()> {
    match has_preload() {
        true => File::from(file.try_clone_to_owned()?)
            .set_permissions(Permissions::from_mode(bits.into())),
        false => Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(bits.into()))?),
    }
}
