//! Extracts an image's tree to a directory.
//!
//! One thread walks the image (`walk`), creates directories, and gives files to the workers in an
//! order in which nothing is decoded twice (`schedule`). Workers create files in batches, and large
//! files in pieces (`worker`). Hard links come after all files, and the attributes of directories
//! last, as creating a file changes its directory's time. All files are opened below the target and
//! never through a symbolic link, whatever names the image has (`target`).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::bounded;
use parking_lot::Mutex;

use super::extraction::{Extraction, Unsupported};
use super::metadata;
use super::options::{OnError, Options, Summary};
use super::schedule::{Schedule, TargetFile};
use super::target::{Address, Target};
use super::walk::{File, Name, Step, Walk};
use super::worker::Worker;
use crate::error::{Error, Result};
use ferofs_read::walk::DirId;
use ferofs_read::{Image, Inode, Nid, READER_MEMORY};
use ferofs_threads::{catch, fitting_workers, pass_on, start};

/// Jobs that wait for a worker at most. The walk waits when the queue is full, so that memory does
/// not grow with the image.
const QUEUE: usize = 64;

/// Extracts `from` to `target`. If `from` is a directory, `target` is one, and is created if
/// needed; otherwise it is the name of the new file.
///
/// A file or an attribute that fails is passed to `on_error`, and the others are still extracted. A
/// file whose content cannot be read keeps the bytes before the error.
///
/// # Errors
/// [`Error::Io`] for the target itself or when no thread can be started, [`Error::Interrupted`],
/// and [`Error::Limit`].
pub fn extract(
    image: &Image,
    from: &Inode,
    target: impl AsRef<Path>,
    options: &Options,
    on_error: OnError<'_>,
) -> Result<Summary> {
    let target = target.as_ref();
    let (dir, file) = match target.file_name() {
        Some(name) if !from.is_dir() => (target.parent().unwrap_or(Path::new("")), Some(name)),
        _ => (target, None),
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let image = &image.cancelled_by(&options.cancel);
    let mut extraction = Extraction {
        image,
        options,
        on_error,
        target: Target::create(dir)?,
        umask: metadata::umask(),
        stopped: OnceLock::new(),
        lost_xattrs: Mutex::default(),
        made: Mutex::default(),
        panicked: AtomicBool::new(false),
    };
    match file {
        Some(name) => {
            let file = File { name: name.to_owned(), inode: from.clone(), first: None };
            extraction.with_workers(|schedule| {
                extraction.schedule_file(schedule, TargetFile { dir: Path::new("").into(), file })
            })?;
        }
        None => extraction.run(from)?,
    }
    extraction.report_lost_xattrs();
    options.cancel.check()?;
    if let Some(error) = extraction.stopped.take() {
        return Err(error);
    }
    Ok(options.progress.summary())
}

/// The work that follows when all files are written.
#[derive(Default)]
struct Deferred {
    /// Hard links.
    links: Vec<Link>,
    /// Created directories, parents first: their attributes are set last.
    dirs: Vec<DirId>,
}

/// Another name of an inode.
struct Link {
    name: Name,
    nid: Nid,
    /// The inode's first name.
    first: Name,
}

impl Extraction<'_> {
    fn run(&self, from: &Inode) -> Result<()> {
        let mut walk = Walk::new(self.image, from, &self.options.select);
        let mut deferred = Deferred::default();
        self.with_workers(|schedule| self.walk(&mut walk, schedule, &mut deferred))?;
        self.finish(&walk, &deferred);
        Ok(())
    }

    /// Runs workers for the jobs that `feed` gives to the schedule. A worker's panic continues in
    /// this thread.
    ///
    /// # Errors
    /// [`Error::Io`] when no thread can be started.
    fn with_workers(&self, feed: impl FnOnce(&mut Schedule<'_>)) -> Result<()> {
        let workers = fitting_workers(self.options.workers, READER_MEMORY);
        let (sender, receiver) = bounded(QUEUE);
        let serve = |receiver| {
            let served = catch(|| Worker::new(self).serve(receiver));
            self.panicked.fetch_or(served.is_err(), Ordering::Relaxed);
            served
        };
        std::thread::scope(|scope| {
            let threads = start(scope, workers, || {
                let (serve, receiver) = (&serve, receiver.clone());
                move || serve(receiver)
            })
            .map_err(Error::of_threads)?;
            drop(receiver);
            let mut schedule = Schedule::new(self.image, sender);
            feed(&mut schedule);
            schedule.finish();
            threads.into_iter().for_each(|thread| pass_on(pass_on(thread.join())));
            Ok(())
        })
    }

    fn walk(&self, walk: &mut Walk<'_>, schedule: &mut Schedule<'_>, deferred: &mut Deferred) {
        // The parent of the last directory, kept open: the next directory often has the same one.
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
                        walk.skip_directory();
                    } else {
                        deferred.dirs.push(dir);
                    }
                }
                Step::Files(dir, files) => {
                    for file in files {
                        match file.first {
                            Some(first) => {
                                let (name, nid) = (Name { dir, name: file.name }, file.inode.nid());
                                deferred.links.push(Link { name, nid, first });
                            }
                            None => self.schedule_file(
                                schedule,
                                TargetFile { dir: Arc::clone(&here), file },
                            ),
                        }
                    }
                }
                Step::Failed(path, error) => self.report(&path, Err(error)),
            }
        }
    }

    fn schedule_file(&self, schedule: &mut Schedule<'_>, item: TargetFile) {
        if let Some(large) = schedule.add(item) {
            Worker::new(self).complete(&large);
        }
        if let Some(error) = schedule.stopped.take() {
            self.report(Path::new(""), Err(error));
        }
    }

    fn make_dir(&self, path: &Path, last: &mut Option<(PathBuf, OwnedFd)>) -> Result<()> {
        self.charge_name(path)?;
        self.options.progress.directories.add(1);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        if last.as_ref().is_none_or(|(path, _)| path != parent) {
            *last = Some((parent.to_owned(), self.target.open_dir(parent)?));
        }
        let Some((_, parent)) = last else { return Ok(()) };
        self.target.make_dir(parent, name, path)?;
        self.options.progress.names.add(1);
        Ok(())
    }

    fn finish(&self, walk: &Walk<'_>, deferred: &Deferred) {
        self.link_or_copy(walk, &deferred.links);
        for dir in deferred.dirs.iter().rev() {
            if self.is_stopped() {
                return;
            }
            let path = walk.path(*dir);
            match self.target.open_dir(&path) {
                Ok(fd) => {
                    let is_start = path.as_os_str().is_empty();
                    let shown = if is_start { Path::new("/") } else { &path };
                    self.set_metadata(&Address::Open(fd.as_fd()), walk.inode(*dir), shown);
                }
                Err(error) => self.report(&path, Err(error)),
            }
        }
    }

    /// Makes hard links. A file that the target refuses to link is extracted again, and this is
    /// reported once.
    fn link_or_copy(&self, walk: &Walk<'_>, links: &[Link]) {
        let mut worker = Worker::new(self);
        // Further names of an inode are linked to its last copy, as its first file may have the
        // most links that are allowed.
        let mut copies: HashMap<Nid, &Name> = HashMap::new();
        let mut copied: Option<Unsupported> = None;
        for Link { name, nid, first } in links {
            if self.is_stopped() {
                break;
            }
            let (path, first) =
                (walk.path_of(name), walk.path_of(copies.get(nid).unwrap_or(&first)));
            let linked = self.charge_name(&path).and_then(|()| {
                self.target.link(&first, &path, self.options.existing, |file| {
                    self.is_extracted(*nid, file)
                })
            });
            match linked {
                Ok(Err(refusal)) => {
                    let made = self.image.inode(*nid).map_err(Error::from).and_then(|inode| {
                        let dir = path.parent().unwrap_or(Path::new("")).into();
                        worker.make(&TargetFile {
                            dir,
                            file: File { name: name.name.clone(), inode, first: None },
                        })
                    });
                    if made.is_ok() {
                        copies.insert(*nid, name);
                        let copied = copied.get_or_insert_with(|| Unsupported::new(&path, refusal));
                        copied.files = copied.files.saturating_add(1);
                    }
                    self.count_file(&path, made);
                }
                linked => self.count(&path, linked.map(|linked| linked.unwrap_or_default())),
            }
        }
        if let Some(Unsupported { path, files, error }) = copied {
            let error = Error::LinksCopied { path: path.clone(), files, source: error.into() };
            (self.on_error)(&path, &error);
        }
    }
}

#[cfg(test)]
mod tests;
