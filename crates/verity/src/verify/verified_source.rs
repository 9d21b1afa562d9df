//! A source that checks each block against a hash tree when it is first read.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ferofs_read::{Access, ReadRange, Source};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::verify::block_verifier::{BlockVerifier, TreeReads};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes that are read and checked at a time if a read does not start and end between blocks.
const PIECE: u64 = 64 << 10;

/// Words of the bits for a part of the blocks.
const WORDS: usize = 512;
/// Blocks of such a part.
const PART: u64 = 64 * 512;
const _: () = assert!(PART.trailing_zeros() == WORDS.trailing_zeros() + 6, "a word has 64 bits");

/// An image whose blocks are checked: a read returns right bytes, or an [`crate::IntegrityError`].
///
/// A block is checked when it is first read, together with the blocks of the tree above it. One bit
/// for each data block tells which blocks have been checked; reading those again does not check
/// them again, as with dm-verity's `check_at_most_once`, unless [`Self::check_each_read`] was
/// called.
#[derive(Debug)]
pub struct VerifiedSource<S, T> {
    image: S,
    verifier: BlockVerifier<T>,
    /// A bit for each data block that was checked; memory only for parts that were read.
    checked: Vec<OnceLock<Box<[AtomicU64; WORDS]>>>,
    checks_each_read: bool,
}

/// One of several ranges that are read together.
struct RangeRead<'a> {
    pos: u64,
    buf: &'a mut [u8],
    /// Whether its blocks were checked before.
    is_checked: bool,
    /// Whether the bytes are read to `buf`, not with the rest of their blocks to `whole`.
    is_in_place: bool,
    /// The blocks that it touches, in bytes.
    blocks: Range<u64>,
    whole: Vec<u8>,
}

impl<S: Source, T: Source> VerifiedSource<S, T> {
    /// Checks the first `data_blocks` blocks of `image` against `tree`, whose root is `root`.
    /// Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters out of range, a root of another length, or an image or
    /// tree that is too short.
    pub fn new(image: S, tree: T, data_blocks: u64, params: &Params, root: Digest) -> Result<Self> {
        Self::with_tree_at(image, tree, 0, data_blocks, params, root)
    }

    /// As [`Self::new`], with a tree that starts `tree_start` bytes after the start of its source.
    pub(crate) fn with_tree_at(
        image: S,
        tree: T,
        tree_start: u64,
        data_blocks: u64,
        params: &Params,
        root: Digest,
    ) -> Result<Self> {
        let verifier = BlockVerifier::new(tree, tree_start, data_blocks, params, root)?;
        if image.size() < verifier.layout().data_len() {
            let need = verifier.layout().data_len();
            return Err(Error::Short {
                what: "by the hash tree, the image",
                need,
                have: image.size(),
            });
        }
        let parts = to_usize(data_blocks.div_ceil(PART));
        let mut checked = Vec::new();
        if checked.try_reserve_exact(parts).is_err() {
            let problem = "needs more memory than there is";
            return Err(Error::Parameter { parameter: "number of data blocks", problem });
        }
        checked.resize_with(parts, OnceLock::new);
        Ok(Self { image, verifier, checked, checks_each_read: false })
    }

    /// Checks blocks also when they are read again, for an image that others may change while it is
    /// read.
    #[must_use]
    pub fn check_each_read(mut self) -> Self {
        self.checks_each_read = true;
        self.checked = Vec::new();
        self
    }

    /// The verifier of the blocks. Its checks do not count as a first read.
    pub const fn verifier(&self) -> &BlockVerifier<T> {
        &self.verifier
    }

