//! An index of digests: 12 bytes for each block.

/// Blocks in one segment: 512 MiB of blocks of 4096 bytes. A full segment can be used while the next one is made.
pub(super) const SEGMENT: usize = 1 << 17;

/// Some blocks of one base, by their digests.
pub(super) struct Segment {
    /// The number of the base.
    pub(super) base: usize,
    /// The first 8 bytes of the digests, sorted.
    prefixes: Box<[u64]>,
    /// The numbers of the blocks in their base, in the same order.
    blocks: Box<[u32]>,
}

/// The part of a digest that is in the index. 8 bytes of two different blocks are the same so rarely that it only costs a read.
pub(super) fn prefix(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Segment {
    /// An index of pairs of a prefix and a block number. If several blocks have the same prefix, the lowest number stays.
    pub(super) fn new(base: usize, mut pairs: Vec<(u64, u32)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup_by_key(|(prefix, _)| *prefix);
        let (prefixes, blocks): (Vec<u64>, Vec<u32>) = pairs.into_iter().unzip();
        Self { base, prefixes: prefixes.into(), blocks: blocks.into() }
    }

    /// The number of a block whose digest probably starts with `prefix`.
    pub(super) fn find(&self, prefix: u64) -> Option<u64> {
        let place = self.prefixes.binary_search(&prefix).ok()?;
        self.blocks.get(place).map(|block| u64::from(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_the_start_of_their_digest() {
        let pairs: Vec<(u64, u32)> =
            (0..5000_u32).map(|n| (u64::from(n % 4000) * 7919 % 65_537, n)).collect();
        let segment = Segment::new(3, pairs);
        for n in 0..4000 {
            assert_eq!(segment.find(n * 7919 % 65_537), Some(n));
        }
        assert_eq!((segment.base, segment.find(65_537)), (3, None));
        assert_eq!(Segment::new(0, Vec::new()).find(0), None);
        assert_eq!(prefix(&[0, 0, 0, 0, 0, 0, 1, 2, 3, 4]), 258);
        assert_eq!(prefix(&[1, 2]), 0);
    }
}
