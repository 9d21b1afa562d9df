//! The mapped ranges of the tables of a build.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, madvise};

/// The mapped ranges of all tables of a build, by address: their lengths in bytes.
#[derive(Debug, Default)]
pub(super) struct Mappings(Mutex<BTreeMap<usize, usize>>);

impl Mappings {
    /// Removes all mapped pages from the memory of the process. Their bytes stay in the files, and come back where they are used.
    pub(super) fn remove_pages(&self) {
        for (address, len) in self.lock().iter() {
            let start = std::ptr::with_exposed_provenance_mut(*address);
            // SAFETY: while the lock is held, each range is mapped, and nothing else is: `Mapped` changes its range only under the lock. The
            // mapping is shared with a file, so that its bytes are those of the file before and after.
            let _ = unsafe { madvise(start, *len, Advice::LinuxDontNeed) };
        }
    }

    /// Locks the ranges: a mapping changes only while its range is changed here.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
