//! Pinned content: ranges of files that were decoded once and stay in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_format::{FileOffset, Nid};
use parking_lot::Mutex;

/// Decoded ranges, by file and place.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges {
    files: HashMap<Nid, Vec<Range>>,
}

/// The ranges that are pinned now.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Whether there are any: most images have none, and their requests take no lock.
    any: AtomicBool,
    ranges: Mutex<Arc<PinnedRanges>>,
}

impl Pins {
    /// The pinned ranges, if there are any.
    pub(crate) fn current(&self) -> Option<Arc<PinnedRanges>> {
        self.any.load(Ordering::Acquire).then(|| Arc::clone(&self.ranges.lock()))
    }

    /// Replaces the pinned ranges; returns those before.
    pub(crate) fn replace(&self, ranges: PinnedRanges) -> Arc<PinnedRanges> {
        let any = !ranges.files.is_empty();
        let before = std::mem::replace(&mut *self.ranges.lock(), Arc::new(ranges));
        self.any.store(any, Ordering::Release);
        before
    }
}

#[derive(Debug)]
struct Range {
    start: u64,
    bytes: Box<[u8]>,
}

impl PinnedRanges {
    /// The pinned bytes from `offset` on, as far as they go.
    pub(crate) fn get(&self, nid: Nid, offset: FileOffset) -> Option<&[u8]> {
        let ranges = self.files.get(&nid)?;
        let after = ranges.partition_point(|range| range.start <= offset.get());
        let range = ranges.get(after.checked_sub(1)?)?;
        let skip = usize::try_from(offset.get().checked_sub(range.start)?).ok()?;
        range.bytes.get(skip..).filter(|bytes| !bytes.is_empty())
    }

    /// Adds the range of `nid` that starts at `start`.
    pub(crate) fn insert(&mut self, nid: Nid, start: u64, bytes: Box<[u8]>) {
        let ranges = self.files.entry(nid).or_default();
        let after = ranges.partition_point(|range| range.start <= start);
        ranges.insert(after, Range { start, bytes });
    }

    /// Bytes of all ranges.
    pub(crate) fn len(&self) -> usize {
        self.files.values().flatten().map(|range| range.bytes.len()).sum()
    }
}
