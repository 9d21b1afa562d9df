//! One open directory to plant in. Everything happens beneath its descriptor, so depth and path length do not matter.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::rng::Rng;
use crate::xattr;

/// A directory being planted.
#[derive(Debug)]
pub struct Plot {
    fd: OwnedFd,
    rng: Rng,
    root: bool,
}

impl Plot {
    /// The directory `dir`; `root` says whether what only root may is wanted.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(dir: &Path, rng: Rng, root: bool) -> io::Result<Self> {
        let fd = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd, rng, root })
    }

    /// Whether what only root may is wanted.
    pub fn root(&self) -> bool {
        self.root
    }

    /// Numbers for the thing called `name` here, the same in each run.
    pub fn rng(&self, name: &[u8]) -> Rng {
        self.rng.fork(name)
    }

    /// The directory's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes the directory `name`, lets `plant` fill it and then gives it its time.
    pub fn sub(&self, name: &[u8], plant: impl FnOnce(&Plot) -> io::Result<()>) -> io::Result<()> {
        let sub = self.enter(name)?;
        plant(&sub)?;
        sub.finish()
    }

    /// Makes the directory `name` and opens it; its time is given by [`Plot::finish`].
    pub fn enter(&self, name: &[u8]) -> io::Result<Plot> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Plot { fd, rng: self.rng.fork(name), root: self.root })
    }

    /// Gives the directory its time. To be called when all names are in it.
    pub fn finish(&self) -> io::Result<()> {
        self.default_time(b".")
    }

    /// Makes an empty file and opens it. Its time is whatever; see [`Plot::default_time`].
    pub fn create(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o644))?))
    }

    /// Makes a file of these bytes, with a time of its own.
    pub fn file(&self, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.create(name)?.write_all(bytes)?;
        self.default_time(name)
    }

    /// Makes a symlink, with a time of its own.
    pub fn symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        rustix::fs::symlinkat(target, &self.fd, name)?;
        self.default_time(name)
    }

    /// Makes a fifo, socket or (for root) device, with a time of its own.
    pub fn node(&self, name: &[u8], kind: FileType, device: (u32, u32)) -> io::Result<()> {
        let device = rustix::fs::makedev(device.0, device.1);
        rustix::fs::mknodat(&self.fd, name, kind, Mode::from_raw_mode(0o640), device)?;
        self.default_time(name)
    }

    /// Gives the thing called `old` the further name `new` in `there`.
    pub fn link(&self, old: &[u8], there: &Plot, new: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.fd, old, &there.fd, new, AtFlags::empty())?)
    }

    /// Sets the permission bits (12 of them).
    pub fn mode(&self, name: &[u8], mode: RawMode) -> io::Result<()> {
        Ok(rustix::fs::chmodat(&self.fd, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    /// Sets owner and group, of a symlink itself too. It clears setuid bits and capabilities: set them later.
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

    /// Gives `name` the time that the seed has for it.
    pub fn default_time(&self, name: &[u8]) -> io::Result<()> {
        let mut rng = self.rng.fork(name);
        let seconds = 1_500_000_000 + rng.below(200_000_000) as i64;
        // Whole seconds are common in real trees, and take a shorter way through some builders.
        let nanoseconds = if rng.below(4) == 0 { 0 } else { rng.below(1_000_000_000) as u32 };
        self.time(name, seconds, nanoseconds)
    }

    /// Sets an xattr. False if the file system (or the kind of file) has none of this sort or no room for it.
    pub fn xattr(&self, name: &[u8], key: &[u8], value: &[u8]) -> io::Result<bool> {
        let lacking =
            [Errno::OPNOTSUPP, Errno::NOSPC, Errno::TOOBIG, Errno::PERM].map(|e| Some(e.raw_os_error()));
        match xattr::set(&self.fd, name, key, value) {
            Err(error) if lacking.contains(&error.raw_os_error()) => Ok(false),
            done => done.map(|()| true),
        }
    }
}
