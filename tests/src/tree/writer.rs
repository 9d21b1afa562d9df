//! Creates inodes in one open directory. All calls use the directory's descriptor, so depth and
//! path length do not matter.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::rng::Rng;
use crate::xattr;

/// An open directory that is filled.
#[derive(Debug)]
pub struct DirWriter {
    fd: OwnedFd,
    rng: Rng,
    root: bool,
}

impl DirWriter {
    /// Opens the directory `dir`. `root`: whether to create inodes that only root may create.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(dir: &Path, rng: Rng, root: bool) -> io::Result<Self> {
        let fd = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd, rng, root })
    }

    /// Whether to create inodes that only root may create.
    pub fn root(&self) -> bool {
        self.root
    }

    /// A generator for the entry `name`: the same numbers in each run.
    pub fn rng(&self, name: &[u8]) -> Rng {
        self.rng.fork(name)
    }

    /// The directory's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Creates the directory `name`, calls `fill`, and then sets the time of the directory.
    pub fn sub(
        &self,
        name: &[u8],
        fill: impl FnOnce(&DirWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        let sub = self.enter(name)?;
        fill(&sub)?;
        sub.finish()
    }

    /// Creates and opens the directory `name`; [`DirWriter::finish`] sets its time.
    pub fn enter(&self, name: &[u8]) -> io::Result<DirWriter> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(DirWriter { fd, rng: self.rng.fork(name), root: self.root })
    }

    /// Sets the time of the directory. Call it after the last entry.
    pub fn finish(&self) -> io::Result<()> {
        self.default_time(b".")
    }

    /// Creates and opens an empty file. Set its time with [`DirWriter::default_time`] afterwards.
    pub fn create(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o644))?))
    }

    /// Creates a file with this content and its default time.
    pub fn file(&self, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.create(name)?.write_all(bytes)?;
        self.default_time(name)
    }

    /// Creates a symlink with its default time.
    pub fn symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        rustix::fs::symlinkat(target, &self.fd, name)?;
        self.default_time(name)
    }

    /// Creates a fifo, socket or (for root) device with its default time.
    pub fn node(&self, name: &[u8], kind: FileType, device: (u32, u32)) -> io::Result<()> {
        let device = rustix::fs::makedev(device.0, device.1);
        rustix::fs::mknodat(&self.fd, name, kind, Mode::from_raw_mode(0o640), device)?;
        self.default_time(name)
    }

    /// Creates the hard link `new` to `old` in the directory `there`.
    pub fn link(&self, old: &[u8], there: &DirWriter, new: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.fd, old, &there.fd, new, AtFlags::empty())?)
    }

    /// Sets the permission bits (12 of them).
    pub fn mode(&self, name: &[u8], mode: RawMode) -> io::Result<()> {
        Ok(rustix::fs::chmodat(&self.fd, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    /// Sets owner and group, also of a symlink itself. This clears setuid bits and capabilities:
    /// set them afterwards.
    pub fn owner(&self, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(&self.fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the time of last modification, in seconds from 1970 and nanoseconds.
    pub fn time(&self, name: &[u8], seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(&self.fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the time of `name` to a value that depends on the seed.
    pub fn default_time(&self, name: &[u8]) -> io::Result<()> {
        let mut rng = self.rng.fork(name);
        let seconds = 1_500_000_000 + rng.below(200_000_000) as i64;
        // Whole seconds are common in real trees, and builders can store them in compact inodes.
        let nanoseconds = if rng.below(4) == 0 { 0 } else { rng.below(1_000_000_000) as u32 };
        self.time(name, seconds, nanoseconds)
    }

    /// Sets an xattr. False if the file system or the type of inode does not support it, or has no
    /// space for it.
    pub fn xattr(&self, name: &[u8], key: &[u8], value: &[u8]) -> io::Result<bool> {
        let unsupported = [Errno::OPNOTSUPP, Errno::NOSPC, Errno::TOOBIG, Errno::PERM]
            .map(|e| Some(e.raw_os_error()));
        match xattr::set(&self.fd, name, key, value) {
            Err(error) if unsupported.contains(&error.raw_os_error()) => Ok(false),
            done => done.map(|()| true),
        }
    }
}
