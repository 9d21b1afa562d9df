//! The state that all threads of a check share.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use ferofs_read::Image;
use ferofs_read::error::{Corruption, Result};
use ferofs_read::walk::WalkEntry;
use parking_lot::{Mutex, MutexGuard};

use super::paths::{Name, Paths};
use super::report::Findings;
use super::used_space::UsedSpace;

/// The names of the inodes that no directory contains.
pub(super) const PACKED: &str = "(packed inode)";
pub(super) const METABOX: &str = "(metabox)";

/// The state that all threads of a check share.
pub(super) struct Checker<'a> {
    pub(super) image: &'a Image,
    /// Whether to decode content.
    pub(super) content: bool,
    /// The size of the packed inode's content, if that can be read.
    pub(super) packed_size: Option<u64>,
    pub(super) paths: Paths,
    pub(super) findings: Findings,
    used: Mutex<UsedSpace>,
    pub(super) content_bytes: AtomicU64,
}

impl<'a> Checker<'a> {
    pub(super) fn new(image: &'a Image, content: bool) -> Self {
        let packed = image.superblock().packed.and_then(|nid| image.inode(nid).ok());
        Self {
            image,
            content,
            packed_size: packed.map(|inode| inode.size()),
            paths: Paths::new(),
            findings: Findings::default(),
            used: Mutex::new(UsedSpace::new(image)),
            content_bytes: AtomicU64::new(0),
        }
    }

    /// The value of `result`; an error becomes a finding about `name`.
    pub(super) fn value_of<T>(&self, name: &Name, result: Result<T>) -> Option<T> {
        self.findings.value_of(|| self.paths.path(name), None, result)
    }

    /// Adds a finding about `name`.
    pub(super) fn report(&self, name: &Name, corruption: Corruption) {
        self.findings.add(|| self.paths.path(name), corruption, None);
    }

    /// All names of the tree, for a second walk. The first one reported the errors; only a limit
    /// ends the check.
    pub(super) fn names(&self) -> impl Iterator<Item = WalkEntry> {
        ferofs_read::walk::Walk::new(self.image).filter_map(|file| self.unless_ended(file))
    }

    /// The value of `result`. An error that [ends all work](ferofs_read::Error::ends_all) ends the
    /// check, others are ignored.
    pub(super) fn unless_ended<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Err(error) if error.ends_all() => {
                self.findings.value_of(PathBuf::new, None, Err(error))
            }
            result => result.ok(),
        }
    }

    /// Adds a finding about the image as a whole.
    pub(super) fn report_image(&self, corruption: Corruption) {
        self.findings.add(|| Path::new("").to_owned(), corruption, None);
    }

    /// The bytes in use so far.
    pub(super) fn used_space(&self) -> MutexGuard<'_, UsedSpace> {
        self.used.lock()
    }
}
