//! Checks what the cache has stored.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::{Access, ReadRange, Source};
use ferofs_verity::{IntegrityError, Seal, VerifiedSource};

use super::known::Known;
use crate::cache::{Cache, Entry, UNIT, units_in};
use crate::error::{Error, Result};
use crate::fetch::{Check, Checked, TreeCheck};
use crate::numbers::{len_of, range_of, to_usize};
use crate::object::later;
use crate::source::Supply;

/// The result of [`verify_entry`], in bytes.
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

/// Bytes that are checked at a time.
const PIECE: u64 = 1 << 20;

/// Checks all that is stored of the entry `key` against its root hash, and removes what is wrong: it will be fetched again. Returns
/// `None` for an entry without a root hash.
///
/// # Errors
/// [`Error::Cache`], [`Error::Verity`].
pub fn verify_entry(cache: &Cache, key: &str) -> Result<Option<VerifiedEntry>> {
    let Some(info) = cache.info(key)? else { return Ok(None) };
    let root = info.roothash.as_ref().and_then(|root| root.parse().ok());
    let Some(known) = root.map(|root| Known::by_root(cache, root, None)).transpose()?.flatten() else {
        return Ok(None);
    };
    let (Some((seal, root)), true) = (known.seal()?, known.key() == key) else { return Ok(None) };
    let entry = Arc::new(cache.entry(key, &info)?);
    let check = TreeCheck::new(&entry, &seal, root)?;
    let units = entry.size().div_ceil(UNIT);
    let mut verified = VerifiedEntry::default();
    // The tree first, from its top: data is checked against hashes that were checked.
    let border = (check.border() / UNIT).min(units);
    for range in [border..units, 0..border] {
        for run in runs(&entry, range)? {
            verify_run(&entry, &check, run, &mut verified)?;
        }
    }
    Ok(Some(verified))
}

fn runs(entry: &Entry, units: Range<u64>) -> Result<Vec<Range<u64>>> {
    entry.stored(units).map_err(Error::cache(entry.path(), "read"))
}

fn verify_run(entry: &Entry, check: &TreeCheck, run: Range<u64>, verified: &mut VerifiedEntry) -> Result<()> {
    let Range { start: mut at, end } = entry.bytes_of(&run);
    while at < end {
        let mut range = at..end.min(at.saturating_add(PIECE));
        at = range.end;
        if check_range(entry, check, &range, verified)? {
            continue;
        }
        // Finds the wrong blocks of the piece.
        let step = check.align().max(UNIT);
        while range.start < at {
            range.end = at.min(range.start.saturating_add(step));
            if !check_range(entry, check, &range, verified)? {
                verified.wrong = verified.wrong.saturating_add(len_of(&range));
                let failed = Error::cache(entry.path(), "remove a part of");
                entry.remove(units_in(&range)).map_err(failed)?;
            }
            range.start = range.end;
        }
    }
    Ok(())
}

/// Checks a range; returns false if a part of it is wrong, and counts nothing then.
fn check_range(
    entry: &Entry,
    check: &TreeCheck,
    range: &Range<u64>,
    verified: &mut VerifiedEntry,
) -> Result<bool> {
    let len = len_of(range);
    let mut bytes = vec![0; to_usize(len)];
    if !entry.read(range.start, &mut bytes).map_err(Error::cache(entry.path(), "read"))? {
        // It was evicted meanwhile.
        return Ok(true);
    }
    let count = match check.check(range.start, &bytes) {
        Checked::Right => &mut verified.right,
        Checked::NotCovered => &mut verified.not_covered,
        Checked::Wrong => return Ok(false),
    };
    *count = count.saturating_add(len);
    Ok(true)
}

/// How often parts of one range are fetched again: its data, and the hash blocks above it. A broken disk must not keep a reader for ever.
const REPAIRS: usize = 16;

/// Verifies what `S` reads from the cache. The disk may have changed it, or somebody who can write to the cache: such blocks are removed
/// and fetched again.
pub(super) struct RepairedSource<S> {
    verified: VerifiedSource<S, S>,
    supply: Arc<dyn Supply>,
    /// How long a read waits for the server.
    patience: Duration,
    tree_start: u64,
    data_block_size: u64,
    hash_block_size: u64,
}

impl<S: Source + Clone> RepairedSource<S> {
    /// Verifies `stored`, an object with the seal `seal`.
    pub(super) fn new(
        stored: S,
        seal: &Seal,
        root: ferofs_verity::Digest,
        supply: Arc<dyn Supply>,
        patience: Duration,
    ) -> Result<Self> {
        let verified = seal.verified(stored.clone(), stored, root)?.check_each_read();
        let layout = verified.verifier().layout();
        let (data_block_size, hash_block_size) = (layout.data_block_size(), layout.hash_block_size());
        Ok(Self {
            verified,
            supply,
            patience,
            tree_start: seal.tree_start(),
            data_block_size,
            hash_block_size,
        })
    }
}

impl<S: Source> RepairedSource<S> {
    /// The bytes of the object that are to be checked again, and fetched again if they are wrong, after a read of `wanted` failed.
    fn wrong_bytes(&self, error: &io::Error, wanted: &[Range<u64>]) -> Option<Range<u64>> {
        let error = error.get_ref()?.downcast_ref::<IntegrityError>()?;
        let at = error.position;
        if error.is_hash {
            let start = self.tree_start.saturating_add(at);
            return Some(start..start.saturating_add(self.hash_block_size));
        }
        // The bytes behind it are probably also wrong.
        let block = at..at.saturating_add(self.data_block_size);
        let read = wanted.iter().find(|range| range.start < block.end && block.start < range.end);
        Some(at..read.map_or(block.end, |range| range.end.max(block.end)))
    }

    /// Calls `read`, which reads `wanted`, and again after wrong bytes have been fetched again.
    fn read(&self, wanted: &[Range<u64>], mut read: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut deadline = None;
        for _ in 0..REPAIRS.saturating_mul(wanted.len()) {
            let Err(error) = read() else { return Ok(()) };
            let Some(wrong) = self.wrong_bytes(&error, wanted) else { return Err(error) };
            let deadline = *deadline.get_or_insert_with(|| later(Instant::now(), self.patience));
            // The first error tells more.
            self.supply.repair(wrong, deadline).map_err(|_| error)?;
        }
        read()
    }
}

impl<S: Source> Source for RepairedSource<S> {
    fn size(&self) -> u64 {
        self.verified.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(&[range_of(pos, buf)], || self.verified.read_exact_at(pos, buf))
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(&[range_of(pos, buf)], || self.verified.read_sparse_at(pos, buf))
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        let wanted: Vec<_> = ranges.iter().map(|range| range_of(range.pos, range.buf)).collect();
        self.read(&wanted, || self.verified.read_ranges(ranges, access))
    }

    fn prefers_batches(&self) -> bool {
        self.verified.prefers_batches()
    }

    fn prefetch_distance(&self) -> u64 {
        self.verified.prefetch_distance()
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        // Wrong bytes are repaired by the read that follows.
        self.verified.read_if_cached(pos, buf)
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.verified.will_need(pos, len);
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        self.verified.identity()
    }
}
