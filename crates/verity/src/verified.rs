//! A source that checks each block against a hash tree when it is first read.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ferofs_read::Source;

use crate::digest::Digest;
use crate::error::{Error, IntegrityError, Result};
use crate::layout::TreeLayout;
use crate::params::{BlockHasher, Params};
use crate::tree::to_usize;

/// Bytes of checked hash blocks that are kept in memory.
const CACHE: usize = 512 << 10;
/// Bytes that are read and checked at a time if a read does not start and end between blocks.
const PIECE: u64 = 64 << 10;

/// Words of the bits for a part of the blocks.
const WORDS: usize = 512;
/// Blocks of such a part.
const PART: u64 = 64 * WORDS as u64;

/// The word of a block's bit in its part.
const fn word_of(block: u64) -> usize {
    // Less than `WORDS`.
    (block % PART / 64) as usize
}

/// An image whose blocks are checked: a read returns right bytes, or an [`IntegrityError`].
///
/// A block is checked when it is first read, together with the blocks of the tree above it. One bit for each data block tells
/// which blocks have been checked; reading those again does not check them again, as with dm-verity's `check_at_most_once`.
#[derive(Debug)]
pub struct VerifiedSource<S, T> {
    image: S,
    tree: T,
    /// The position of the tree's first byte.
    tree_start: u64,
    layout: TreeLayout,
    hasher: BlockHasher,
    root: Digest,
    /// A bit for each data block that was checked; memory only for parts that were read.
    checked: Vec<OnceLock<Box<[AtomicU64; WORDS]>>>,
    cache: Mutex<HashBlocks>,
}

/// Checked hash blocks, by number.
#[derive(Debug, Default)]
struct HashBlocks {
    blocks: HashMap<u64, (Arc<[u8]>, u64)>,
    /// Counts the uses, to find the block that was not used for the longest time.
    uses: u64,
}

