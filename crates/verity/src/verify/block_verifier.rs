//! Checks blocks of an image, and of its hash tree, against a root: [`BlockVerifier`].

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use ferofs_read::{Access, ReadRange, Source};

use crate::digest::Digest;
use crate::error::{Error, IntegrityError, Result};
use crate::layout::TreeLayout;
use crate::params::{BlockHasher, Params};
use crate::verify::hash_cache::HashCache;
use ferofs_format::units::{to_u64, to_usize};

/// Checks bytes of an image or of its hash tree before they are used, wherever they come from.
///
/// It reads the hash blocks that it needs from a source of the tree, checks them up to the root,
/// and keeps at most 512 KiB of them. [`crate::VerifiedSource`] checks what it reads with it. A
/// program that fetches an image from a server can check the bytes before it stores the bytes:
///
/// ```
/// use ferofs_verity::{BlockVerifier, Error, Params, make_tree};
///
/// let image = vec![7; 100 * 4096];
/// let (mut tree, params) = (Vec::new(), Params::default());
/// let root = make_tree(&image, 100, &params, 2, |pos, bytes| {
///     tree.resize(tree.len().max(pos as usize + bytes.len()), 0);
///     tree[pos as usize..][..bytes.len()].copy_from_slice(bytes);
///     Ok(())
/// })?;
/// let verifier = BlockVerifier::new(tree, 0, 100, &params, root)?;
/// verifier.verify(8, &image[8 * 4096..16 * 4096])?;
/// let error = verifier.verify(8, &[0; 4096]).unwrap_err();
/// assert!(matches!(error, Error::Integrity(error) if error.block == 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlockVerifier<T> {
    tree: T,
    /// The position of the tree's first byte in `tree`.
    tree_start: u64,
    layout: TreeLayout,
    hasher: BlockHasher,
    root: Digest,
    cache: HashCache,
}

/// How hash blocks are read that are not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeReads {
    /// Wait for the medium.
    Wait,
    /// Fail with [`io::ErrorKind::WouldBlock`] if the read would wait.
    IfCached,
}

impl<T: Source> BlockVerifier<T> {
    /// Checks blocks of an image of `data_blocks` blocks against the tree that starts at byte
    /// `tree_start` of `tree`, and whose root is `root`. Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters out of range or a root of another length,
    /// [`Error::Short`] for a tree that is too short.
    pub fn new(
        tree: T,
        tree_start: u64,
        data_blocks: u64,
        params: &Params,
        root: Digest,
    ) -> Result<Self> {
        let layout = TreeLayout::new(data_blocks, params)?;
        if tree.size().checked_sub(tree_start).is_none_or(|len| len < layout.len()) {
            let need = tree_start.saturating_add(layout.len());
            return Err(Error::Short { what: "the hash tree", need, have: tree.size() });
        }
        if root.as_bytes().len() != params.algorithm.digest_len() {
            let problem = "has another length than the algorithm's digests";
            return Err(Error::Parameter { parameter: "root hash", problem });
        }
        let (hasher, cache) = (params.hasher(), HashCache::new(to_usize(layout.hash_block_size())));
        Ok(Self { tree, tree_start, layout, hasher, root, cache })
    }

    /// The places of the tree's levels, and the sizes of blocks.
    #[must_use]
    pub const fn layout(&self) -> &TreeLayout {
        &self.layout
    }

    /// The digest of the whole image.
    #[must_use]
    pub const fn root(&self) -> Digest {
        self.root
    }

    /// Checks `bytes`, which are whole blocks of the image from block `first` on.
    ///
    /// # Errors
    /// [`Error::Integrity`] names the first block of the image, or of the tree, that does not have
    /// its digest; [`Error::Io`] when the tree cannot be read; [`Error::Parameter`] when `bytes`
    /// are not whole blocks of the image.
    pub fn verify(&self, first: u64, bytes: &[u8]) -> Result<()> {
        self.verify_by(first, bytes, TreeReads::Wait)
    }

