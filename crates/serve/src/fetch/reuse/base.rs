//! Images on this machine that may have the same blocks as another image: entries of the cache, and
//! files.

use std::ops::Range;
use std::sync::Arc;

use ferofs_read::{FileSource, Source};
use ferofs_verity::{Params, Seal, TreeLayout, appended_position};

use crate::cache::{Cache, Entry, UNIT, bytes_of};
use crate::fetch::check::leaves;
use crate::ranges::len_of;
use ferofs_format::units::{to_u64, to_usize};

/// An image, or any other bytes, on this machine.
pub(crate) struct Base {
    place: Place,
    /// The position of its hash tree, which nobody verifies here.
    seal: Option<Seal>,
}

enum Place {
    Entry { cache: Cache, key: String },
    File(Arc<FileSource>),
}

/// A base whose stored parts are being read.
enum Stored {
    /// It cannot be removed meanwhile.
    Entry(Entry),
    File(Arc<FileSource>),
}

/// Bytes that are hashed, or digests that are read, at a time.
const PIECE: u64 = 1 << 20;

impl Base {
    /// An entry of the cache, with the seal of its image.
    pub(crate) fn entry(cache: &Cache, key: String, seal: Option<Seal>) -> Self {
        Self { place: Place::Entry { cache: cache.clone(), key }, seal }
    }

    /// A file, with a seal after its image or without one.
    pub(crate) fn file(file: Arc<FileSource>) -> Self {
        let position = appended_position(&*file).ok();
        let seal = position.and_then(|position| Seal::read(&*file, position).ok());
        Self { place: Place::File(file), seal }
    }

    /// Whether it is an entry of the cache.
    pub(super) const fn is_entry(&self) -> bool {
        matches!(self.place, Place::Entry { .. })
    }

    /// Opens it for reading. A base in the cache is not kept open, so that its space is free as
    /// soon as it is evicted.
    pub(super) fn open(&self) -> Option<Arc<dyn Source>> {
        match &self.place {
            Place::File(file) => Some(file.clone()),
            Place::Entry { cache, key } => {
                let path = cache.data_path(key).ok()?;
                Some(Arc::new(FileSource::open(&path, 0).ok()?))
            }
        }
    }

    /// The range of the digests of all its blocks, if it has a tree whose digests can be compared
    /// with those of a tree with `params`.
    pub(super) fn leaves(&self, params: &Params) -> Option<Range<u64>> {
        let layout = self.layout(params)?;
        Some(leaves(&layout, self.seal.as_ref()?.tree_start())).filter(|leaves| !leaves.is_empty())
    }

    fn layout(&self, params: &Params) -> Option<TreeLayout> {
        let superblock = &self.seal.as_ref()?.superblock;
        let own = &superblock.params;
        let is_same = (own.algorithm, own.data_block_size, &own.salt)
            == (params.algorithm, params.data_block_size, &params.salt);
        is_same.then(|| TreeLayout::new(superblock.data_blocks, own).ok()).flatten()
    }

    /// Calls `found` with the prefix of the digest and the number of each block that is stored,
    /// until that returns false. Takes the digests from the base's tree, or computes them.
    pub(super) fn blocks(&self, params: &Params, found: &mut dyn FnMut(u64, u64) -> bool) {
        let Some(stored) = self.stored() else { return };
        match self.leaves(params).zip(self.layout(params)) {
            Some((leaves, layout)) => {
                stored.tree_digests(&leaves, layout.data_len(), params, found)
            }
            None => stored.own_digests(params, found),
        }
    }

    fn stored(&self) -> Option<Stored> {
        match &self.place {
            Place::File(file) => Some(Stored::File(Arc::clone(file))),
            Place::Entry { cache, key } => cache.stored_entry(key).ok()?.map(Stored::Entry),
        }
    }
}

impl Stored {
    /// The stored parts of the first `len` bytes, in blocks of `size` bytes.
    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    fn runs(&self, len: u64, size: u64) -> Vec<Range<u64>> {
        let units = match self {
            Self::File(file) => return vec![0..len.min(file.size()) / size],
            Self::Entry(entry) => {
                entry.stored(0..len.min(entry.size()).div_ceil(UNIT)).unwrap_or_default()
            }
        };
        let blocks = |run: Range<u64>| run.start.div_ceil(size)..run.end.min(len) / size;
        units.iter().map(bytes_of).map(blocks).filter(|blocks| !blocks.is_empty()).collect()
    }

    /// Reads bytes, if all of them are stored.
    fn read(&self, pos: u64, buf: &mut [u8]) -> bool {
        match self {
            Self::File(file) => file.read_exact_at(pos, buf).is_ok(),
            Self::Entry(entry) => entry.read(pos, buf).unwrap_or(false),
        }
    }

    fn tree_digests(
        &self,
        leaves: &Range<u64>,
        len: u64,
        params: &Params,
        found: &mut dyn FnMut(u64, u64) -> bool,
    ) {
        let digest_len = params.algorithm.digest_len();
        let bytes = |blocks: u64| blocks.saturating_mul(to_u64(digest_len));
        for blocks in pieces(self.runs(len, params.data_block_size.into()), to_u64(digest_len)) {
            let mut digests = vec![0; to_usize(bytes(len_of(&blocks)))];
            if !self.read(leaves.start.saturating_add(bytes(blocks.start)), &mut digests) {
                continue;
            }
            let mut digests = blocks.zip(digests.chunks_exact(digest_len));
            if !digests.all(|(block, digest)| found(prefix(digest), block)) {
                return;
            }
        }
    }

    fn own_digests(&self, params: &Params, found: &mut dyn FnMut(u64, u64) -> bool) {
        let size = u64::from(params.data_block_size);
        let bytes = |blocks: u64| blocks.saturating_mul(size);
        for blocks in pieces(self.runs(u64::MAX, size), size) {
            let mut bytes_of_blocks = vec![0; to_usize(bytes(len_of(&blocks)))];
            if !self.read(bytes(blocks.start), &mut bytes_of_blocks) {
                continue;
            }
            let mut digests = blocks.zip(params.digests(&bytes_of_blocks));
            if !digests.all(|(block, digest)| found(prefix(digest.as_bytes()), block)) {
                return;
            }
        }
    }
}

/// Cuts runs of things of `size` bytes into pieces of [`PIECE`] bytes.
fn pieces(runs: Vec<Range<u64>>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let most = PIECE.checked_div(size).unwrap_or(1).max(1);
    let step = usize::try_from(most).unwrap_or(usize::MAX);
    runs.into_iter().flat_map(move |run| {
        let end = run.end;
        run.step_by(step).map(move |start| start..end.min(start.saturating_add(most)))
    })
}

/// Blocks in one segment: 512 MiB of blocks of 4096 bytes. A full segment can be used while the
/// next one is made.
pub(super) const SEGMENT: usize = 1 << 17;

/// Some blocks of one base, by their digests: 12 bytes for each block.
pub(super) struct Segment {
    /// The number of the base.
    pub(super) base: usize,
    /// The first 8 bytes of the digests, sorted.
    prefixes: Box<[u64]>,
    /// The numbers of the blocks in their base, in the same order.
    blocks: Box<[u32]>,
}

/// The part of a digest that is in the index. 8 bytes of two different blocks are the same so
/// rarely that it only costs a read.
pub(super) fn prefix(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Segment {
    /// An index of pairs of a prefix and a block number. If several blocks have the same prefix,
    /// the lowest number stays.
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
