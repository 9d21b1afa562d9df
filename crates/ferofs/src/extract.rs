//! Extract: an image's tree, made anew below a directory.
//!
//! One thread walks the image ([`walk`]), makes directories, and hands out the rest in an order that decodes nothing
//! twice ([`schedule`]); workers make files ([`make`]), many at a time, and the pieces of large ones. Further names
//! of a file, and then the attributes of directories, come last, as writing into a directory changes its time.
//! Everything is opened beneath the target, through no symbolic link, whatever the image's names say.

mod beneath;
mod content;
mod inventory;
mod make;
mod metadata;
mod schedule;
mod select;
pub(crate) mod tar;
mod walk;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_channel::bounded;

use crate::error::{Error, Result};
use beneath::{FileId, Target};
use ferofs_read::{Image, Inode, Nid};
use ferofs_threads::{catch, pass_on, start};
use make::Worker;
use schedule::{Item, Schedule};
use walk::{DirId, File, Name, Step, Walk};

pub use inventory::{Entry, inventory};
pub use select::Selection;
pub use tar::write_tar;

/// Jobs that may wait for a worker.
const QUEUE: usize = 64;

/// What to extract, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that decode and write; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// Which names. Default: all.
    pub select: Selection,
    /// What becomes of files that exist. Default: they stay, and are reported.
    pub existing: Existing,
    /// Keep owners. Default: as root. Without them, setuid and setgid bits and capabilities are left out, too, as they
    /// would give others the rights of who extracts.
    pub owners: bool,
    /// Keep permissions, and ACLs among the extended attributes. Default: yes.
    pub permissions: bool,
    /// Keep extended attributes. Default: yes.
    pub xattrs: bool,
    /// Told of what is done; read by another thread.
    pub progress: Arc<Progress>,
    /// Set by another thread, ends the extraction with [`Error::Interrupted`].
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            select: Selection::default(),
            existing: Existing::default(),
            owners: rustix::process::geteuid().is_root(),
            permissions: true,
            xattrs: true,
            progress: Arc::default(),
            cancel: Arc::default(),
        }
    }
}

/// What becomes of a file that stands where one is to be made. A directory always stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and is reported as a failure.
    #[default]
    Refuse,
    /// It is replaced.
    Replace,
    /// It stays if its type, size and time of modification are those of the image's, else it is replaced.
    SkipSame,
}

/// How far an extraction is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Names that were made.
    pub names: AtomicU64,
    /// Names that were there already.
    pub skipped: AtomicU64,
    /// Bytes of regular files' content, with holes.
    pub bytes: AtomicU64,
    /// Names that could not be made, or not as they should be.
    pub failures: AtomicU64,
}

/// What was extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Names that were made.
    pub names: u64,
    /// Names that were there already.
    pub skipped: u64,
    /// Bytes of regular files' content, with holes.
    pub bytes: u64,
    /// Names that could not be made, or not as they should be.
    pub failures: u64,
}

/// Told of each file that fails, with its path in the image.
pub type Complain<'a> = &'a (dyn Fn(&Path, &Error) + Sync);

/// Extracts `from` to `target`: a directory with all below it, made if need be; or a single file of that name.
///
/// `complain` is told of each file that fails; the others go on. A file whose content fails keeps what came before.
///
/// # Errors
/// [`Error::Io`] for the target itself or when the system gives no thread, [`Error::Interrupted`], [`Error::Limit`].
pub fn extract(
    image: &Image,
    from: &Inode,
    target: &Path,
    options: &Options,
    complain: Complain<'_>,
) -> Result<Summary> {
    let (dir, file) = match target.file_name() {
        Some(name) if !from.is_dir() => (target.parent().unwrap_or(Path::new("")), Some(name)),
        _ => (target, None),
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    image.budget().cancel_with(&options.cancel);
    let mut job = Extraction {
        image,
        options,
        complain,
        target: Target::create(dir)?,
        umask: metadata::umask(),
        stopped: OnceLock::new(),
        foreign_xattrs: AtomicBool::new(false),
        made: Mutex::default(),
        broken: AtomicBool::new(false),
    };
    match file {
        Some(name) => {
            let file = File { name: name.to_owned(), inode: from.clone(), first: None };
            job.with_workers(|schedule| job.hand_out(schedule, Item { dir: Path::new("").into(), file }))?;
        }
        None => job.run(from)?,
    }
    if options.cancel.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if let Some(error) = job.stopped.take() {
        return Err(error);
    }
    Ok(options.progress.summary())
}

impl Progress {
    fn summary(&self) -> Summary {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Summary {
            names: get(&self.names),
            skipped: get(&self.skipped),
            bytes: get(&self.bytes),
            failures: get(&self.failures),
        }
    }
}

/// What the threads of an extraction share.
struct Extraction<'a> {
    image: &'a Image,
    options: &'a Options,
    complain: Complain<'a>,
    target: Target,
    umask: u16,
    /// Why nothing more is to be made: a limit was reached.
    stopped: OnceLock<Error>,
    foreign_xattrs: AtomicBool,
    /// What inodes of several names became.
    made: Mutex<HashSet<(Nid, FileId)>>,
    /// A thread panicked: the others stop.
    broken: AtomicBool,
}

/// What waits until everything else is there.
#[derive(Default)]
struct Waiting {
    /// The further names of inodes.
    links: Vec<Link>,
    /// Directories that were made, parents first.
    dirs: Vec<DirId>,
}

/// A further name of an inode.
struct Link {
    name: Name,
    nid: Nid,
    /// The inode's first name.
    first: Name,
}

