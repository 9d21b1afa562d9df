//! Makes hash trees.
//!
//! One hash block of the lowest level covers a unit of data, 512 KiB with the usual sizes. Units do
//! not depend on each other, so they are hashed on all cores and in any order; the levels above
//! have less than a hundredth of the digests.

use ferofs_read::Source;
use ferofs_threads::parallel;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::layout::TreeLayout;
use crate::params::{BlockHasher, Params};
use ferofs_format::units::{to_u64, to_usize};

/// Makes the tree of an image that is written or changed unit by unit.
#[derive(Debug)]
pub struct TreeBuilder {
    layout: TreeLayout,
    hasher: BlockHasher,
}

/// The hash block of a unit.
#[derive(Clone, Debug)]
pub struct HashBlock {
    /// The unit's number.
    pub unit: u64,
    /// Its digest, which the level above holds; for an image of one block, the root.
    pub digest: Digest,
    /// Its position in the tree.
    pub position: u64,
    /// Its bytes: the digests of the unit's blocks. Empty for an image of one block.
    pub bytes: Vec<u8>,
}

impl TreeBuilder {
    /// A tree over `data_blocks` blocks.
    ///
    /// # Errors
    /// As [`TreeLayout::new`].
    pub fn new(data_blocks: u64, params: &Params) -> Result<Self> {
        Ok(Self { layout: TreeLayout::new(data_blocks, params)?, hasher: params.hasher() })
    }

    /// The places of the levels.
    #[must_use]
    pub const fn layout(&self) -> &TreeLayout {
        &self.layout
    }

    /// Bytes of data that one hash block covers.
    #[must_use]
    pub const fn unit_len(&self) -> u64 {
        self.layout.per_block().saturating_mul(self.layout.data_block_size())
    }

    /// The number of units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.layout.data_blocks().div_ceil(self.layout.per_block())
    }

    /// The bytes of the image that belong to `unit`.
    #[must_use]
    pub fn unit_range(&self, unit: u64) -> std::ops::Range<u64> {
        let start = unit.saturating_mul(self.unit_len());
        start..start.saturating_add(self.unit_len()).min(self.layout.data_len())
    }

    /// Hashes the data of `unit`, all of [`Self::unit_range`].
    #[must_use]
    pub fn hash_unit(&self, unit: u64, data: &[u8]) -> HashBlock {
        match self.layout.levels().first() {
            None => {
                // The only block.
                let digest = self.hasher.hash(data);
                HashBlock { unit, digest, position: 0, bytes: Vec::new() }
            }
            Some(level) => {
                let digests =
                    self.hasher.hash_blocks(data, to_usize(self.layout.data_block_size()));
                let (digest, bytes) = self.hash_block(digests.into_iter());
                let position =
                    level.first.saturating_add(unit).saturating_mul(self.layout.hash_block_size());
                HashBlock { unit, digest, position, bytes }
            }
        }
    }

    /// A hash block of these digests, and its own digest.
    fn hash_block(&self, digests: impl Iterator<Item = Digest>) -> (Digest, Vec<u8>) {
        let mut bytes = Vec::with_capacity(to_usize(self.layout.hash_block_size()));
        for digest in digests {
            bytes.extend_from_slice(digest.as_bytes());
        }
        bytes.resize(to_usize(self.layout.hash_block_size()), 0);
        (self.hasher.hash(&bytes), bytes)
    }

    /// Makes the levels above the lowest one from the digests of all units, in order; passes each
    /// hash block with its position to `write`. Returns the root.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn finish<E>(
        &self,
        mut units: Vec<Digest>,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Option<Digest>, E> {
        for level in self.layout.levels().iter().skip(1) {
            let mut above = Vec::new();
            for (number, digests) in
                (level.first..).zip(units.chunks(to_usize(self.layout.per_block())))
            {
                let (digest, bytes) = self.hash_block(digests.iter().copied());
                write(number.saturating_mul(self.layout.hash_block_size()), &bytes)?;
                above.push(digest);
            }
            units = above;
        }
        Ok(units.first().copied())
    }
}

/// Makes the tree over the first `data_blocks` blocks of `image` on up to `threads` threads. Passes
/// the positions and bytes of hash blocks to `write`, in any order. Returns the root.
///
/// # Errors
/// As [`TreeLayout::new`]; [`Error::Io`] when the image cannot be read or `write` fails.
pub fn make_tree(
    image: &dyn Source,
    data_blocks: u64,
    params: &Params,
    threads: usize,
    mut write: impl FnMut(u64, &[u8]) -> std::io::Result<()> + Send,
) -> Result<Digest> {
    let builder = TreeBuilder::new(data_blocks, params)?;
    let units = usize::try_from(builder.units()).unwrap_or(usize::MAX);
    let writer = parking_lot::Mutex::new(&mut write);
    let hash = |buffer: &mut Vec<u8>, unit: usize| {
        let unit = to_u64(unit);
        let range = builder.unit_range(unit);
        buffer.resize(to_usize(range.end.saturating_sub(range.start)), 0);
        image.read_exact_at(range.start, buffer).map_err(Error::io("read image"))?;
        let block = builder.hash_unit(unit, buffer);
        if !block.bytes.is_empty() {
            let mut write = writer.lock();
            write(block.position, &block.bytes).map_err(Error::io("write hash tree"))?;
        }
        Ok::<_, Error>(block.digest)
    };
    let digests = parallel(threads.max(1), units, Vec::new, hash)?;
    let root = builder.finish(digests, write).map_err(Error::io("write hash tree"))?;
    root.ok_or(Error::Parameter { parameter: "number of data blocks", problem: "is 0" })
}
