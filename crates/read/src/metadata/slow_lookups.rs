//! Look-ups that took many steps, remembered for the next ones nearby.
//!
//! An extent's head may be tens of thousands of records back, one by one, and records without addresses are summed up from
//! the first. A file that is read in small requests would pay that for each; here it pays once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferofs_format::{BytePos, FileOffset, Nid};

use super::extent::Extent;

/// Steps from which on a look-up is remembered: sound indexes hardly ever need as many.
pub(crate) const MANY: u32 = 64;
/// Look-ups that are remembered: more than threads read files at the same time.
const KEPT: usize = 64;

/// Slow look-ups of one image.
#[derive(Debug, Default)]
pub(crate) struct SlowLookups {
    /// Whether there are any: most images have none, and need no lock.
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    extents: VecDeque<(Nid, Extent)>,
    /// Numbers of records, and where the data of those starts.
    sums: VecDeque<(Nid, u64, BytePos)>,
}

impl SlowLookups {
    /// The extent of `nid` that covers `offset`, if it is remembered.
    pub(crate) fn extent(&self, nid: Nid, offset: FileOffset) -> Option<Extent> {
        let extents = &self.lock()?.extents;
        extents.iter().find(|(of, extent)| *of == nid && extent.contains(offset)).map(|(_, extent)| *extent)
    }

    pub(crate) fn remember_extent(&self, nid: Nid, extent: Extent) {
        self.remember(|kept| push(&mut kept.extents, (nid, extent)));
    }

    /// The last record of `nid` up to `number` that is remembered, and where its data starts.
    pub(crate) fn sum(&self, nid: Nid, number: u64) -> Option<(u64, BytePos)> {
        let sums = &self.lock()?.sums;
        let before = sums.iter().filter(|(of, at, _)| *of == nid && *at <= number);
        before.max_by_key(|(_, at, _)| *at).map(|(_, at, pos)| (*at, *pos))
    }

    pub(crate) fn remember_sum(&self, nid: Nid, number: u64, pos: BytePos) {
        self.remember(|kept| push(&mut kept.sums, (nid, number, pos)));
    }

    fn remember(&self, change: impl FnOnce(&mut Kept)) {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        self.any.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> Option<MutexGuard<'_, Kept>> {
        // Each change is whole before the lock goes.
        self.any.load(Ordering::Relaxed).then(|| self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn push<T>(kept: &mut VecDeque<T>, item: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(item);
}
