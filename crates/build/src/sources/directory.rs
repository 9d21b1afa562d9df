//! Reads a source directory into a [`Tree`].
//!
//! Workers list directories in parallel ([`lister`]), and one thread numbers the files ([`number`]). A directory is open only while a worker
//! lists it.

mod lister;
mod number;
mod unmapped;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use ferofs_threads::{Workers, with_workers};

use crate::error::{Result, Warning};
use crate::host::preload;
use crate::options::Options;
use crate::output::OwnFile;
use crate::paths::join;
use crate::sources::directory::lister::{Context, ListedBody, Lister, Listing};
use crate::sources::directory::number::Numbering;
use crate::sources::directory::unmapped::UnmappedIds;
use crate::tree::Tree;

/// The least threads that list directories: on a disk, each of them waits for one inode or directory at a time.
const LISTERS: usize = 8;

/// A directory to list.
struct Job {
    /// The number of its listing.
    number: u32,
    path: Vec<u8>,
}

/// The result of a worker for a directory.
struct Listed {
    job: Job,
    found: Result<Listing>,
    warnings: Vec<Warning>,
}

/// Reads the tree of the directory `source`, which is open as `root`. It leaves out the files in `avoid`, by device and inode number.
pub(crate) fn walk(
    options: &Options,
    source: &Path,
    root: &OwnedFd,
    avoid: &[OwnFile],
    warnings: &mut Vec<Warning>,
) -> Result<Tree> {
    preload::check()?;
    let proc = Path::new("/proc/self/fd").is_dir();
    let context = Context {
        options,
        source,
        root: root.as_fd(),
        avoid,
        proc,
        unmapped: UnmappedIds::of_this_process(options),
        size_less: Default::default(),
    };
    let top = Lister::new(&context).root()?;
    let mut numbering = Numbering::new(options, source, &top)?;
    let workers = options.run.worker_count().max(LISTERS);
    with_workers(
        workers,
        || Lister::new(&context),
        serve,
        |workers| collect(options, &workers, &mut numbering, warnings),
    )?;
    Ok(numbering.finish())
}

/// Has every directory listed and numbered.
fn collect(
    options: &Options,
    workers: &Workers<Job, Listed>,
    numbering: &mut Numbering<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut pending = 1usize;
    workers.send(Job { number: 0, path: Vec::new() });
    while pending > 0 {
        options.run.check_cancelled()?;
        let listed = workers.recv()?;
        pending -= 1;
        warnings.extend(listed.warnings);
        let Job { number, path } = listed.job;
        let mut listing = match listed.found {
            Ok(listing) => listing,
            Err(error) if options.source.skip_unreadable && error.is_unreadable() && number != 0 => {
                warnings.push(Warning::Skipped(error));
                Listing::default()
            }
            Err(error) => return Err(error),
        };
        for file in &mut listing.files {
            if let ListedBody::Directory(number) = &mut file.body {
                *number = numbering.expect_listing()?;
                pending += 1;
                workers.send(Job { number: *number, path: join(&path, listing.texts.get(file.name)) });
            }
        }
        options.run.progress.found.fetch_add(listing.files.len() as u64, Ordering::Relaxed);
        numbering.take(number, listing)?;
    }
    Ok(())
}

fn serve(lister: &mut Lister<'_>, job: Job) -> Listed {
    let found = lister.list(&job.path);
    let warnings = std::mem::take(&mut lister.warnings);
    Listed { job, found, warnings }
}
