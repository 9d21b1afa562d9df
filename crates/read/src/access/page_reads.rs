//! Classifies the small reads of a page cache, for a server that stores more pages there than a
//! read asked for.
//!
//! The kernel asks only for pages that its page cache lacks, one request for each. Storing more
//! pages pays only if they are read later, so that the evidence decides: the reads of a unit (a
//! range of a file) are counted, and a unit that was read several times will probably be read
//! again. Strides are recognised as well. If memory is short, the kernel evicts stored pages before
//! they are read, and asks for them again. All memory is fixed; files share table entries, and so
//! do units, which costs a wrong guess at worst.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ferofs_format::Nid;
use parking_lot::{Mutex, MutexGuard};

use crate::access::table_entry;

/// Bytes of a file for which stored pages are remembered together.
const REGION: u64 = 1 << 20;
/// Entries of the table of regions: 64 KiB of memory. With more regions in use, they replace each
/// other.
const REGIONS: usize = 4096;
/// Entries of the table of units: 128 KiB of memory. With more units in use, they replace each
/// other, and their reads are counted anew.
const UNITS: usize = 16 << 10;
/// Entries among which a unit has its own. With one, units would replace each other in a table that
/// is a quarter full.
const SET: usize = 4;
/// Bytes for each bit that says whether a part of a region was stored: 64 bits for a region.
const PART: u64 = REGION / 64;
/// Reads after which the counts of all units halve, so that old reads are forgotten. With all units
/// in use, it is 16 reads of each.
#[expect(clippy::as_conversions, reason = "`usize` has at most 64 bits")]
const PERIOD: u64 = 16 * UNITS as u64;
/// The thrashing score rises by this for each read of a page that was stored before (the kernel
/// evicted it), and falls by 1 for any other read: it rises when more than a third of the reads ask
/// again.
const EVICTED_WEIGHT: u32 = 2;
/// The largest score, so that it falls again soon. Above half of it, the kernel evicts stored pages
/// early.
const MAX_SCORE: u32 = 1024;
/// Entries of the table of strides. With more files in use, they replace each other and start anew.
const FILES: usize = 64;
/// Bytes of the smallest step of a stride. Shorter steps mostly stay within one cluster, and its
/// other pages are wanted as well.
const MIN_STEP: u64 = 32 << 10;
/// Equal steps after which a stride is trusted; before that, nothing is stored for it.
const TRUSTED: u32 = 3;
/// Steps that are first stored ahead of a trusted stride. The number doubles each time that all of
/// them were read...
const FIRST_AHEAD: u32 = 2;
/// ...up to this many, so that a stride that ends wastes no more.
const MAX_AHEAD: u32 = 32;

/// The access patterns of an image's files.
#[derive(Debug)]
pub struct Patterns {
    units: Box<[AtomicU64]>,
    /// Random reads so far.
    reads: AtomicU64,
    regions: Box<[Region]>,
    /// How many of the pages read were stored before: see [`EVICTED_WEIGHT`].
    score: AtomicU32,
    strides: [Mutex<Stride>; FILES],
}

/// The parts of a region that were stored whole, and have not been asked for again.
#[derive(Debug, Default)]
struct Region {
    /// Identifies file and region.
    mark: AtomicU64,
    /// A bit for each part.
    parts: AtomicU64,
}

/// The last read of a file, or the last step that was stored ahead of it.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    nid: u64,
    at: u64,
    /// From the read before, if there was one, and if it is at least [`MIN_STEP`].
    step: Option<u64>,
    /// Equal steps so far.
    steps: u32,
    /// Steps that were stored ahead of the last read.
    ahead: u32,
    /// There was no read before.
    is_first: bool,
}

/// The next steps of a stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Bytes from one step to the next.
    pub step: u64,
    /// The number of steps.
    pub count: u32,
}

