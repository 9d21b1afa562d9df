//! The place of each level of a hash tree.
//!
//! The lowest level has a digest of each data block, the level above a digest of each of its hash
//! blocks, and so on, until a level fits one block. The root is the digest of that block. The
//! levels follow each other from the top to the bottom. An image of one block has no tree: the root
//! is the block's digest.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::params::Params;
use ferofs_format::units::to_u64;

/// The levels of a tree over a number of data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLayout {
    data_blocks: u64,
    data_block_size: u64,
    hash_block_size: u64,
    digest_len: u64,
    /// The lowest level first.
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The first hash block of the tree that belongs to it.
    pub first: u64,
    /// Its hash blocks.
    pub blocks: u64,
}

impl TreeLayout {
    /// The layout of a tree over `data_blocks` blocks.
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters out of range, for no block, and for more bytes than a
    /// position counts.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks have at least 512 bytes and digests at most 64; `first` is the sum of all levels"
    )]
    pub fn new(data_blocks: u64, params: &Params) -> Result<Self> {
        params.check()?;
        let data_block_size = u64::from(params.data_block_size);
        let problem = match data_blocks.checked_mul(data_block_size) {
            Some(0) => Some("is 0"),
            Some(len) if len > i64::MAX.unsigned_abs() => {
                Some("gives an image larger than a file can be")
            }
            Some(_) => None,
            None => Some("gives an image larger than a file can be"),
        };
        if let Some(problem) = problem {
            return Err(Error::Parameter { parameter: "number of data blocks", problem });
        }
        let digest_len = to_u64(params.algorithm.digest_len());
        let hash_block_size = u64::from(params.hash_block_size);
        let per_block = hash_block_size / digest_len;
        let (mut blocks, mut below) = (Vec::new(), data_blocks);
        while below > 1 {
            below = below.div_ceil(per_block);
            blocks.push(below);
        }
        let mut first: u64 = blocks.iter().sum();
        let levels = blocks.into_iter().map(|blocks| {
            first -= blocks;
            Level { first, blocks }
        });
        let levels = levels.collect();
        Ok(Self { data_blocks, data_block_size, hash_block_size, digest_len, levels })
    }

    /// Bytes of the whole tree.
    #[must_use]
    pub fn len(&self) -> u64 {
        let blocks: u64 = self.levels.iter().map(|level| level.blocks).sum();
        blocks.saturating_mul(self.hash_block_size)
    }

    /// Whether the image has only one block, whose digest is the root.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Bytes of the image.
    #[must_use]
    pub const fn data_len(&self) -> u64 {
        // `new` refuses more than 63 bits.
        self.data_blocks.saturating_mul(self.data_block_size)
    }

    /// The hash blocks between the root and these blocks of the image: a range for each level, the
    /// highest first. Hash blocks are numbered from the start of the tree.
    #[must_use]
    pub fn hashes_of(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let mut ranges = self.above(blocks.clone(), 0);
        ranges.reverse();
        ranges
    }

    /// As [`Self::hashes_of`], for blocks of the tree: the hash blocks above them, as far as they
    /// are not among them.
    #[must_use]
    pub fn hashes_of_hashes(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (number, level) in (1..).zip(&self.levels) {
            let (start, end) = (
                blocks.start.max(level.first),
                blocks.end.min(level.first.saturating_add(level.blocks)),
            );
            if start < end {
                let within = start.saturating_sub(level.first)..end.saturating_sub(level.first);
                ranges.extend(self.above(within, number));
            }
        }
        ranges.retain(|range| range.start < blocks.start || range.end > blocks.end);
        ranges.sort_by_key(|range| range.start);
        ranges.dedup();
        ranges
    }

    /// The hash blocks above `blocks`, whose digests are in `level`: the lowest level first.
    fn above(&self, blocks: Range<u64>, level: usize) -> Vec<Range<u64>> {
        if blocks.is_empty() {
            return Vec::new();
        }
        let (mut first, mut last) = (blocks.start, blocks.end.saturating_sub(1));
        let levels = self.levels.iter().skip(level);
        let range = levels.map(|level| {
            (first, last) = (self.parent(first).0, self.parent(last).0);
            let end = last.min(level.blocks.saturating_sub(1)).saturating_add(1);
            level.first.saturating_add(first)..level.first.saturating_add(end)
        });
        range.collect()
    }

    /// Blocks of the image.
    #[must_use]
    pub const fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Bytes of a block of the image.
    #[must_use]
    pub const fn data_block_size(&self) -> u64 {
        self.data_block_size
    }

    /// Bytes of a block of the tree.
    #[must_use]
    pub const fn hash_block_size(&self) -> u64 {
        self.hash_block_size
    }

    pub(crate) const fn digest_len(&self) -> u64 {
        self.digest_len
    }

    /// The number of the hash block that has the digest of block `number`, in its level, and the
    /// number of the digest in that block.
    #[expect(clippy::arithmetic_side_effects, reason = "a hash block holds at least 8 digests")]
    pub(crate) const fn parent(&self, number: u64) -> (u64, u64) {
        (number / self.per_block(), number % self.per_block())
    }

    /// Digests in a hash block.
    #[expect(clippy::arithmetic_side_effects, reason = "a digest has 32 or 64 bytes")]
    pub(crate) const fn per_block(&self) -> u64 {
        self.hash_block_size / self.digest_len
    }

    /// The levels, the lowest first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::HashAlgorithm;

    fn levels(data_blocks: u64, params: &Params) -> Vec<(u64, u64)> {
        let layout = TreeLayout::new(data_blocks, params).unwrap();
        layout.levels.iter().map(|level| (level.first, level.blocks)).collect()
    }

    #[test]
    fn levels_follow_each_other_from_the_top() {
        let params = Params::default();
        assert_eq!(levels(1, &params), []);
        assert_eq!(levels(2, &params), [(0, 1)]);
        assert_eq!(levels(128, &params), [(0, 1)]);
        assert_eq!(levels(129, &params), [(1, 2), (0, 1)]);
        assert_eq!(levels(128 * 128 + 1, &params), [(3, 129), (1, 2), (0, 1)]);
        let large = Params { algorithm: HashAlgorithm::Sha512, hash_block_size: 512, ..params };
        assert_eq!(levels(65, &large), [(3, 9), (1, 2), (0, 1)]);
        assert_eq!(TreeLayout::new(65, &large).unwrap().len(), 12 * 512);
    }

    #[test]
    fn impossible_trees_are_refused() {
        let params = Params::default();
        for blocks in [0, u64::MAX, u64::MAX / 4096, i64::MAX as u64 / 4096 + 1] {
            assert!(
                matches!(TreeLayout::new(blocks, &params), Err(Error::Parameter { .. })),
                "{blocks}"
            );
        }
        for size in [0, 1, 256, 4095, 1 << 17] {
            let params = Params { data_block_size: size, ..Params::default() };
            assert!(TreeLayout::new(1, &params).is_err());
        }
        assert!(TreeLayout::new(1, &Params { salt: vec![0; 257], ..params }).is_err());
    }

    #[test]
    fn hashes_are_those_between_the_root_and_the_blocks() {
        // 128 digests of 32 bytes a block: 3 levels of 1, 2 and 157 blocks.
        let layout = TreeLayout::new(20_000, &Params::default()).unwrap();
        assert_eq!(layout.hashes_of(&(0..1)), [0..1, 1..2, 3..4]);
        assert_eq!(layout.hashes_of(&(127..129)), [0..1, 1..2, 3..5]);
        assert_eq!(layout.hashes_of(&(16_383..20_000)), [0..1, 1..3, 130..160]);
        assert_eq!(layout.hashes_of_hashes(&(130..131)), [0..1, 1..2]);
        assert_eq!(layout.hashes_of_hashes(&(130..132)), [0..1, 1..3]);
        assert_eq!(layout.hashes_of_hashes(&(0..160)), []);
        assert_eq!(layout.hashes_of_hashes(&(1..160)).first(), Some(&(0..1)));
        assert_eq!(layout.hashes_of_hashes(&(2..10)), [0..1, 1..2]);
        let small = TreeLayout::new(1, &Params::default()).unwrap();
        assert_eq!(small.hashes_of(&(0..1)), []);
    }
}
