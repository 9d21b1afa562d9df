//! Ranges of an image that nothing uses. An image that is built like an earlier one has them: where
//! data of the earlier image was that the new one does not have.

use std::cmp::Reverse;

use ferofs_format::BlockSize;

/// Free ranges. Content goes there only while more bytes are free than may stay free: content at
/// the end of the image changes fewer chunks of it.
#[derive(Debug, Default)]
pub(crate) struct FreeSpace {
    /// Start and end in bytes, in any order.
    ranges: Vec<(u64, u64)>,
    /// Bytes that may stay free.
    allowed: u64,
    /// Content goes only into ranges that are at most so many times longer, so that long ranges are
    /// there for long content that comes later.
    times: u64,
}

impl FreeSpace {
    pub(crate) const fn new(ranges: Vec<(u64, u64)>, allowed: u64, times: u64) -> Self {
        Self { ranges, allowed, times }
    }

    /// Bytes of all ranges.
    pub(crate) fn len(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether content shall go there.
    fn is_wanted(&self) -> bool {
        self.len() > self.allowed
    }

    /// Takes a place for `len` bytes that are at `from` now: at the same offset in a block, in the
    /// longest allowed range, so that few chunks of the image change.
    pub(super) fn take(&mut self, len: u64, from: u64, block: BlockSize) -> Option<u64> {
        if len == 0 || !self.is_wanted() {
            return None;
        }
        let place = |start: u64| start + (from.wrapping_sub(start) & block.mask());
        let most = len.saturating_mul(self.times);
        let fits = |(start, end): (u64, u64)| place(start) + len <= end && end - start <= most;
        let all = self.ranges.iter().copied().enumerate().filter(|(_, range)| fits(*range));
        let (number, (start, end)) =
            all.max_by_key(|(_, (start, end))| (end - start, Reverse(*start)))?;
        self.ranges.swap_remove(number);
        let at = place(start);
        let around = [(start, at), (at + len, end)];
        self.ranges.extend(around.into_iter().filter(|(start, end)| start < end));
        Some(at)
    }

    /// The start and the length of the longest range, if content shall go there.
    pub(super) fn longest_free(&self) -> Option<(u64, u64)> {
        let ranges = self.ranges.iter().copied().filter(|_| self.is_wanted());
        let (start, end) = ranges.max_by_key(|(start, end)| (end - start, Reverse(*start)))?;
        Some((start, end - start))
    }

    /// Takes the first `len` bytes of the range that starts at `at`.
    pub(super) fn take_start(&mut self, at: u64, len: u64) {
        for range in self.ranges.iter_mut().filter(|range| range.0 == at) {
            range.0 += len;
        }
        self.ranges.retain(|(start, end)| start < end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockSize = BlockSize::DEFAULT;

    #[test]
    fn while_too_much_is_free_content_goes_to_the_longest_range() {
        let mut free = FreeSpace::new(vec![(4096, 12288), (40960, 61440)], 8192, 4);
        assert_eq!(free.longest_free(), Some((40960, 20480)));
        assert_eq!(free.take(1024, 8192, BLOCK), None, "too little for both");
        assert_eq!(free.take(12288, 8192, BLOCK), Some(40960));
        // At the same offset in a block; the rest before it stays free.
        assert_eq!(free.take(4000, 100_000 * 4096 + 96, BLOCK), Some(4096 + 96));
        assert_eq!(free.len(), 96 + 4096 + 8192);
        free.take_start(53248, 4096);
        assert_eq!(free.len(), 96 + 4096 + 4096);
        free.take_start(57344, 4096);
        assert_eq!((free.take(96, 4096, BLOCK), free.longest_free()), (None, None));
    }
}
