//! The workers: each creates the files of its jobs, one after the other, and reuses its buffer and
//! its open directory.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Receiver;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::boundary::boundary;
use super::content::Content;
use super::extraction::Extraction;
use super::options::Existing;
use super::schedule::{Job, Large, TargetFile};
use super::target::{Address, check_name, open_path};
use crate::error::{Error, Result};
use ferofs_read::{FileType, Inode, Place, Rdev};

/// The action of creating a file that some file systems refuse, such as exFAT, while they take
/// others.
const MAKE_SPECIAL: &str = "create a link or special file";

/// A worker's context.
pub(super) struct Worker<'a, 'b> {
    extraction: &'a Extraction<'b>,
    content: Content,
    /// The directory of the last file.
    dir: Option<(Arc<Path>, Arc<OwnedFd>)>,
}

impl<'a, 'b> Worker<'a, 'b> {
    pub(super) fn new(extraction: &'a Extraction<'b>) -> Self {
        Self { extraction, content: Content::default(), dir: None }
    }

    /// Does jobs until there are no more.
    pub(super) fn serve(mut self, jobs: Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Batch(items) => {
                    for item in items {
                        if self.is_stopped() {
                            break;
                        }
                        let made = self.make(&item);
                        self.extraction.count_file(&item.path(), made);
                    }
                }
                Job::Piece(large, range) => {
                    if !self.is_stopped() {
                        self.make_piece(&large, range);
                    }
                    if large.finish_part() {
                        self.complete(&large);
                    }
                }
            }
        }
    }

    /// Completes a file after its last piece: sets its size and attributes.
    pub(super) fn complete(&mut self, large: &Large) {
        if self.is_stopped() {
            return;
        }
        let (item, path) = (&large.item, large.item.path());
        // A file that is one hole has no piece, so no worker created it yet.
        let made = match self.open_large(large) {
            Ok(Some(file)) if !large.failed.load(Ordering::Acquire) => {
                let size = rustix::fs::ftruncate(file, item.file.inode.size());
                size.map_err(|e| Error::io("set size of", &path, e)).map(|()| {
                    self.extraction.set_metadata(
                        &Address::Open(file.as_fd()),
                        &item.file.inode,
                        &path,
                    );
                    true
                })
            }
            // The failure was reported already.
            Ok(Some(_)) => return,
            Ok(None) if large.failed.load(Ordering::Acquire) => return,
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        self.extraction.count_file(&path, made);
    }

    /// Creates a file; false if an existing one stays.
    pub(super) fn make(&mut self, item: &TargetFile) -> Result<bool> {
        self.extraction.charge_name(&item.dir)?;
        let dir = self.dir(item)?;
        let (name, inode) = (item.file.name.as_os_str(), &item.file.inode);
        match inode.file_type() {
            FileType::Regular => {
                let Some(file) = self.create(&dir, item)? else { return Ok(false) };
                let path = || item.path();
                let size = inode.size();
                let end =
                    self.content.write(self.extraction.image, inode, &file, 0..size, &path)?;
                if end < size {
                    rustix::fs::ftruncate(&file, size)
                        .map_err(|e| Error::io("set size of", path(), e))?;
                }
                self.extraction.options.progress.bytes.add(size);
                self.extraction.set_metadata(&Address::Open(file.as_fd()), inode, &path());
                return Ok(true);
            }
            FileType::Symlink => {
                let target = self.extraction.image.read_link(inode)?;
                let made = self.replace_existing(&dir, item, MAKE_SPECIAL, || {
                    rustix::fs::symlinkat(OsStr::from_bytes(&target), &*dir, name)
                })?;
                if made.is_none() {
                    return Ok(false);
                }
            }
            FileType::Directory => return Ok(false),
            special => {
                let mode = Mode::RUSR | Mode::WUSR;
                let make = || rustix::fs::mknodat(&*dir, name, kind(special), mode, device(inode));
                if self.replace_existing(&dir, item, MAKE_SPECIAL, make)?.is_none() {
                    return Ok(false);
                }
            }
        }
        self.finish_special(&dir, item)?;
        Ok(true)
    }

    /// Sets the attributes of a symbolic link or special file that was just made.
    pub(super) fn finish_special(&self, dir: &OwnedFd, item: &TargetFile) -> Result<()> {
        let (inode, path) = (&item.file.inode, item.path());
        let file = open_path(dir, &item.file.name).map_err(|e| Error::io("open", &path, e))?;
        let stat = rustix::fs::fstat(&file).map_err(|e| Error::io("open", &path, e))?;
        // These files are created by name, so another process may have replaced it since. The new
        // file has one name.
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != kind(inode.file_type())
            || stat.st_nlink > 1
        {
            return Err(Error::io(
                "open",
                &path,
                std::io::Error::other("replaced by another process"),
            ));
        }
        self.extraction.record_file(inode, &stat);
        let address = self.extraction.target.address(dir.as_fd(), &item.file.name, file.as_fd());
        self.extraction.set_metadata(&address, inode, &path);
        Ok(())
    }

    fn make_piece(&mut self, large: &Large, range: Range<u64>) {
        if large.failed.load(Ordering::Relaxed) {
            return;
        }
        let path = || large.item.path();
        let written = self.open_large(large).and_then(|file| {
            let Some(file) = file else { return Ok(()) };
            let (image, inode) = (self.extraction.image, &large.item.file.inode);
            let range = boundary(image, inode, range.start)?..boundary(image, inode, range.end)?;
            self.extraction.options.progress.bytes.add(range.end.saturating_sub(range.start));
            self.content.write(image, inode, file, range, &path).map(drop)
        });
        if let Err(error) = written {
            // Only the first failing piece of a file is reported.
            if !large.failed.swap(true, Ordering::AcqRel) {
                self.extraction.report(&path(), Err(error));
            }
        }
    }

    /// The open file of a large one, which the first worker that needs it creates.
    fn open_large<'l>(&mut self, large: &'l Large) -> Result<Option<&'l OwnedFd>> {
        if let Some(made) = large.made.get() {
            return Ok(made.as_ref());
        }
        let mut failed = None;
        let made = large.made.get_or_init(|| {
            let created = self.dir(&large.item).and_then(|dir| self.create(&dir, &large.item));
            created.unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        });
        failed.map_or(Ok(made.as_ref()), Err)
    }

    /// Creates a regular file; `None` if an existing one stays.
    fn create(&self, dir: &OwnedFd, item: &TargetFile) -> Result<Option<OwnedFd>> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || rustix::fs::openat(dir, item.file.name.as_os_str(), flags, mode);
        let made =
            self.replace_existing(dir, item, "create", || rustix::io::retry_on_intr(open))?;
        if let Some(file) = &made
            && item.file.inode.on_disk().nlink > 1
        {
            let stat = rustix::fs::fstat(file).map_err(|e| Error::io("open", item.path(), e))?;
            self.extraction.record_file(&item.file.inode, &stat);
        }
        Ok(made)
    }

    /// Calls `make`, after removing an existing file if the options say so; `None` if the existing
    /// file stays.
    fn replace_existing<T>(
        &self,
        dir: &OwnedFd,
        item: &TargetFile,
        action: &'static str,
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<Option<T>> {
        let (name, existing) = (item.file.name.as_os_str(), self.extraction.options.existing);
        let failed = |e| Error::io(action, item.path(), e);
        match make() {
            Err(Errno::EXIST) => {
                check_name(dir, name).map_err(|e| Error::io(action, item.path(), e))?;
                if existing == Existing::Refuse {
                    return Err(failed(Errno::EXIST));
                }
            }
            made => return made.map(Some).map_err(failed),
        }
        if existing == Existing::SkipSame {
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            if let Ok(stat) = stat
                && is_same(&stat, &item.file.inode)
                && self.extraction.has_owner_and_mode(&stat, &item.file.inode)
            {
                self.extraction.record_file(&item.file.inode, &stat);
                return Ok(None);
            }
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => make().map(Some).map_err(failed),
            Err(error) => Err(Error::io("replace", item.path(), error)),
        }
    }

    fn dir(&mut self, item: &TargetFile) -> Result<Arc<OwnedFd>> {
        match &self.dir {
            Some((path, dir)) if *path == item.dir => Ok(Arc::clone(dir)),
            _ => {
                let dir = Arc::new(self.extraction.target.open_dir(&item.dir)?);
                self.dir = Some((Arc::clone(&item.dir), Arc::clone(&dir)));
                Ok(dir)
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.extraction.is_stopped()
    }
}

/// Whether a file has the type, size and modification time of `inode`. The time is set last, so an
/// incomplete file differs.
fn is_same(stat: &Stat, inode: &Inode) -> bool {
    let file_type = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let has_size = matches!(inode.file_type(), FileType::Regular | FileType::Symlink);
    let time = inode.mtime();
    file_type == kind(inode.file_type())
        && (!has_size || u64::try_from(stat.st_size) == Ok(inode.size()))
        && stat.st_mtime == time.secs
        // Its type depends on the processor.
        && i128::from(stat.st_mtime_nsec) == i128::from(time.nanos)
}

const fn kind(file_type: FileType) -> rustix::fs::FileType {
    match file_type {
        FileType::Regular => rustix::fs::FileType::RegularFile,
        FileType::Directory => rustix::fs::FileType::Directory,
        FileType::Symlink => rustix::fs::FileType::Symlink,
        FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
        FileType::Socket => rustix::fs::FileType::Socket,
        FileType::Fifo => rustix::fs::FileType::Fifo,
    }
}

fn device(inode: &Inode) -> u64 {
    match inode.on_disk().place {
        Place::Device(Rdev { major, minor }) => rustix::fs::makedev(major, minor),
        _ => 0,
    }
}