    /// As [`Self::verify`].
    pub(super) fn verify_by(&self, first: u64, bytes: &[u8], reads: TreeReads) -> Result<()> {
        let size = self.layout.data_block_size();
        let blocks = blocks_within(first, bytes, size, self.layout.data_blocks())?;
        if bytes.len() == to_usize(size) && self.verify_with_leaf(first, bytes, reads)? {
            return Ok(());
        }
        let (mut at, mut unchecked) = (blocks.start, bytes);
        while at < blocks.end {
            let run = at..self.end_of_leaf(at).min(blocks.end);
            let len = run.end.saturating_sub(run.start).saturating_mul(size);
            let (bytes, after) = unchecked.split_at(to_usize(len).min(unchecked.len()));
            let digests = self.hasher.hash_blocks(bytes, to_usize(size));
            self.with_digests(run.clone(), reads, |expected| {
                let expected = expected.chunks_exact(to_usize(self.layout.digest_len()));
                let mut all = run.zip(digests).zip(expected);
                match all.find(|((_, digest), expected)| digest.as_bytes() != *expected) {
                    Some(((block, _), _)) => Err(wrong_data(block, size)),
                    None => Ok(()),
                }
            })??;
            (at, unchecked) = (self.end_of_leaf(at), after);
        }
        Ok(())
    }

    /// Checks one block together with its hash block, if that is not in the cache: two blocks are
    /// hashed in little more time than one. Returns whether it did.
    fn verify_with_leaf(&self, number: u64, bytes: &[u8], reads: TreeReads) -> Result<bool> {
        let Some(leaves) = self.layout.levels().first() else { return Ok(false) };
        let (index, entry) = self.layout.parent(number);
        let leaf = leaves.first.saturating_add(index);
        let size = self.layout.hash_block_size();
        if to_u64(bytes.len()) != size || self.cache.with(leaf, |_| ()).is_ok() {
            return Ok(false);
        }
        let mut both = [bytes, bytes].concat();
        let (_, hashes) = both.split_at_mut(bytes.len());
        self.read_tree(leaf, hashes, reads)?;
        let digests = self.hasher.hash_blocks(&both, bytes.len());
        let (_, hashes) = both.split_at(bytes.len());
        if digests.get(1) != Some(&self.expected(1, index, reads)?) {
            return Err(wrong_hashes(leaf, size));
        }
        self.cache.insert(leaf, hashes);
        if digests.first() != Some(&self.entry(hashes, entry)) {
            return Err(wrong_data(number, size));
        }
        Ok(true)
    }

