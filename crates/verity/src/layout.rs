//! Where each level of a hash tree is.
//!
//! The lowest level has a digest of each data block, the level above a digest of each of its hash blocks, and so on, until a level
//! fits one block. The root is the digest of that block. The levels follow each other from the top to the bottom. An image of one
//! block has no tree: the root is the block's digest.

use crate::error::{Error, Result};
use crate::params::Params;

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

/// One level.
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
    /// [`Error::Parameter`] for parameters out of range, for no block, and for more bytes than a position counts.
    pub fn new(data_blocks: u64, params: &Params) -> Result<Self> {
        params.check()?;
        let data_block_size = u64::from(params.data_block_size);
        let problem = match data_blocks.checked_mul(data_block_size) {
            Some(0) => Some("is 0"),
            Some(len) if len > i64::MAX.unsigned_abs() => Some("gives an image larger than a file can be"),
            Some(_) => None,
            None => Some("gives an image larger than a file can be"),
        };
        if let Some(problem) = problem {
            return Err(Error::Parameter { parameter: "number of data blocks", problem });
        }
        let digest_len = params.algorithm.digest_len() as u64;
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
        self.levels.iter().map(|level| level.blocks).sum::<u64>() * self.hash_block_size
    }

    /// Whether the image has only one block, whose digest is the root.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Bytes of the image.
    #[must_use]
    pub const fn data_len(&self) -> u64 {
        self.data_blocks * self.data_block_size
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

    /// Digests in a hash block.
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
            assert!(matches!(TreeLayout::new(blocks, &params), Err(Error::Parameter { .. })), "{blocks}");
        }
        for size in [0, 1, 256, 4095, 1 << 17] {
            let params = Params { data_block_size: size, ..Params::default() };
            assert!(TreeLayout::new(1, &params).is_err());
        }
        assert!(TreeLayout::new(1, &Params { salt: vec![0; 257], ..params }).is_err());
    }
}