/// The access pattern that a small read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Perhaps a stride; with the steps to store if it is trusted. Nothing else must be stored:
    /// pages right before the next step would make the kernel take it for a sequence, and read all
    /// pages between the steps from then on.
    Stride(Option<Ahead>),
    /// A random read.
    Random,
    /// A random read, and the kernel evicts stored pages before they are read.
    Thrashing,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            units: (0..UNITS).map(|_| AtomicU64::new(0)).collect(),
            reads: AtomicU64::new(0),
            regions: (0..REGIONS).map(|_| Region::default()).collect(),
            score: AtomicU32::new(0),
            strides: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Patterns {
    /// Records a small read of `nid`, and classifies it.
    pub fn note(&self, nid: Nid, offset: u64) -> Pattern {
        let mut stride = self.stride(nid);
        if stride.note(nid.get(), offset) {
            return Pattern::Stride(stride.ahead());
        }
        drop(stride);
        let (region, mark) = self.region(nid, offset);
        let part = 1 << (offset % REGION / PART);
        let was_stored = region.mark.load(Relaxed) == mark
            && region.parts.load(Relaxed) & part != 0
            && region.parts.fetch_and(!part, Relaxed) & part != 0;
        // Two threads at once may lose a count; only speed depends on it.
        let score = match (self.score.load(Relaxed), was_stored) {
            (score, true) => score.saturating_add(EVICTED_WEIGHT).min(MAX_SCORE),
            (score, false) => score.saturating_sub(1),
        };
        self.score.store(score, Relaxed);
        if score > MAX_SCORE / 2 { Pattern::Thrashing } else { Pattern::Random }
    }

    /// Counts a random read of the unit that starts at `start`; returns the reads that are not
    /// forgotten.
    pub fn count_read(&self, nid: Nid, start: u64) -> u16 {
        let period = self.reads.fetch_add(1, Relaxed) / PERIOD;
        let (mark, unit) = self.unit(nid, start);
        let count = Count { mark, period, reads: 0 }.after(Count::from_raw(unit.load(Relaxed)));
        unit.store(count.to_raw(), Relaxed);
        count.reads
    }

    /// Starts counting the reads of a unit anew, because it was stored.
    pub fn forget_reads(&self, nid: Nid, start: u64) {
        let (mark, unit) = self.unit(nid, start);
        if Count::from_raw(unit.load(Relaxed)).mark == mark {
            unit.store(0, Relaxed);
        }
    }

    /// The entry for the region that has the byte at `offset`, and the region's mark.
    #[expect(clippy::indexing_slicing, reason = "the table has `REGIONS` entries")]
    fn region(&self, nid: Nid, offset: u64) -> (&Region, u64) {
        let (entry, mark) = hash(nid, offset / REGION);
        (&self.regions[entry % REGIONS], mark)
    }

    /// The mark of a unit, and its entry; if it has none, the entry in its set with the fewest
    /// reads.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "the table has `UNITS` entries, which are whole sets"
    )]
    fn unit(&self, nid: Nid, start: u64) -> (u64, &AtomicU64) {
        let (set, mark) = hash(nid, start);
        let first = set % (UNITS / SET) * SET;
        let place = |entry: &&AtomicU64| {
            let count = Count::from_raw(entry.load(Relaxed));
            if count.mark == mark { None } else { Some(count.reads) }
        };
        let found = self.units[first..first + SET].iter().min_by_key(place);
        (mark, found.unwrap_or(&self.units[first]))
    }

    /// Records that these steps were stored ahead of the read at `offset`: the kernel will not ask
    /// for them.
    pub fn stored_ahead(&self, nid: Nid, offset: u64, stored: Ahead) {
        let mut stride = self.stride(nid);
        if stride.nid == nid.get() && stride.at == offset {
            stride.at = offset.saturating_add(stored.step.saturating_mul(stored.count.into()));
            stride.ahead = stored.count;
        }
    }

    fn stride(&self, nid: Nid) -> MutexGuard<'_, Stride> {
        table_entry(&self.strides, nid.get()).lock()
    }

    /// Records that this range was stored; only the part in the region of its start counts.
    pub fn stored(&self, nid: Nid, range: &Range<u64>) {
        let (region, mark) = self.region(nid, range.start);
        if region.mark.swap(mark, Relaxed) != mark {
            region.parts.store(0, Relaxed);
        }
        let start = range.start % REGION;
        let end = range.end.saturating_sub(range.start).saturating_add(start).min(REGION);
        let whole = start.div_ceil(PART)..end / PART;
        region.parts.fetch_or(whole.fold(0, |parts, part| parts | 1 << part), Relaxed);
    }
}

/// The entry of a table for a place in a file, before the table's size limits it, and a mark that
/// tells the place from others with that entry. A mark is never 0, as an empty entry has.
fn hash(nid: Nid, place: u64) -> (usize, u64) {
    let number = place.wrapping_add(nid.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (usize::try_from(mixed >> 40).unwrap_or(0), mixed & Count::MARK | 1)
}

/// The reads of a unit, as an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// Identifies file and unit.
    mark: u64,
    /// When the last read was, in [`PERIOD`]s; the lower 16 bits.
    period: u64,
    reads: u16,
}

impl Count {
    const MARK: u64 = (1 << 32) - 1;

    #[expect(clippy::as_conversions, reason = "16 bits remain of the 64")]
    const fn from_raw(raw: u64) -> Self {
        Self { mark: raw & Self::MARK, period: raw >> 32 & 0xffff, reads: (raw >> 48) as u16 }
    }

    #[expect(clippy::as_conversions, reason = "`From` is not usable in a constant function")]
    const fn to_raw(self) -> u64 {
        self.mark | (self.period & 0xffff) << 32 | (self.reads as u64) << 48
    }

    /// One read more than in the entry `before`, which may be older or of another unit.
    fn after(self, before: Self) -> Self {
        let age = self.period.wrapping_sub(before.period) & 0xffff;
        let halved =
            u32::try_from(age).ok().and_then(|age| before.reads.checked_shr(age)).unwrap_or(0);
        let old = if before.mark == self.mark { halved } else { 0 };
        Self { reads: old.saturating_add(1), ..self }
    }
}

impl Stride {
    /// Records a read; returns whether it may be a step of a stride.
    fn note(&mut self, nid: u64, offset: u64) -> bool {
        if self.nid != nid {
            *self = Self { nid, at: offset, is_first: true, ..Self::default() };
            return true;
        }
        let step = offset.checked_sub(self.at).filter(|step| *step >= MIN_STEP);
        let is_equal = step.is_some() && step == self.step;
        let may_be_step = is_equal || step.is_some() && self.is_first;
        let (steps, ahead) =
            if is_equal { (self.steps.saturating_add(1), self.ahead) } else { (0, 0) };
        *self = Self { nid, at: offset, step, steps, ahead, is_first: false };
        may_be_step
    }

    /// The steps to store ahead of the read that was just recorded. All steps stored before it have
    /// been read.
    fn ahead(&self) -> Option<Ahead> {
        let count = self.ahead.saturating_mul(2).clamp(FIRST_AHEAD, MAX_AHEAD);
        let step = self.step.filter(|_| self.steps >= TRUSTED)?;
        Some(Ahead { step, count })
    }
}