    /// Checks `bytes`, which are whole blocks of the tree from its block `first` on, against the
    /// blocks above them. It takes blocks above from `bytes` if they are among them, and else from
    /// the source of the tree, only at lower positions. So a source of a tree can call this
    /// function for what it fetched, also while it answers a read of this function.
    ///
    /// # Errors
    /// As [`Self::verify`].
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "hash blocks are not empty, and lower levels come later in `bytes`"
    )]
    pub fn verify_tree(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let size = self.layout.hash_block_size();
        let blocks = blocks_within(first, bytes, size, self.layout.len() / size)?;
        let digests = self.hasher.hash_blocks(bytes, to_usize(size));
        for (block, digest) in blocks.zip(digests) {
            let place = (0..).zip(self.layout.levels()).find(|(_, level)| level.first <= block);
            // The highest level starts at block 0.
            let Some((level, place)) = place else { continue };
            let index = block - place.first;
            let (parent, entry) = self.layout.parent(index);
            let above = self.layout.levels().get(level + 1).map(|above| above.first + parent);
            let expected = match above.and_then(|above| above.checked_sub(first)) {
                // It was checked by an earlier turn, because the levels are stored from the top to
                // the bottom.
                Some(number) => self.entry(&bytes[to_usize(number * size)..], entry),
                None => self.expected(level + 1, index, TreeReads::Wait)?,
            };
            if digest != expected {
                return Err(wrong_hashes(block, size));
            }
        }
        Ok(())
    }

    /// The digests of `blocks` of the image, from checked blocks of the tree. With the same
    /// [`Params`], blocks of any images with equal digests are equal. A digest has 65 bytes in
    /// memory, so ask for parts of large images.
    ///
    /// # Errors
    /// As [`Self::verify`]; [`Error::Parameter`] when `blocks` has others than those of the image.
    pub fn digests(&self, blocks: Range<u64>) -> Result<Vec<Digest>> {
        if blocks.start > blocks.end || blocks.end > self.layout.data_blocks() {
            return Err(Error::Parameter {
                parameter: "blocks",
                problem: "are not all blocks of the image",
            });
        }
        let mut digests = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let end = self.end_of_leaf(at).min(blocks.end);
            self.with_digests(at..end, TreeReads::Wait, |expected| {
                digests.extend(
                    expected.chunks_exact(to_usize(self.layout.digest_len())).map(Digest::new),
                );
            })?;
            at = end;
        }
        Ok(digests)
    }

    /// Reads the hash blocks that checks of these blocks need and that are not in memory, with one
    /// call, if the source of the tree prefers that. Keeps those that are right; a check reads the
    /// others again, and names them.
    pub(crate) fn load(&self, ranges: impl Iterator<Item = Range<u64>>) -> Result<()> {
        if !self.tree.prefers_batches() {
            return Ok(());
        }
        let mut wanted = BTreeSet::new();
        for range in ranges.filter(|range| !range.is_empty()) {
            let (mut first, mut last) = (range.start, range.end.saturating_sub(1));
            for level in self.layout.levels() {
                (first, last) = (self.layout.parent(first).0, self.layout.parent(last).0);
                wanted.extend((first..=last).map(|index| level.first.saturating_add(index)));
            }
        }
        wanted.retain(|block| self.cache.with(*block, |_| ()).is_err());
        let size = self.layout.hash_block_size();
        let mut read: Vec<(u64, Vec<u8>)> =
            wanted.into_iter().map(|block| (block, vec![0; to_usize(size)])).collect();
        let ranges =
            read.iter_mut().map(|(block, buf)| ReadRange { pos: self.position(*block), buf });
        let ranges = &mut ranges.collect::<Vec<_>>();
        self.tree
            .read_ranges(ranges, Access::Sparse)
            .map_err(|e| Error::of_read("read hash tree", e))?;
        // Blocks above come first.
        for (block, bytes) in read {
            let place =
                (0usize..).zip(self.layout.levels()).find(|(_, level)| level.first <= block);
            let Some((level, place)) = place else { continue };
            let (above, index) = (level.saturating_add(1), block.saturating_sub(place.first));
            if self.hasher.hash(&bytes) == self.expected(above, index, TreeReads::Wait)? {
                self.cache.insert(block, &bytes);
            }
        }
        Ok(())
    }

    /// Announces to the source of the tree, if it fetches what it reads, that these blocks will be
    /// checked.
    pub(crate) fn will_need(&self, blocks: Range<u64>) {
        // A local tree is small enough for the system's own read-ahead.
        let level = self.layout.levels().first().filter(|_| self.tree.prefers_batches());
        if let Some(level) = level.filter(|_| !blocks.is_empty()) {
            let (first, _) = self.layout.parent(blocks.start);
            let count = blocks.end.div_ceil(self.layout.per_block()).saturating_sub(first);
            let len = count.saturating_mul(self.layout.hash_block_size());
            self.tree.will_need(self.position(level.first.saturating_add(first)), len);
        }
    }

    fn position(&self, hash_block: u64) -> u64 {
        // `new` checks that the tree's source has all hash blocks.
        self.tree_start.saturating_add(hash_block.saturating_mul(self.layout.hash_block_size()))
    }

    /// The first block after `block` whose digest another hash block has.
    fn end_of_leaf(&self, block: u64) -> u64 {
        let (leaf, _) = self.layout.parent(block);
        leaf.saturating_add(1).saturating_mul(self.layout.per_block())
    }

    /// Passes the digests of `blocks` to `use_digests`, one after the other. One hash block of the
    /// lowest level has them all.
    fn with_digests<R>(
        &self,
        blocks: Range<u64>,
        reads: TreeReads,
        use_digests: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let Some(leaves) = self.layout.levels().first() else {
            return Ok(use_digests(self.root.as_bytes()));
        };
        let (index, start) = self.layout.parent(blocks.start);
        let end = start.saturating_add(blocks.end.saturating_sub(blocks.start));
        let [start, end] =
            [start, end].map(|n| to_usize(n.saturating_mul(self.layout.digest_len())));
        self.with_hash_block(0, leaves.first.saturating_add(index), index, reads, |bytes| {
            // A hash block has all its digests.
            use_digests(bytes.get(start..end).unwrap_or_default())
        })
    }

    /// Passes the checked hash block `block`, which is number `index` of `level`, to `use_bytes`.
    fn with_hash_block<R>(
        &self,
        level: usize,
        block: u64,
        index: u64,
        reads: TreeReads,
        use_bytes: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let use_bytes = match self.cache.with(block, use_bytes) {
            Ok(result) => return Ok(result),
            Err(use_bytes) => use_bytes,
        };
        let size = self.layout.hash_block_size();
        let mut bytes = vec![0; to_usize(size)];
        self.read_tree(block, &mut bytes, reads)?;
        if self.hasher.hash(&bytes) != self.expected(level.saturating_add(1), index, reads)? {
            return Err(wrong_hashes(block, size));
        }
        self.cache.insert(block, &bytes);
        Ok(use_bytes(&bytes))
    }

    /// Reads hash block `block`. It is not checked.
    fn read_tree(&self, block: u64, buffer: &mut [u8], reads: TreeReads) -> Result<()> {
        let at = self.position(block);
        let read = match reads {
            TreeReads::Wait => self.tree.read_exact_at(at, buffer),
            TreeReads::IfCached if self.tree.read_if_cached(at, buffer) => Ok(()),
            TreeReads::IfCached => Err(io::ErrorKind::WouldBlock.into()),
        };
        read.map_err(|error| Error::of_read("read hash tree", error))
    }

    /// The digest that entry `number` of `level` holds; above the highest level, the root.
    fn expected(&self, level: usize, number: u64, reads: TreeReads) -> Result<Digest> {
        let Some(place) = self.layout.levels().get(level) else { return Ok(self.root) };
        let (index, entry) = self.layout.parent(number);
        let block = place.first.saturating_add(index);
        self.with_hash_block(level, block, index, reads, |bytes| self.entry(bytes, entry))
    }

    /// The digest in entry `number` of a hash block.
    fn entry(&self, hash_block: &[u8], number: u64) -> Digest {
        let len = self.layout.digest_len();
        let start = to_usize(number.saturating_mul(len));
        let digest = hash_block.get(start..).and_then(|bytes| bytes.get(..to_usize(len)));
        Digest::new(digest.unwrap_or_default())
    }
}

/// The error of a data block of `size` bytes.
fn wrong_data(block: u64, size: u64) -> Error {
    IntegrityError { is_hash: false, block, position: block.saturating_mul(size) }.into()
}

/// The error of a hash block of `size` bytes.
fn wrong_hashes(block: u64, size: u64) -> Error {
    IntegrityError { is_hash: true, block, position: block.saturating_mul(size) }.into()
}

/// The numbers of the blocks in `bytes`.
fn blocks_within(first: u64, bytes: &[u8], size: u64, all: u64) -> Result<Range<u64>> {
    let len = to_u64(bytes.len());
    let end = len.checked_div(size).and_then(|blocks| first.checked_add(blocks));
    let end = end.filter(|end| len.is_multiple_of(size) && *end <= all);
    let problem = "are not whole blocks of the image or of its hash tree";
    end.map(|end| first..end).ok_or(Error::Parameter { parameter: "bytes to verify", problem })
}