    /// The words with the bits of `blocks`, each with its part of `checked` and a mask of the bits.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`len` is 1 to 64, and `at` goes up to the end of `blocks`"
    )]
    fn words(blocks: Range<u64>) -> impl Iterator<Item = (usize, usize, u64)> {
        let mut at = blocks.start;
        std::iter::from_fn(move || {
            let len = (64 - at % 64).min(blocks.end.checked_sub(at).filter(|len| *len > 0)?);
            let mask = u64::MAX >> (64 - len) << (at % 64);
            // The second is less than `WORDS`.
            let word = (to_usize(at / PART), to_usize(at % PART / 64), mask);
            at += len;
            Some(word)
        })
    }

    #[expect(clippy::indexing_slicing, reason = "`words` gives numbers of words below `WORDS`")]
    fn mark_checked(&self, blocks: Range<u64>) {
        for (part, word, mask) in Self::words(blocks) {
            if let Some(part) = self.checked.get(part) {
                let part = part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
                part[word].fetch_or(mask, Ordering::Release);
            }
        }
    }

    #[expect(clippy::indexing_slicing, reason = "as above")]
    fn are_checked(&self, pos: u64, len: u64) -> bool {
        if self.checks_each_read {
            return false;
        }
        Self::words(self.blocks_of(pos..pos.saturating_add(len))).all(|(part, word, mask)| {
            let part = self.checked.get(part).and_then(OnceLock::get);
            part.is_some_and(|part| part[word].load(Ordering::Acquire) & mask == mask)
        })
    }

    /// Checks the blocks in `bytes`, which starts at `pos`; both are multiples of the block size.
    /// Also those that were checked before: these are other bytes, and others may have changed
    /// them.
    fn check(&self, pos: u64, bytes: &[u8], tree: TreeReads) -> io::Result<()> {
        let blocks = self.blocks_of(pos..pos.saturating_add(to_u64(bytes.len())));
        self.verifier.verify_by(blocks.start, bytes, tree)?;
        self.mark_checked(blocks);
        Ok(())
    }

    /// The numbers of the blocks that have these bytes.
    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    fn blocks_of(&self, bytes: Range<u64>) -> Range<u64> {
        let size = self.verifier.layout().data_block_size();
        bytes.start / size..bytes.end.div_ceil(size)
    }

    /// Reads the blocks of all ranges with one call, and checks them.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`blocks` are not empty, and hold all of `buf`"
    )]
    fn read_all(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        let size = self.verifier.layout().data_block_size();
        let mut parts = Vec::with_capacity(ranges.len());
        for ReadRange { pos, buf } in ranges {
            let len = to_u64(buf.len());
            let end = pos.checked_add(len).filter(|end| *end <= self.verifier.layout().data_len());
            let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
            let is_checked = self.are_checked(*pos, len);
            let blocks = *pos - *pos % size..end.next_multiple_of(size);
            // Whole blocks are checked in the caller's memory.
            let is_in_place = is_checked || blocks.end - blocks.start == len;
            let whole =
                if is_in_place { Vec::new() } else { vec![0; to_usize(blocks.end - blocks.start)] };
            parts.push(RangeRead { pos: *pos, buf, is_checked, is_in_place, blocks, whole });
        }
        let reads = parts.iter_mut().map(|part| match part.is_in_place {
            true => ReadRange { pos: part.pos, buf: part.buf },
            false => ReadRange { pos: part.blocks.start, buf: &mut part.whole },
        });
        self.image.read_ranges(&mut reads.collect::<Vec<_>>(), access)?;
        parts.retain(|part| !part.is_checked);
        self.verifier.load(parts.iter().map(|part| self.blocks_of(part.blocks.clone())))?;
        for part in parts {
            if part.is_in_place {
                self.check(part.blocks.start, part.buf, TreeReads::Wait)?;
            } else {
                self.check(part.blocks.start, &part.whole, TreeReads::Wait)?;
                let skip = to_usize(part.pos - part.blocks.start);
                part.buf.copy_from_slice(&part.whole[skip..][..part.buf.len()]);
            }
        }
        Ok(())
    }

    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "blocks are not empty, and a piece reaches from before `at` to its end or `end`"
    )]
    fn read(
        &self,
        pos: u64,
        mut buf: &mut [u8],
        tree: TreeReads,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = pos
            .checked_add(to_u64(buf.len()))
            .filter(|end| *end <= self.verifier.layout().data_len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if buf.is_empty() || self.are_checked(pos, end - pos) {
            return read(pos, buf);
        }
        let size = self.verifier.layout().data_block_size();
        // After the first read, because a source that fetches data from a server also fetches the
        // hashes of that data.
        let mut is_loaded = tree == TreeReads::IfCached;
        let mut load = || match std::mem::replace(&mut is_loaded, true) {
            true => Ok(()),
            false => self.verifier.load(std::iter::once(self.blocks_of(pos..end))),
        };
        let mut at = pos;
        while at < end {
            let whole = (end - at) / size * size;
            if at.is_multiple_of(size) && whole > 0 {
                // Whole blocks are checked in the caller's memory.
                let (head, tail) = std::mem::take(&mut buf).split_at_mut(to_usize(whole));
                read(at, head)?;
                load()?;
                self.check(at, head, tree)?;
                (at, buf) = (at + whole, tail);
                continue;
            }
            let start = at - at % size;
            let piece_end = end.next_multiple_of(size).min(start + PIECE.max(size));
            let mut piece = vec![0; to_usize(piece_end - start)];
            read(start, &mut piece)?;
            load()?;
            self.check(start, &piece, tree)?;
            let len = to_usize(piece_end.min(end) - at);
            let (head, tail) = std::mem::take(&mut buf).split_at_mut(len);
            head.copy_from_slice(&piece[to_usize(at - start)..][..len]);
            (at, buf) = (at + to_u64(len), tail);
        }
        Ok(())
    }
}

impl<S: Source, T: Source> Source for VerifiedSource<S, T> {
    /// The part of the image that the tree covers.
    fn size(&self) -> u64 {
        self.verifier.layout().data_len()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(pos, buf, TreeReads::Wait, |pos, buf| self.image.read_exact_at(pos, buf))
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(pos, buf, TreeReads::Wait, |pos, buf| self.image.read_sparse_at(pos, buf))
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        self.read_all(ranges, access)
    }

    fn prefers_batches(&self) -> bool {
        self.image.prefers_batches()
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        let cached = |pos, buf: &mut [u8]| match self.image.read_if_cached(pos, buf) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        // A wrong block is reported by the read that follows.
        self.read(pos, buf, TreeReads::IfCached, cached).is_ok()
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.image.will_need(pos, len);
        let len = len.min(self.size().saturating_sub(pos));
        self.verifier.will_need(self.blocks_of(pos..pos.saturating_add(len)));
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        self.image.identity()
    }

    // `stored` and `next_stored` are not passed on: the tree does not cover the places of a file's
    // holes.
}