impl Extraction<'_> {
    /// Remembers which file an inode of several names became, so that its further names lead to no other.
    fn remember(&self, inode: &Inode, stat: &rustix::fs::Stat) {
        if inode.on_disk().nlink > 1 {
            // A thread that panicked with the lock left the set as it was.
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.insert((inode.nid(), FileId::of(stat)));
        }
    }

    /// Whether this file is what the inode became.
    fn is_made(&self, nid: Nid, file: FileId) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&(nid, file))
    }

    fn run(&self, from: &Inode) -> Result<()> {
        let mut walk = Walk::new(self.image, from, &self.options.select);
        let mut waiting = Waiting::default();
        self.with_workers(|schedule| self.walk(&mut walk, schedule, &mut waiting))?;
        self.finish(&walk, &waiting);
        Ok(())
    }

    /// Lets workers do what `feed` hands out. A panic of one goes on in this thread.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives no thread.
    fn with_workers(&self, feed: impl FnOnce(&mut Schedule<'_>)) -> Result<()> {
        let workers = self.options.workers.or_else(|| std::thread::available_parallelism().ok());
        let (sender, receiver) = bounded(QUEUE);
        let serve = |receiver| {
            let served = catch(|| Worker::new(self).serve(receiver));
            self.broken.fetch_or(served.is_err(), Ordering::Relaxed);
            served
        };
        std::thread::scope(|scope| {
            let count = workers.map_or(1, NonZeroUsize::get);
            let threads = start(scope, count, || {
                let (serve, receiver) = (&serve, receiver.clone());
                move || serve(receiver)
            })?;
            drop(receiver);
            let mut schedule = Schedule::new(self.image, sender);
            feed(&mut schedule);
            schedule.finish();
            threads.into_iter().for_each(|thread| pass_on(pass_on(thread.join())));
            Ok(())
        })
    }

    fn walk(&self, walk: &mut Walk<'_>, schedule: &mut Schedule<'_>, waiting: &mut Waiting) {
        // The directory in which the last one was made, open: the next one is often beside it.
        let mut last: Option<(PathBuf, OwnedFd)> = None;
        let mut here: Arc<Path> = Path::new("").into();
        while let Some(step) = walk.next() {
            if self.is_stopped() {
                return;
            }
            match step {
                Step::Dir(dir) => {
                    here = walk.path(dir).into();
                    if let Err(error) = self.make_dir(&here, &mut last) {
                        self.report(&here, Err(error));
                        walk.prune();
                    } else {
                        waiting.dirs.push(dir);
                    }
                }
                Step::Files(dir, files) => {
                    for file in files {
                        match file.first {
                            Some(first) => {
                                let (name, nid) = (Name { dir, name: file.name }, file.inode.nid());
                                waiting.links.push(Link { name, nid, first });
                            }
                            None => self.hand_out(schedule, Item { dir: Arc::clone(&here), file }),
                        }
                    }
                }
                Step::Failed(path, error) => self.report(&path, Err(error)),
            }
        }
    }

    fn hand_out(&self, schedule: &mut Schedule<'_>, item: Item) {
        if let Some(large) = schedule.add(item) {
            Worker::new(self).complete(&large);
        }
        if let Some(error) = schedule.stopped.take() {
            self.report(Path::new(""), Err(error));
        }
    }

    fn make_dir(&self, path: &Path, last: &mut Option<(PathBuf, OwnedFd)>) -> Result<()> {
        self.charge_name(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        if last.as_ref().is_none_or(|(path, _)| path != parent) {
            *last = Some((parent.to_owned(), self.target.open_dir(parent)?));
        }
        let Some((_, parent)) = last else { return Ok(()) };
        self.target.make_dir(parent, name, path)?;
        self.options.progress.names.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, walk: &Walk<'_>, waiting: &Waiting) {
        for Link { name, nid, first } in &waiting.links {
            if self.is_stopped() {
                return;
            }
            let (path, first) = (walk.path_of(name), walk.path_of(first));
            let linked = self.charge_name(&path).and_then(|()| {
                self.target.link(&first, &path, self.options.existing, |file| self.is_made(*nid, file))
            });
            self.count(&path, linked);
        }
        for dir in waiting.dirs.iter().rev() {
            if self.is_stopped() {
                return;
            }
            let path = walk.path(*dir);
            let set = self.target.open_dir(&path);
            let set = set.and_then(|fd| self.set_metadata(fd.as_fd(), walk.inode(*dir), &path));
            self.report(&path, set);
        }
    }

    /// Counts a name that was made, or was there, or failed.
    fn count(&self, path: &Path, made: Result<bool>) {
        let progress = &self.options.progress;
        match made {
            Ok(true) => drop(progress.names.fetch_add(1, Ordering::Relaxed)),
            Ok(false) => drop(progress.skipped.fetch_add(1, Ordering::Relaxed)),
            Err(error) => self.report(path, Err(error)),
        }
    }

    /// Whether nothing more is to be made.
    fn is_stopped(&self) -> bool {
        let broken = self.broken.load(Ordering::Relaxed);
        broken || self.options.cancel.load(Ordering::Relaxed) || self.stopped.get().is_some()
    }

    /// Counts the work of making a name whose directory's path is `dir`: about 10 us, and 0.1 us for each step down.
    fn charge_name(&self, dir: &Path) -> Result<()> {
        let steps = u64::try_from(dir.as_os_str().len() / 64).unwrap_or(u64::MAX);
        Ok(self.image.budget().charge(steps.saturating_add(100))?)
    }

    fn report(&self, path: &Path, result: Result<()>) {
        if let Err(error) = result {
            if error.ends_all() {
                // That is told once, and not for each file.
                let _ = self.stopped.set(error);
                return;
            }
            self.options.progress.failures.fetch_add(1, Ordering::Relaxed);
            (self.complain)(path, &error);
        }
    }
}

#[cfg(test)]
mod tests;
