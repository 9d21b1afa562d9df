//! Check: everything that an image says, held against the format's rules. Source: FORMAT.md 8.
//!
//! One thread walks the tree from the root and looks at directories and links ([`walk`]); workers look at each inode's
//! attributes, map and content ([`content`]), and note who takes which bytes ([`claims`]). When some are taken twice,
//! a second look says by whom ([`owners`]). Nothing is repaired.

mod claims;
mod content;
mod found;
mod linux;
mod owners;
mod paths;
mod queue;
mod rules;
mod system;
mod walk;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use claims::Claims;
use content::{BUFFER_SIZE, Work};
use ferofs_read::Image;
use ferofs_read::error::{Corruption, Result};
use ferofs_read::walk::Walked;
use ferofs_threads::start;
use found::Found;
use paths::{Name, Paths};
use queue::{Closing, Queue};
use walk::Walk;

pub use rules::rule;

/// Inodes that may wait for a worker.
const QUEUE: usize = 1024;

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that look at inodes and decode content; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// Decode all content, and not only look at its map. Default: yes.
    pub content: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: None, content: true }
    }
}

/// A rule that the image breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file concerned; empty for the root, or for the image as a whole.
    pub path: PathBuf,
    /// The rule, and where.
    pub corruption: Corruption,
    /// The bytes of the file that are concerned, where it is not the file as a whole.
    pub content: Option<Range<u64>>,
    /// Another file that is concerned: the one that takes the same bytes.
    pub also: Option<PathBuf>,
}

impl Finding {
    /// Orders the findings of a file.
    fn key(&self) -> (Option<u64>, Option<u64>, String) {
        let start = self.content.as_ref().map(|content| content.start);
        (start, self.corruption.pos.map(ferofs_format::BytePos::get), self.corruption.to_string())
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Broken rules, sorted by path; at most a few of each file, and some megabytes of them.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub unlisted: u64,
    /// Inodes that were looked at.
    pub inodes: u64,
    /// Bytes of content that were decoded.
    pub content_bytes: u64,
    /// Blocks of the primary device that nothing in the tree refers to: no damage, but room that patches or alignment
    /// left behind.
    pub unreferenced_blocks: u64,
}

impl Report {
    /// Whether no rule is broken.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0
    }
}

/// Checks `image`.
///
/// # Errors
/// [`crate::Error::Io`] when the image cannot be read, [`ferofs_read::Error::Limit`] and [`crate::Error::Interrupted`] when
/// the check was stopped; what is wrong with the image is in the report.
pub fn check(image: &Image, options: &Options) -> crate::Result<Report> {
    let (report, result) = check_until_stopped(image, options);
    result.map(|()| report)
}

/// Checks `image`, as [`check`] does. When an error stops the check, the report has what was found until then: it then
/// lacks unreferenced blocks, link counts, and bytes that are taken twice, because only a finished walk tells these.
pub fn check_until_stopped(image: &Image, options: &Options) -> (Report, crate::Result<()>) {
    let checker = Checker::new(image, options.content);
    let workers = options.workers.or_else(|| std::thread::available_parallelism().ok());
    let works: Queue<Work> = Queue::new(QUEUE);
    checker.superblock();
    let walked = std::thread::scope(|scope| {
        let serve = || {
            let mut buffer = vec![0; BUFFER_SIZE];
            works.serve(|work| checker.examine(work, &works, &mut buffer));
        };
        start(scope, workers.map_or(1, NonZeroUsize::get), || serve)?;
        let closing = Closing(&works);
        Ok::<_, crate::Error>(Walk::new(&checker, closing.0).run())
    });
    let inodes = match walked {
        Ok(inodes) => inodes,
        Err(error) => return (Report::default(), Err(error)),
    };
    let mut unreferenced_blocks = 0;
    if !checker.found.has_failed() {
        let conflicts = checker.claims().conflicts();
        if !conflicts.is_empty() {
            checker.name_owners(&conflicts);
        }
        unreferenced_blocks = checker.claims().unreferenced(image.superblock().blocks);
    }
    let content_bytes = checker.content_bytes.into_inner();
    let (report, result) =
        checker.found.report(Report { inodes, content_bytes, unreferenced_blocks, ..Report::default() });
    (report, result.map_err(Into::into))
}

/// What the threads of a check share.
struct Checker<'a> {
    image: &'a Image,
    content: bool,
    /// The size of the packed inode's content, if that can be read.
    packed_size: Option<u64>,
    paths: Paths,
    found: Found,
    claims: Mutex<Claims>,
    content_bytes: AtomicU64,
}

impl<'a> Checker<'a> {
    fn new(image: &'a Image, content: bool) -> Self {
        let packed = image.superblock().packed.and_then(|nid| image.inode(nid).ok());
        Self {
            image,
            content,
            packed_size: packed.map(|inode| inode.size()),
            paths: Paths::new(),
            found: Found::default(),
            claims: Mutex::new(Claims::new(image)),
            content_bytes: AtomicU64::new(0),
        }
    }

    fn note<T>(&self, name: &Name, result: Result<T>) -> Option<T> {
        self.found.note(|| self.paths.path(name), None, result)
    }

    fn find(&self, name: &Name, corruption: Corruption) {
        self.found.find(|| self.paths.path(name), corruption, None);
    }

    /// All names, for a second look. What is damaged was told by the first one; a limit ends the check.
    fn names(&self) -> impl Iterator<Item = Walked> {
        ferofs_read::walk::Walk::new(self.image).filter_map(|file| self.unless_ended(file))
    }

    /// The result, if there is one. An error that ends all work ends the check.
    fn unless_ended<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Err(error) if error.ends_all() => self.found.note(PathBuf::new, None, Err(error)),
            result => result.ok(),
        }
    }

    /// Takes down what is wrong with the image as a whole.
    fn find_of_image(&self, corruption: Corruption) {
        self.found.find(|| Path::new("").to_owned(), corruption, None);
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        // Marks are only ever added.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
