//! The parts of an image that need not be fetched, because other images on this machine have them.
//!
//! The hash tree is fetched first. It tells the digests of all blocks, and what was fetched of it is not fetched again.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferofs_read::{FileSource, Source};
use ferofs_verity::{BlockVerifier, Digest, Seal, appended_position};

use super::partial::unnamed_file;
use crate::cache::UNIT;
use crate::error::{Error, FetchErrorKind, Result};
use crate::fetch::{
    Base, Check, Checked, GapBudget, KnownBlocks, copy_blocks, copy_hashes, leaves, subtract,
};
use crate::ranges::range_of;
use ferofs_format::units::{to_u64, to_usize};

/// Known blocks, and the digests of the image.
pub(super) struct Reuse {
    known: Arc<KnownBlocks>,
    digests: Digests,
    gaps: GapBudget,
    early: Early,
    reused: AtomicU64,
}

/// The bytes that were fetched early, in a file without a name, at the positions of the image.
struct Early {
    file: FileSource,
    ranges: Vec<Range<u64>>,
}

/// Fetches bytes from a position on.
pub(super) type FetchAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<(), FetchErrorKind>;

/// Bytes at the start that hold the superblock of every image.
const HEAD: u64 = 64 << 10;
/// Bytes of the tree that are fetched by one request.
const PART: u64 = 4 << 20;
/// The longest gap between missing blocks that is fetched with them: it arrives in the time of a request over most lines.
const LONGEST_GAP: u64 = 64 << 10;

impl Reuse {
    /// Reads the digests of `bases`, and fetches the tree of the image of `size` bytes with this root. Its superblock is at `position`, or
    /// behind the image. Bytes can be kept in `folder`. Returns `None` if nothing can be reused.
    ///
    /// # Errors
    /// [`FetchErrorKind`] in [`Error::Fetch`] of `location` if the tree does not arrive; [`Error::File`].
    pub(super) fn prepare(
        size: u64,
        location: &str,
        root: Digest,
        position: Option<u64>,
        bases: Vec<Base>,
        folder: &Path,
        fetch: FetchAt<'_>,
    ) -> Result<Option<Self>> {
        if bases.is_empty() {
            return Ok(None);
        }
        let file = unnamed_file(folder).map_err(Error::file(folder, "create a file in"))?;
        file.set_len(size).map_err(Error::file(folder, "resize a file in"))?;
        let load = |range: Range<u64>| {
            let range = range.start..range.end.min(size);
            let mut at = range.start;
            while at < range.end {
                let mut bytes = vec![0; to_usize(range.end.saturating_sub(at).min(PART))];
                let failed = |kind: FetchErrorKind| Error::Fetch {
                    location: location.to_owned(),
                    error: kind.into(),
                };
                fetch(at, &mut bytes).map_err(failed)?;
                file.write_all_at(&bytes, at).map_err(Error::file(folder, "write a file in"))?;
                at = at.saturating_add(to_u64(bytes.len()));
            }
            Ok::<_, Error>(range)
        };
        let again = file.try_clone().and_then(|file| FileSource::new(file, 0));
        let stored = again.map_err(Error::file(folder, "read a file in"))?;
        let mut ranges = Vec::new();
        let position = match position {
            Some(position) => position,
            None => {
                ranges.push(load(0..HEAD.min(size))?);
                match appended_position(&stored) {
                    Ok(position) => position,
                    // The check of the complete image will tell.
                    Err(_) => return Ok(None),
                }
            }
        };
        load(position..position.saturating_add(UNIT))?;
        let Ok(seal) = Seal::read(&stored, position) else { return Ok(None) };
        let known = KnownBlocks::start(seal.superblock.params.clone(), move || bases);
        known.wait();
        let end = seal
            .byte_len()
            .ok()
            .and_then(|len| position.checked_add(len))
            .filter(|end| *end <= size);
        let Some(end) = end.filter(|_| !known.is_empty()) else { return Ok(None) };
        let tree = file.try_clone().and_then(|file| FileSource::new(file, 0));
        let tree = tree.map_err(Error::file(folder, "read a file in"))?;
        let Ok(verifier) = seal.verifier(tree, root) else { return Ok(None) };
        let digests = Digests { verifier, tree_start: seal.tree_start() };
        let leaves = digests.leaves();
        // From the top, because hashes are checked with those above.
        load(position..if leaves.is_empty() { end } else { leaves.start })?;
        let mut missing = vec![leaves.clone()];
        let copied = copy_hashes(&known, &digests, &leaves, |start, bytes| {
            missing = subtract(std::mem::take(&mut missing), &range_of(start, bytes));
            file.write_all_at(bytes, start)
        });
        let copied = copied.map_err(Error::file(folder, "write a file in"))?;
        for range in missing {
            load(range)?;
        }
        ranges.push(position..end);
        let early = Early { file: stored, ranges };
        let (gaps, reused) = (GapBudget::default(), AtomicU64::new(copied));
        Ok(Some(Self { known, digests, gaps, early, reused }))
    }

