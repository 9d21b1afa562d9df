//! Extract: an image's tree, made anew below a directory.
//!
//! One thread walks the image and makes directories; workers write what is in them; hard links, and then
//! the attributes of directories, come last, as writing into a directory changes its time. Everything is
//! opened beneath the target, through no symbolic link, whatever the image's names say.

mod beneath;
mod content;
mod metadata;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use ferofs_format::{Fault, Nid, Structure};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::{Corruption, Error, Result};
use crate::read::{DirEntry, FileType, Image, Inode, Place, Rdev};
use beneath::Target;

/// Works that may wait: each holds a directory open.
const QUEUE: usize = 256;

/// What to extract, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that decode and write; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// Replace files that exist.
    pub overwrite: bool,
    /// Keep owners. Default: as root.
    pub owners: bool,
    /// Keep permissions. Default: yes.
    pub permissions: bool,
    /// Keep extended attributes. Default: yes.
    pub xattrs: bool,
    /// Set by another thread, ends the extraction with [`Error::Interrupted`].
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            overwrite: false,
            owners: rustix::process::geteuid().is_root(),
            permissions: true,
            xattrs: true,
            cancel: Arc::default(),
        }
    }
}

/// What was extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Names that were made.
    pub names: u64,
    /// Bytes of regular files' content.
    pub bytes: u64,
    /// Names that could not be made, or not as they should be.
    pub failures: u64,
}

/// Extracts `from`, and all below it when it is a directory, to `target`, which is made if need be.
///
/// `complain` is told of each file that fails, with its path in the image; the others go on.
///
/// # Errors
/// [`Error::Io`] for the target itself, [`Error::Interrupted`].
pub fn extract(
    image: &Image,
    from: &Inode,
    target: &Path,
    options: &Options,
    complain: &(dyn Fn(&Path, &Error) + Sync),
) -> Result<Summary> {
    let job = Extraction {
        image,
        options,
        complain,
        target: Target::create(target)?,
        names: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        foreign_xattrs: AtomicBool::new(false),
    };
    let workers = options.workers.or_else(|| std::thread::available_parallelism().ok());
    let (sender, receiver) = bounded(QUEUE);
    let walked = std::thread::scope(|scope| {
        for _ in 0..workers.map_or(1, NonZeroUsize::get) {
            let receiver = receiver.clone();
            scope.spawn(|| job.serve(receiver));
        }
        drop(receiver);
        job.walk(from, sender)
    })?;
    job.finish(&walked);
    if options.cancel.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    Ok(Summary {
        names: job.names.into_inner(),
        bytes: job.bytes.into_inner(),
        failures: job.failures.into_inner(),
    })
}

struct Extraction<'a> {
    image: &'a Image,
    options: &'a Options,
    complain: &'a (dyn Fn(&Path, &Error) + Sync),
    target: Target,
    names: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    foreign_xattrs: AtomicBool,
}

/// A file to make.
struct Work {
    dir: Arc<OwnedFd>,
    path: PathBuf,
    inode: Inode,
}

/// What waits until everything else is there.
#[derive(Default)]
struct Walked {
    /// The further names of an inode, and its first one.
    links: Vec<(PathBuf, PathBuf)>,
    /// Directories, parents first.
    dirs: Vec<(PathBuf, Inode)>,
}

/// What the walking thread knows.
struct Walk {
    works: Sender<Work>,
    /// Directories that were reached.
    seen: HashSet<Nid>,
    /// The first names of inodes that have several.
    first_names: HashMap<Nid, PathBuf>,
    walked: Walked,
}

impl Walk {
    fn send(&self, dir: &Arc<OwnedFd>, path: PathBuf, inode: Inode) {
        // The receiving end lives as long as the workers do.
        let _ = self.works.send(Work { dir: Arc::clone(dir), path, inode });
    }
}

