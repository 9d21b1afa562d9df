//! Pinned content: ranges of files that were decoded once and stay in memory.

use std::collections::HashMap;

use ferofs_format::{FileOffset, Nid};

/// Decoded ranges, by file and place.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges {
    files: HashMap<Nid, Vec<Range>>,
}

#[derive(Debug)]
struct Range {
    start: u64,
    bytes: Box<[u8]>,
}

impl PinnedRanges {
    /// The pinned bytes from `offset` on, as far as they go.
    pub(crate) fn get(&self, nid: Nid, offset: FileOffset) -> Option<&[u8]> {
        if self.files.is_empty() {
            return None;
        }
        let ranges = self.files.get(&nid)?;
        let after = ranges.partition_point(|range| range.start <= offset.get());
        let range = ranges.get(after.checked_sub(1)?)?;
        let skip = usize::try_from(offset.get() - range.start).ok()?;
        range.bytes.get(skip..).filter(|rest| !rest.is_empty())
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
