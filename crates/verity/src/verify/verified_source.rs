//! A source that checks each block against a hash tree when it is first read.

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
/// A block is checked when it is first read, together with the blocks of the tree above it. One bit for each data block tells
/// which blocks have been checked; reading those again does not check them again, as with dm-verity's `check_at_most_once`, unless
/// [`Self::check_each_read`] was called.
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
    /// Checks the first `data_blocks` blocks of `image` against `tree`, whose root is `root`. Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters out of range, a root of another length, or an image or tree that is too short.
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

    /// Checks blocks also when they are read again, for an image that others may change while it is read.
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

    /// Checks the blocks in `bytes`, which starts at `pos`; both are multiples of the block size. Also those that were checked before:
    /// these are other bytes, and others may have changed them.
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
        // After the first read, because a source that fetches data from a server also fetches the hashes of that data.
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

    fn prefetch_distance(&self) -> u64 {
        self.image.prefetch_distance()
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

    // `stored` and `next_stored` are not passed on: the tree does not cover the places of a file's holes.
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;
    use crate::error::IntegrityError;
    use crate::tree::make_tree;
    use crate::verify::test_images::{params, sealed};

    /// An image or tree of which reads may wait for the medium.
    struct Slow(Vec<u8>, AtomicBool);

    impl Source for Slow {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_exact_at(pos, buf)
        }

        fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
            self.1.load(Ordering::Relaxed) && self.0.read_exact_at(pos, buf).is_ok()
        }
    }

    #[test]
    fn cached_reads_are_verified_and_do_not_wait() {
        let params = Params::default();
        let (mut image, tree, root) = sealed(300, &params);
        let right = image.clone();
        image[4096 * 7] ^= 1;
        let (image, tree) =
            (Slow(image, AtomicBool::new(false)), Slow(tree, AtomicBool::new(false)));
        let source = VerifiedSource::new(&image, &tree, 300, &params, root).unwrap();
        let mut buf = vec![0; 6000];
        for (image_cached, tree_cached) in [(false, false), (true, false), (false, true)] {
            image.1.store(image_cached, Ordering::Relaxed);
            tree.1.store(tree_cached, Ordering::Relaxed);
            assert!(!source.read_if_cached(8000, &mut buf));
        }
        image.1.store(true, Ordering::Relaxed);
        assert!(source.read_if_cached(8000, &mut buf) && buf == right[8000..14_000]);
        assert!(!source.read_if_cached(4096 * 7, &mut buf), "a wrong block");
        assert!(source.read_exact_at(4096 * 7, &mut buf).is_err());
        // What was checked needs no hash block.
        tree.1.store(false, Ordering::Relaxed);
        assert!(source.read_if_cached(8000, &mut buf) && buf == right[8000..14_000]);
        assert!(!source.read_if_cached(4096 * 200, &mut buf));
    }

    /// An image that changes.
    struct Changing(parking_lot::Mutex<Vec<u8>>);

    impl Source for Changing {
        fn size(&self) -> u64 {
            self.0.lock().size()
        }

        fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.lock().read_exact_at(pos, buf)
        }
    }

    #[test]
    fn blocks_are_checked_again_if_that_is_wanted() {
        let params = Params::default();
        let (image, tree, root) = sealed(100, &params);
        let image = Changing(parking_lot::Mutex::new(image));
        let source =
            VerifiedSource::new(&image, &tree, 100, &params, root).unwrap().check_each_read();
        let mut buf = vec![0; 6000];
        source.read_exact_at(8000, &mut buf).unwrap();
        image.0.lock()[9000] ^= 1;
        assert!(source.read_exact_at(8000, &mut buf).is_err());
        assert!(!source.read_if_cached(8000, &mut buf));
        let mut ranges = [ReadRange { pos: 8192, buf: &mut buf[..4096] }];
        assert!(source.read_ranges(&mut ranges, Access::Sparse).is_err());
        image.0.lock()[9000] ^= 1;
        source.read_exact_at(8000, &mut buf).unwrap();
    }

    #[test]
    fn the_words_of_a_range_have_its_bits() {
        for range in [0..1, 5..64, 63..65, 0..200, 32_767..32_769, 100..100, 32_760..98_400] {
            let mut bits = Vec::new();
            for (part, word, mask) in VerifiedSource::<&[u8], &[u8]>::words(range.clone()) {
                assert!(word < WORDS);
                let first = part as u64 * PART + word as u64 * 64;
                bits.extend((0..64).filter(|bit| mask & 1 << bit != 0).map(|bit| first + bit));
            }
            assert_eq!(bits, range.collect::<Vec<_>>());
        }
    }

    /// Bytes that are read by batches only.
    struct Batching<'a> {
        bytes: Vec<u8>,
        calls: &'a AtomicU64,
    }

    impl Source for Batching<'_> {
        fn size(&self) -> u64 {
            self.bytes.size()
        }

        fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.bytes.read_ranges(ranges, access)
        }

        fn prefers_batches(&self) -> bool {
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn reads_give_the_image(params in params(), blocks in 1..300_u64, reads in prop::collection::vec((any::<prop::sample::Index>(), 0..200_000_usize), 1..20)) {
            let (image, tree, root) = sealed(blocks, &params);
            let source = VerifiedSource::new(image.as_slice(), tree.as_slice(), blocks, &params, root).unwrap();
            for (start, len) in reads {
                let start = start.index(image.len());
                let len = len.min(image.len() - start);
                let mut buf = vec![0; len];
                source.read_exact_at(start as u64, &mut buf).unwrap();
                prop_assert!(buf == image[start..start + len]);
            }
            prop_assert!(source.read_exact_at(image.len() as u64, &mut [0]).is_err());
            prop_assert!(source.read_exact_at(u64::MAX, &mut [0]).is_err());
        }

        #[test]
        fn several_ranges_take_one_read_each_of_image_and_tree(params in params(), blocks in 2..300_u64, reads in prop::collection::vec((any::<prop::sample::Index>(), 0..20_000_usize), 1..20), flip in any::<prop::sample::Index>()) {
            let (mut image, tree, root) = sealed(blocks, &params);
            let mut buffers: Vec<(usize, Vec<u8>)> = Vec::new();
            for (start, len) in reads {
                let start = start.index(image.len());
                buffers.push((start, vec![0; len.min(image.len() - start)]));
            }
            let calls = [AtomicU64::new(0), AtomicU64::new(0)];
            let read = |image: &[u8], buffers: &mut [(usize, Vec<u8>)]| {
                let image = Batching { bytes: image.to_vec(), calls: &calls[0] };
                let tree = Batching { bytes: tree.clone(), calls: &calls[1] };
                let source = VerifiedSource::new(image, tree, blocks, &params, root).unwrap();
                let ranges = buffers.iter_mut().map(|(pos, buf)| ReadRange { pos: *pos as u64, buf });
                source.read_ranges(&mut ranges.collect::<Vec<_>>(), Access::Sparse)
            };
            read(&image, &mut buffers).unwrap();
            for (start, buf) in &buffers {
                prop_assert!(*buf == image[*start..start + buf.len()]);
            }
            for calls in &calls {
                prop_assert_eq!(calls.swap(0, Ordering::Relaxed), 1);
            }
            let flip = flip.index(image.len());
            image[flip] ^= 1;
            let size = params.data_block_size as usize;
            let touches = |(start, buf): &(usize, Vec<u8>)| {
                !buf.is_empty() && (start / size..=(start + buf.len() - 1) / size).contains(&(flip / size))
            };
            // A read of no bytes may check a block.
            if buffers.iter().all(|(_, buf)| !buf.is_empty()) {
                prop_assert_eq!(read(&image, &mut buffers).is_err(), buffers.iter().any(touches));
            }
        }

        #[test]
        fn a_change_is_found_or_does_not_matter(params in params(), blocks in 1..300_u64, at in any::<prop::sample::Index>(), bit in 0..8_u32, of_tree in any::<bool>()) {
            let (image, tree, root) = sealed(blocks, &params);
            let (mut changed_image, mut changed_tree) = (image.clone(), tree.clone());
            let changed = if of_tree && !tree.is_empty() { &mut changed_tree } else { &mut changed_image };
            let at = at.index(changed.len());
            changed[at] ^= 1 << bit;
            let source = VerifiedSource::new(changed_image, changed_tree, blocks, &params, root).unwrap();
            let mut found = 0;
            let size = params.data_block_size as usize;
            for (block, right) in image.chunks(size).enumerate() {
                let mut buf = vec![0; size];
                match source.read_exact_at((block * size) as u64, &mut buf) {
                    Ok(()) => prop_assert!(buf == right, "wrong bytes"),
                    Err(error) => {
                        prop_assert!(error.get_ref().unwrap().is::<IntegrityError>());
                        found += 1;
                    }
                }
            }
            prop_assert!(found > 0, "every byte of image and tree is covered");
        }
    }

    #[test]
    fn roots_are_those_of_veritysetup() {
        // `veritysetup format --salt=- --hash sha256` of 1, 2 and 200 blocks of zeroes.
        let zeroes = |blocks: u64, params: &Params| {
            let image = vec![0; blocks as usize * 4096];
            make_tree(&image, blocks, params, 1, |_, _| Ok(())).unwrap().to_string()
        };
        let params = Params::default();
        assert_eq!(
            zeroes(1, &params),
            "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7"
        );
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let params = Params::default();
        let (image, tree, root) = sealed(200, &params);
        let new = |image: &[u8], tree: &[u8], blocks, root| {
            VerifiedSource::new(image.to_vec(), tree.to_vec(), blocks, &params, root).map(drop)
        };
        assert!(new(&image, &tree, 200, root).is_ok());
        assert!(new(&image[..image.len() - 1], &tree, 200, root).is_err());
        assert!(new(&image, &tree[..tree.len() - 1], 200, root).is_err());
        assert!(new(&image, &tree, u64::MAX, root).is_err());
        assert!(new(&image, &tree, 200, Digest::new(&[0; 64])).is_err());
    }
}