impl HashBlocks {
    fn get(&mut self, number: u64) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let (bytes, used) = self.blocks.get_mut(&number)?;
        *used = self.uses;
        Some(Arc::clone(bytes))
    }

    fn insert(&mut self, number: u64, bytes: Arc<[u8]>) {
        let most = (CACHE / bytes.len().max(1)).max(1);
        while self.blocks.len() >= most {
            let oldest = self.blocks.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number);
            let Some(oldest) = oldest else { break };
            self.blocks.remove(&oldest);
        }
        self.blocks.insert(number, (bytes, self.uses));
    }
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
        let layout = TreeLayout::new(data_blocks, params)?;
        let problem = if image.size() < layout.data_len() {
            Some("is more than the image has")
        } else if tree.size().checked_sub(tree_start).is_none_or(|len| len < layout.len()) {
            Some("needs a larger hash tree")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::Parameter { parameter: "number of data blocks", problem });
        }
        if root.as_bytes().len() != params.algorithm.digest_len() {
            return Err(Error::Parameter {
                parameter: "root hash",
                problem: "has another length than the algorithm's digests",
            });
        }
        let parts = to_usize(data_blocks.div_ceil(PART));
        let mut checked = Vec::new();
        if checked.try_reserve_exact(parts).is_err() {
            let problem = "needs more memory than there is";
            return Err(Error::Parameter { parameter: "number of data blocks", problem });
        }
        checked.resize_with(parts, OnceLock::new);
        let (hasher, cache) = (params.hasher(), Mutex::default());
        Ok(Self { image, tree, tree_start, layout, hasher, root, checked, cache })
    }

    fn is_checked(&self, block: u64) -> bool {
        let part = self.checked.get(to_usize(block / PART)).and_then(OnceLock::get);
        part.is_some_and(|part| part[word_of(block)].load(Ordering::Acquire) & 1 << (block % 64) != 0)
    }

    fn mark_checked(&self, block: u64) {
        if let Some(part) = self.checked.get(to_usize(block / PART)) {
            let part = part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
            part[word_of(block)].fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    fn are_checked(&self, pos: u64, len: u64) -> bool {
        let size = self.layout.data_block_size();
        (pos / size..=pos.saturating_add(len).saturating_sub(1) / size).all(|block| self.is_checked(block))
    }

    /// The digest that entry `number` of `level` holds, from a checked hash block; above the highest level, the root.
    fn expected(&self, level: usize, number: u64) -> io::Result<Digest> {
        let Some(place) = self.layout.levels().get(level) else { return Ok(self.root) };
        let (index, entry) = (number / self.layout.per_block(), number % self.layout.per_block());
        let block = place.first + index;
        let cached = self.cache().get(block);
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                let mut bytes = vec![0; to_usize(self.layout.hash_block_size())];
                let position = block * self.layout.hash_block_size();
                self.tree.read_exact_at(self.tree_start + position, &mut bytes)?;
                if self.hasher.hash(&bytes) != self.expected(level + 1, index)? {
                    return Err(IntegrityError { is_hash: true, block, position }.into());
                }
                let bytes: Arc<[u8]> = bytes.into();
                self.cache().insert(block, Arc::clone(&bytes));
                bytes
            }
        };
        let start = to_usize(entry * self.layout.digest_len());
        let digest = bytes.get(start..).and_then(|rest| rest.get(..to_usize(self.layout.digest_len())));
        Ok(Digest::new(digest.unwrap_or_default()))
    }

    /// Checks the blocks in `bytes`, which starts at `pos`; both are multiples of the block size.
    fn check(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        let size = self.layout.data_block_size();
        for (block, digest) in (pos / size..).zip(self.hasher.hash_blocks(bytes, to_usize(size))) {
            // Also those that were checked before: these are other bytes, and others may have changed them.
            if digest != self.expected(0, block)? {
                return Err(IntegrityError { is_hash: false, block, position: block * size }.into());
            }
            self.mark_checked(block);
        }
        Ok(())
    }

    fn read(
        &self,
        pos: u64,
        mut buf: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = pos.checked_add(buf.len() as u64).filter(|end| *end <= self.layout.data_len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if buf.is_empty() || self.are_checked(pos, end - pos) {
            return read(pos, buf);
        }
        let size = self.layout.data_block_size();
        let mut at = pos;
        while at < end {
            let whole = (end - at) / size * size;
            if at.is_multiple_of(size) && whole > 0 {
                // Whole blocks are checked where the caller wants them.
                let (head, tail) = std::mem::take(&mut buf).split_at_mut(to_usize(whole));
                read(at, head)?;
                self.check(at, head)?;
                (at, buf) = (at + whole, tail);
                continue;
            }
            let start = at - at % size;
            let piece_end = end.next_multiple_of(size).min(start + PIECE.max(size));
            let mut piece = vec![0; to_usize(piece_end - start)];
            read(start, &mut piece)?;
            self.check(start, &piece)?;
            let len = to_usize(piece_end.min(end) - at);
            let (head, tail) = std::mem::take(&mut buf).split_at_mut(len);
            head.copy_from_slice(&piece[to_usize(at - start)..][..len]);
            (at, buf) = (at + len as u64, tail);
        }
        Ok(())
    }

    fn cache(&self) -> MutexGuard<'_, HashBlocks> {
        // Each change is one insertion or removal, which a panic cannot leave half done.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Source, T: Source> Source for VerifiedSource<S, T> {
    /// The part of the image that the tree covers.
    fn size(&self) -> u64 {
        self.layout.data_len()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(pos, buf, |pos, buf| self.image.read_exact_at(pos, buf))
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(pos, buf, |pos, buf| self.image.read_sparse_at(pos, buf))
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        // Blocks that were not checked are read by the other functions.
        self.are_checked(pos, buf.len() as u64) && self.image.read_if_cached(pos, buf)
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.image.will_need(pos, len);
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        self.image.identity()
    }

    // `stored` and `next_stored` are not passed on: where a file has holes is not covered by the tree.
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::params::HashAlgorithm;
    use crate::tree::make_tree;

    /// An image and its tree.
    fn sealed(blocks: u64, params: &Params) -> (Vec<u8>, Vec<u8>, Digest) {
        let len = blocks as usize * params.data_block_size as usize;
        let image: Vec<u8> = (0..len).map(|n| ((n * n) >> 9) as u8 ^ (n >> 12) as u8).collect();
        let mut tree = vec![0; TreeLayout::new(blocks, params).unwrap().len() as usize];
        let root = make_tree(&image, blocks, params, 3, |pos, bytes| {
            tree[pos as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        (image, tree, root.unwrap())
    }

    fn params() -> impl Strategy<Value = Params> {
        let algorithm = prop_oneof![Just(HashAlgorithm::Sha256), Just(HashAlgorithm::Sha512)];
        let salt = prop_oneof![Just(vec![]), prop::collection::vec(any::<u8>(), 0..=SALT_MAX)];
        (algorithm, 9..13_u32, 9..13_u32, salt).prop_map(|(algorithm, data, hash, salt)| Params {
            algorithm,
            data_block_size: 1 << data,
            hash_block_size: 1 << hash,
            salt,
        })
    }

    use crate::params::SALT_MAX;

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
        assert_eq!(zeroes(1, &params), "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7");
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
