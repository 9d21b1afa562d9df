//! Checks bytes against the hash tree before they are stored.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ferofs_read::Source;
use ferofs_verity::{BlockVerifier, Digest, Error, IntegrityError, Seal, TreeLayout};

use crate::cache::{Entry, UNIT, units_in};
use crate::ranges::{len_of, range_of};
use ferofs_format::units::to_usize;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The bytes have the digests of the hash tree.
    Right,
    /// Nothing covers these bytes.
    NotCovered,
    /// They have others.
    Wrong,
}

/// Checks bytes that arrived from a server.
pub trait Check: Send + Sync {
    /// Start and end of checked ranges are multiples of this, or the end of the object.
    fn align(&self) -> u64;

    /// No request crosses this position: what is after it is needed to check what is before it.
    fn border(&self) -> u64 {
        u64::MAX
    }

    /// The ranges of the object that must be stored before `range` can be checked, in the order in
    /// which they can be checked. Those of a range after the border are at lower positions.
    fn needs(&self, range: &Range<u64>) -> Vec<Range<u64>>;

    /// Bytes of a block that has a digest.
    fn block_size(&self) -> u64 {
        UNIT
    }

    /// The digests of the first blocks of `range`, which starts with a block: of as many as are
    /// known.
    fn digests(&self, _range: &Range<u64>) -> Vec<Digest> {
        Vec::new()
    }

    /// The part of the object that has the digests of all blocks of the image, one after the other.
    fn leaves(&self) -> Range<u64> {
        0..0
    }

    /// Checks the bytes that start at `start`.
    fn check(&self, start: u64, bytes: &[u8]) -> Checked;
}

/// The result of checking what is stored, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedEntry {
    /// Bytes with the digests of the hash tree.
    pub right: u64,
    /// Bytes with others. They were removed.
    pub wrong: u64,
    /// Bytes that nothing covers, as the superblock before the hash tree.
    pub not_covered: u64,
}

/// Bytes that are checked at a time, if none are wrong.
const PIECE: u64 = 1 << 20;

/// Checks what is stored of `range`, which has whole blocks, and removes wrong blocks. The hashes
/// of the range must be right.
///
/// # Errors
/// The errors of the disk.
pub(crate) fn check_stored(
    entry: &Entry,
    check: &dyn Check,
    range: &Range<u64>,
    verified: &mut VerifiedEntry,
) -> io::Result<()> {
    let block = check.align().max(UNIT);
    for run in entry.stored(units_in(range))? {
        let Range { start: mut at, end } = entry.bytes_of(&run);
        let mut step = PIECE.max(block);
        while at < end {
            let piece = at..end.min(at.saturating_add(step));
            let len = len_of(&piece);
            let mut bytes = vec![0; to_usize(len)];
            // A part may have been evicted meanwhile.
            let is_stored = entry.read(piece.start, &mut bytes)?;
            let checked = is_stored.then(|| check.check(piece.start, &bytes));
            if step > block && matches!(checked, None | Some(Checked::Wrong)) {
                // Finds the wrong blocks of the piece.
                step = block;
                continue;
            }
            let count = match checked {
                Some(Checked::Right) => Some(&mut verified.right),
                Some(Checked::NotCovered) => Some(&mut verified.not_covered),
                Some(Checked::Wrong) => {
                    entry.remove(units_in(&piece))?;
                    Some(&mut verified.wrong)
                }
                None => None,
            };
            if let Some(count) = count {
                *count = count.saturating_add(len);
            }
            at = piece.end;
            if at.is_multiple_of(PIECE) {
                step = PIECE.max(block);
            }
        }
    }
    Ok(())
}

/// Checks an object, with its hash tree in it, against a root hash.
pub struct TreeCheck {
    verifier: BlockVerifier<StoredTree>,
    entry: Arc<Entry>,
    /// The bytes of the object that are the tree.
    tree: Range<u64>,
}

/// The range of the digests of all blocks of an image, one after the other: the lowest level of the
/// tree that starts at `tree_start`.
pub(crate) fn leaves(layout: &TreeLayout, tree_start: u64) -> Range<u64> {
    let size = layout.hash_block_size();
    let blocks = layout.hashes_of(&(0..layout.data_blocks())).pop().unwrap_or_default();
    let at = |block: u64| tree_start.saturating_add(block.saturating_mul(size));
    at(blocks.start)..at(blocks.end)
}

/// The tree as far as it is in the cache.
struct StoredTree(Arc<Entry>);