    /// Fills `buf`, the bytes of the image from `start` on, as far as they are known. Returns what must be fetched.
    pub(super) fn fill(&self, start: u64, buf: &mut [u8]) -> io::Result<Vec<Range<u64>>> {
        let range = range_of(start, buf);
        let within = |pos: u64| to_usize(pos.saturating_sub(start));
        let copied = copy_blocks(
            &self.known,
            &self.digests,
            range.clone(),
            &self.gaps,
            LONGEST_GAP,
            |pos, bytes| {
                let at = within(pos);
                if let Some(buf) = buf.get_mut(at..at.saturating_add(bytes.len())) {
                    buf.copy_from_slice(bytes);
                }
                Ok(())
            },
        )?;
        self.reused.fetch_add(copied.reused, Ordering::Relaxed);
        copied.requests.iter().for_each(|request| self.gaps.record(request, &copied.missing));
        // Not before: the other requests may be long ones, of which a part is there.
        let mut missing = copied.requests;
        for early in &self.early.ranges {
            let part = early.start.max(range.start)..early.end.min(range.end);
            if !part.is_empty() {
                missing = subtract(missing, &part);
                let buf = buf.get_mut(within(part.start)..within(part.end)).unwrap_or_default();
                self.early.file.read_exact_at(part.start, buf)?;
            }
        }
        Ok(missing)
    }

    /// Bytes that were copied.
    pub(super) fn reused(&self) -> u64 {
        self.reused.load(Ordering::Relaxed)
    }
}

/// The digests of the image, from its tree.
struct Digests {
    verifier: BlockVerifier<FileSource>,
    tree_start: u64,
}

impl Check for Digests {
    fn align(&self) -> u64 {
        self.block_size().max(self.verifier.layout().hash_block_size())
    }

    fn needs(&self, _: &Range<u64>) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn block_size(&self) -> u64 {
        self.verifier.layout().data_block_size()
    }

    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    fn digests(&self, range: &Range<u64>) -> Vec<Digest> {
        let (size, len) = (self.block_size(), self.verifier.layout().data_len());
        let block = |pos: u64| pos.min(len) / size;
        // With a wrong tree, all is fetched, and the check of the complete image will tell.
        self.verifier.digests(block(range.start)..block(range.end)).unwrap_or_default()
    }

    fn leaves(&self) -> Range<u64> {
        leaves(self.verifier.layout(), self.tree_start)
    }

    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    fn check(&self, start: u64, bytes: &[u8]) -> Checked {
        let verified = match start.checked_sub(self.tree_start) {
            Some(within) => {
                self.verifier.verify_tree(within / self.verifier.layout().hash_block_size(), bytes)
            }
            None => self.verifier.verify(start / self.block_size(), bytes),
        };
        if verified.is_ok() { Checked::Right } else { Checked::Wrong }
    }
}
