//! Counts which ranges of which files are read.

use std::collections::HashMap;

use ferofs_format::{FileOffset, Nid};
use parking_lot::{Mutex, MutexGuard};

use ferofs_format::units::to_u64;

/// log2 of the bytes of a range.
pub(crate) const RANGE_BITS: u32 = 16;
/// Ranges that are counted, 64 GiB of content. Reads of further ranges are not counted, to bound
/// the memory.
const MAX_RANGES: usize = 1 << 20;

/// Counts reads.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    reads: Mutex<HashMap<(Nid, u64), u64>>,
}

impl Recorder {
    /// Counts a read of `len` bytes.
    pub(crate) fn note(&self, nid: Nid, offset: FileOffset, len: usize) {
        let first = offset.get() >> RANGE_BITS;
        let last = offset.get().saturating_add(to_u64(len).saturating_sub(1)) >> RANGE_BITS;
        let mut reads = self.lock();
        for range in first..=last {
            if let Some(count) = reads.get_mut(&(nid, range)) {
                *count = count.saturating_add(1);
            } else if reads.len() < MAX_RANGES {
                reads.insert((nid, range), 1);
            }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<(Nid, u64), u64>> {
        self.reads.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_by_range() {
        let recorder = Recorder::default();
        let nid = Nid::new(5);
        recorder.note(nid, FileOffset::new(65_530), 10);
        recorder.note(nid, FileOffset::new(65_536), 10);
        let reads = recorder.lock();
        assert_eq!((reads[&(nid, 0)], reads[&(nid, 1)]), (1, 2));
    }
}