impl Source for StoredTree {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.0.read(pos, buf)? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

impl TreeCheck {
    /// Checks what is stored in `entry`, whose seal is `seal`.
    ///
    /// # Errors
    /// As [`Seal::verifier`].
    pub fn new(
        entry: &Arc<Entry>,
        seal: &Seal,
        root: Digest,
    ) -> Result<Self, ferofs_verity::Error> {
        let verifier = seal.verifier(StoredTree(Arc::clone(entry)), root)?;
        let start = seal.tree_start();
        let tree = start..start.saturating_add(verifier.layout().len());
        if !tree.is_empty() && start.saturating_sub(start % UNIT) < verifier.layout().data_len() {
            let problem = "does not leave 4096 bytes between the image and its hash tree";
            return Err(Error::Parameter { parameter: "position of the hash tree", problem });
        }
        Ok(Self { verifier, entry: Arc::clone(entry), tree })
    }

    /// The levels of the tree above its leaves, in bytes of the object.
    pub(crate) fn upper_levels(&self) -> Range<u64> {
        let layout = self.verifier.layout();
        // The last of the blocks above the first block of data is the first leaf.
        let leaves = layout.hashes_of(&(0..1)).last().map_or(0, |leaf| leaf.start);
        self.tree.start
            ..self.tree.start.saturating_add(leaves.saturating_mul(layout.hash_block_size()))
    }

    /// The number of the block of data at `pos`.
    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    fn data_block(&self, pos: u64) -> u64 {
        pos / self.block_size()
    }

    /// The position of these blocks of the tree in the object.
    fn tree_bytes(&self, blocks: &Range<u64>) -> Range<u64> {
        let size = self.verifier.layout().hash_block_size();
        let at = |block: u64| self.tree.start.saturating_add(block.saturating_mul(size));
        at(blocks.start)..at(blocks.end)
    }

    /// The part of `range` that is data, and the blocks of the tree that are in it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`start` and `end` are in the tree, and blocks are not empty"
    )]
    fn parts(&self, range: &Range<u64>) -> (Range<u64>, Range<u64>) {
        let layout = self.verifier.layout();
        let data = range.start..range.end.min(layout.data_len()).max(range.start);
        let (start, end) = (range.start.max(self.tree.start), range.end.min(self.tree.end));
        let size = layout.hash_block_size();
        let hashes = if start < end {
            (start - self.tree.start) / size..(end - self.tree.start).div_ceil(size)
        } else {
            0..0
        };
        (data, hashes)
    }
}

impl Check for TreeCheck {
    fn align(&self) -> u64 {
        let layout = self.verifier.layout();
        layout.data_block_size().max(layout.hash_block_size())
    }

    fn border(&self) -> u64 {
        self.tree.start
    }

    fn needs(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let layout = self.verifier.layout();
        let (data, hashes) = self.parts(range);
        let data_blocks = self.data_block(data.start)..data.end.div_ceil(self.block_size());
        let mut blocks = layout.hashes_of(&data_blocks);
        blocks.extend(layout.hashes_of_hashes(&hashes));
        // Hashes above hashes of the range come with them, or are at lower positions.
        let outside = |need: Range<u64>| match hashes.is_empty() {
            true => need,
            false => need.start..need.end.min(range.start),
        };
        blocks
            .iter()
            .map(|blocks| self.tree_bytes(blocks))
            .map(outside)
            .filter(|need| !need.is_empty())
            .collect()
    }

    fn block_size(&self) -> u64 {
        self.verifier.layout().data_block_size()
    }

    fn digests(&self, range: &Range<u64>) -> Vec<Digest> {
        let (data, _) = self.parts(range);
        self.verifier
            .digests(self.data_block(data.start)..self.data_block(data.end))
            .unwrap_or_default()
    }

    fn leaves(&self) -> Range<u64> {
        leaves(self.verifier.layout(), self.tree.start)
    }

    fn check(&self, start: u64, bytes: &[u8]) -> Checked {
        let range = range_of(start, bytes);
        let (data, hashes) = self.parts(&range);
        if data.is_empty() && hashes.is_empty() {
            return Checked::NotCovered;
        }
        let part = |part: &Range<u64>| {
            let within = |pos: u64| to_usize(pos.saturating_sub(start));
            bytes.get(within(part.start)..within(part.end)).unwrap_or_default()
        };
        let mut outcome = Ok(());
        if !hashes.is_empty() {
            outcome = self.verifier.verify_tree(hashes.start, part(&self.tree_bytes(&hashes)));
        }
        if outcome.is_ok() && !data.is_empty() {
            outcome = self.verifier.verify(self.data_block(data.start), part(&data));
        }
        match outcome {
            Ok(()) => Checked::Right,
            Err(Error::Integrity(IntegrityError { is_hash: true, position, .. })) => {
                let at = self.tree.start.saturating_add(position);
                if !range.contains(&at) {
                    // A stored block of the tree was changed on the disk: it is fetched again by
                    // the next request.
                    let block = at..at.saturating_add(self.verifier.layout().hash_block_size());
                    let _ = self.entry.remove(units_in(&block));
                }
                Checked::Wrong
            }
            Err(_) => Checked::Wrong,
        }
    }
}