impl Extraction<'_> {
    fn walk(&self, from: &Inode, works: Sender<Work>) -> Result<Walked> {
        let mut walk = Walk {
            works,
            seen: HashSet::from([from.nid()]),
            first_names: HashMap::new(),
            walked: Walked::default(),
        };
        if !from.is_dir() {
            let dir = Arc::new(self.target.open_dir(Path::new(""))?);
            walk.send(&dir, PathBuf::from(from.nid().slot().to_string()), from.clone());
            return Ok(walk.walked);
        }
        walk.walked.dirs.push((PathBuf::new(), from.clone()));
        let mut next = 0;
        while let Some((path, dir)) = walk.walked.dirs.get(next).cloned() {
            next += 1;
            if self.options.cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let listed = self.list(&path, &dir, &mut walk);
            self.report(&path, listed);
        }
        Ok(walk.walked)
    }

    /// Makes the directories in `dir`, and hands its files to the workers.
    fn list(&self, path: &Path, dir: &Inode, walk: &mut Walk) -> Result<()> {
        let fd = Arc::new(self.target.open_dir(path)?);
        for entry in self.image.read_dir(dir)? {
            match entry {
                Ok(entry) if entry.name == b"." || entry.name == b".." => {}
                Ok(entry) => {
                    let path = path.join(OsStr::from_bytes(&entry.name));
                    let made = self.entry(&fd, &path, dir, &entry, walk);
                    self.report(&path, made);
                }
                Err(error) => self.report(path, Err(error)),
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        fd: &Arc<OwnedFd>,
        path: &Path,
        dir: &Inode,
        entry: &DirEntry,
        walk: &mut Walk,
    ) -> Result<()> {
        if entry.name.contains(&b'/') || entry.name.contains(&0) {
            return Err(Corruption::new(Structure::Directory, Fault::Name).of(dir.nid()).into());
        }
        let inode = self.image.inode(entry.nid)?;
        if inode.is_dir() {
            if !walk.seen.insert(inode.nid()) {
                let fault = Fault::DirectoryLoop;
                return Err(Corruption::new(Structure::Directory, fault).of(inode.nid()).into());
            }
            self.target.make_dir(fd, OsStr::from_bytes(&entry.name), path)?;
            self.names.fetch_add(1, Ordering::Relaxed);
            walk.walked.dirs.push((path.to_owned(), inode));
            return Ok(());
        }
        if inode.on_disk().nlink > 1 {
            if let Some(first) = walk.first_names.get(&inode.nid()) {
                walk.walked.links.push((path.to_owned(), first.clone()));
                return Ok(());
            }
            walk.first_names.insert(inode.nid(), path.to_owned());
        }
        walk.send(fd, path.to_owned(), inode);
        Ok(())
    }

    fn serve(&self, works: Receiver<Work>) {
        let mut buffer = Vec::new();
        for work in works {
            if self.options.cancel.load(Ordering::Relaxed) {
                continue;
            }
            let made = self.make(&work, &mut buffer);
            if made.is_ok() {
                self.names.fetch_add(1, Ordering::Relaxed);
            }
            self.report(&work.path, made);
        }
    }

    fn make(&self, work: &Work, buffer: &mut Vec<u8>) -> Result<()> {
        let Work { dir, path, inode } = work;
        let name = path.file_name().unwrap_or_default();
        let failed = |e| Error::io("create", path, e);
        if self.options.overwrite {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(Error::io("replace", path, error)),
            }
        }
        match inode.file_type() {
            FileType::Regular => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
                let written = content::write(self.image, inode, &file, path, buffer)?;
                self.bytes.fetch_add(written, Ordering::Relaxed);
                return self.set_metadata(file.as_fd(), inode, path);
            }
            FileType::Symlink => {
                let target = self.image.read_link(inode)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), dir, name).map_err(failed)?;
            }
            FileType::Directory => return Ok(()),
            special => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(dir, name, kind(special), mode, device(inode)).map_err(failed)?;
            }
        }
        self.set_metadata_at(dir, name, inode, path)
    }

    fn finish(&self, walked: &Walked) {
        for (path, first) in &walked.links {
            let linked = self.target.link(first, path, self.options.overwrite);
            if linked.is_ok() {
                self.names.fetch_add(1, Ordering::Relaxed);
            }
            self.report(path, linked);
        }
        for (path, inode) in walked.dirs.iter().rev() {
            let set = self.target.open_dir(path).and_then(|fd| self.set_metadata(fd.as_fd(), inode, path));
            self.report(path, set);
        }
    }

    fn report(&self, path: &Path, result: Result<()>) {
        if let Err(error) = result {
            self.failures.fetch_add(1, Ordering::Relaxed);
            (self.complain)(path, &error);
        }
    }
}

const fn kind(file_type: FileType) -> rustix::fs::FileType {
    match file_type {
        FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
        FileType::Socket => rustix::fs::FileType::Socket,
        _ => rustix::fs::FileType::Fifo,
    }
}

fn device(inode: &Inode) -> u64 {
    match inode.on_disk().place {
        Place::Device(Rdev { major, minor }) => rustix::fs::makedev(major, minor),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
