//! Results of look-ups that took many steps, remembered for later look-ups nearby.
//!
//! An extent's head may be tens of thousands of records back, which are followed one by one;
//! records without addresses need the sum of all lengths before them. Without this cache, each
//! small request would repeat those steps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_format::{BytePos, FileOffset, Nid};
use parking_lot::{Mutex, MutexGuard};

use super::extent::Extent;

/// Steps of a look-up from which on its result is remembered. Sound indexes hardly ever need as
/// many.
pub(crate) const MANY_STEPS: u32 = 64;
/// Look-ups that are remembered, more than files are read at the same time. Then the oldest one is
/// forgotten.
const KEPT: usize = 64;

/// Slow look-ups of one image.
#[derive(Debug, Default)]
pub(crate) struct SlowLookups {
    /// Whether any are remembered: most images have none, and then need no lock.
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
        extents
            .iter()
            .find(|(of, extent)| *of == nid && extent.contains(offset))
            .map(|(_, extent)| *extent)
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
        change(&mut self.kept.lock());
        self.any.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> Option<MutexGuard<'_, Kept>> {
        self.any.load(Ordering::Relaxed).then(|| self.kept.lock())
    }
}

fn push<T>(kept: &mut VecDeque<T>, item: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(item);
}
