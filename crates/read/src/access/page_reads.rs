//! Classifies the small reads of a page cache, for a server that stores more pages there than a read asked for.
//!
//! The kernel asks only for pages that its page cache lacks. Three patterns cost one request for each page, and are
//! distinguished here: a few pages of a large file; pages of a region of which nearly all are read in the end; and one page
//! at each step of a stride. If memory is short, the kernel evicts the stored pages before they are read, and asks for them
//! again. All memory is fixed: several files or regions can share a table entry, which can cause a wrong classification, but
//! no wrong data.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferofs_format::Nid;

/// Bytes of a file that are classified together. Smaller regions would take several reads each before they are recognised.
const REGION: u64 = 1 << 20;
/// Entries of the table of regions: 64 KiB of memory. With more regions in use, they replace each other and start anew.
const REGIONS: usize = 4096;
/// Stored bytes of a region, an eighth, from which on the region counts as mostly read.
const MOSTLY_READ: u64 = REGION / 8;
/// Bytes for each bit that says whether a part of a region was stored: 64 bits for a region.
const PART: u64 = REGION / 64;
/// The thrashing score rises by this for each read of a page that was stored before (the kernel evicted it), and falls by
/// 1 for any other read: it rises when more than a third of the reads ask again.
const EVICTED_WEIGHT: u32 = 2;
/// The largest score, so that it falls again soon. Above half of it, the kernel is taken to evict what is stored.
const MAX_SCORE: u32 = 1024;
/// Entries of the table of strides. With more files in use, they replace each other and start anew.
const FILES: usize = 64;
/// Bytes of the smallest step of a stride. Shorter steps mostly stay within one cluster, and want its other pages, too.
const MIN_STEP: u64 = 32 << 10;
/// Equal steps after which a stride is trusted; before that, nothing is stored for it.
const TRUSTED: u32 = 3;
/// Steps that are first stored ahead of a trusted stride. The number doubles each time that all of them were read...
const FIRST_AHEAD: u32 = 2;
/// ...up to this many, so that a stride that ends wastes no more.
const MAX_AHEAD: u32 = 32;

/// The access patterns of an image's files.
#[derive(Debug)]
pub struct Patterns {
    regions: Box<[Region]>,
    /// How many of the pages read were stored before: see [`EVICTED_WEIGHT`].
    score: AtomicU32,
    strides: [Mutex<Stride>; FILES],
}

/// A part of a file.
#[derive(Debug, Default)]
struct Region {
    /// The lower [`MARK_BITS`] identify file and region; the bits above count the bytes stored.
    word: AtomicU64,
    /// A bit for each part that was stored whole, and has not been asked for again.
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
    /// Perhaps a stride; with the steps to store if it is trusted. Nothing else must be stored: pages right before the next
    /// step would make the kernel take it for a sequence, and read all pages between the steps from then on.
    Stride(Option<Ahead>),
    /// A random read.
    Random {
        /// Most of the region around it is read.
        mostly_read: bool,
    },
    /// A random read, and the kernel evicts stored pages before they are read.
    Thrashing,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
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
        let (entry, mark) = region(nid, offset);
        let region = &self.regions[entry];
        let word = region.word.load(Relaxed);
        if word & MARK != mark {
            return self.random(false, false);
        }
        let part = 1 << (offset % REGION / PART);
        let was_stored = region.parts.fetch_and(!part, Relaxed) & part != 0;
        self.random(word >> MARK_BITS >= MOSTLY_READ, was_stored)
    }

    /// Records that these steps were stored ahead of the read at `offset`: the kernel will not ask for them.
    pub fn stored_ahead(&self, nid: Nid, offset: u64, stored: Ahead) {
        let mut stride = self.stride(nid);
        if stride.nid == nid.get() && stride.at == offset {
            stride.at = offset.saturating_add(stored.step.saturating_mul(stored.count.into()));
            stride.ahead = stored.count;
        }
    }

    fn stride(&self, nid: Nid) -> MutexGuard<'_, Stride> {
        let entry = usize::try_from(nid.get() % 64).unwrap_or(0);
        // Nothing panics while it is locked.
        self.strides[entry].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self, mostly_read: bool, was_stored: bool) -> Pattern {
        // Two threads at once may lose a count; only speed depends on it.
        let score = match (self.score.load(Relaxed), was_stored) {
            (score, true) => (score + EVICTED_WEIGHT).min(MAX_SCORE),
            (score, false) => score.saturating_sub(1),
        };
        self.score.store(score, Relaxed);
        if score > MAX_SCORE / 2 { Pattern::Thrashing } else { Pattern::Random { mostly_read } }
    }

    /// Records that this range was stored, or returned to the reader.
    pub fn stored(&self, nid: Nid, range: &Range<u64>) {
        let (entry, mark) = region(nid, range.start);
        let region = &self.regions[entry];
        let word = region.word.load(Relaxed);
        if word & MARK != mark {
            region.parts.store(0, Relaxed);
        }
        let before = if word & MARK == mark { word >> MARK_BITS } else { 0 };
        let stored = (before + range.end.saturating_sub(range.start).min(REGION)).min(2 * REGION);
        region.word.store((stored << MARK_BITS) | mark, Relaxed);
        let start = range.start % REGION;
        let end = range.end.saturating_sub(range.start - start).min(REGION);
        let whole = start.div_ceil(PART)..end / PART;
        region.parts.fetch_or(whole.fold(0, |parts, part| parts | 1 << part), Relaxed);
    }
}

/// Bits of [`Region::word`] that identify a region; the 24 bits above hold up to `2 * REGION` bytes.
const MARK_BITS: u32 = 40;
const MARK: u64 = (1 << MARK_BITS) - 1;

/// The table entry of a region, and the mark that distinguishes it from other regions of that entry. A mark is never 0, which
/// is the mark of an empty entry.
fn region(nid: Nid, offset: u64) -> (usize, u64) {
    let number = (offset / REGION).wrapping_add(nid.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let entry = usize::try_from(mixed >> 52).unwrap_or(0) % REGIONS;
    (entry, (mixed & MARK) | 1)
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
        let (steps, ahead) = if is_equal { (self.steps.saturating_add(1), self.ahead) } else { (0, 0) };
        *self = Self { nid, at: offset, step, steps, ahead, is_first: false };
        may_be_step
    }

    /// The steps to store ahead of the read that was just recorded. All steps stored before it have been read.
    fn ahead(&self) -> Option<Ahead> {
        let count = (self.ahead * 2).clamp(FIRST_AHEAD, MAX_AHEAD);
        let step = self.step.filter(|_| self.steps >= TRUSTED)?;
        Some(Ahead { step, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Nid = Nid::new(70);

    #[test]
    fn equal_steps_are_a_stride() {
        let patterns = Patterns::default();
        let random = Pattern::Random { mostly_read: false };
        for number in 0..20 {
            assert!(matches!(patterns.note(FILE, number << 17), Pattern::Stride(_)));
        }
        for offset in [4096, 1 << 20, 3 << 20, 2 << 20, 4 << 20] {
            assert_eq!(patterns.note(FILE, offset), random);
        }
        assert_eq!(patterns.note(FILE, 6 << 20), Pattern::Stride(None));
        assert_eq!(patterns.note(FILE, 7 << 20), random);
        for number in 2..20 {
            assert_eq!(patterns.note(FILE, number << 13), random, "small steps");
        }
    }

    #[test]
    fn a_trusted_stride_gets_more_steps_ahead_until_it_ends() {
        let patterns = Patterns::default();
        let step = 1 << 17;
        let mut at = 0;
        for _ in 0..=TRUSTED {
            assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
            at += step;
        }
        for count in [2, 4, 8, 16, 32, 32] {
            let ahead = Ahead { step, count };
            assert_eq!(patterns.note(FILE, at), Pattern::Stride(Some(ahead)));
            patterns.stored_ahead(FILE, at, ahead);
            at += step * u64::from(count + 1);
        }
        // A read of stored pages: the kernel evicted them.
        assert!(matches!(patterns.note(FILE, at - 2 * step), Pattern::Random { .. }));
        assert!(matches!(patterns.note(FILE, at - step), Pattern::Random { .. }));
        assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
        // Steps that were not stored are read one by one.
        for number in 1..10 {
            assert!(matches!(patterns.note(FILE, at + number * step), Pattern::Stride(_)));
        }
    }

    #[test]
    fn a_region_is_mostly_read_when_an_eighth_was_stored() {
        let patterns = Patterns::default();
        let mostly_read = |offset| patterns.note(FILE, offset) == Pattern::Random { mostly_read: true };
        let mut at = 0;
        for n in 0..32u64 {
            at = (n * n * 5 % 256) * 4096;
            assert!(!mostly_read(at), "{n}");
            patterns.stored(FILE, &(at..at + 4096));
        }
        assert!(mostly_read(at ^ 4096));
        assert!(!mostly_read(REGION + at), "another region");
    }

    #[test]
    fn evicted_pages_end_storing() {
        let patterns = Patterns::default();
        let random = |offset| matches!(patterns.note(FILE, offset), Pattern::Random { .. });
        // All is stored, and read again: each read adds to the score.
        patterns.note(FILE, 0);
        let mut rounds = 0;
        while random(rounds % 64 * PART) {
            patterns.stored(FILE, &(0..REGION));
            rounds += 1;
            assert!(rounds < 10_000);
        }
        assert!(rounds > 200, "{rounds}");
        // No stored page is read any more.
        let mut rounds = 0;
        while !random(REGION + rounds % 256 * 4096) {
            rounds += 1;
            assert!(rounds < 10_000);
        }
    }

    #[test]
    fn offsets_of_all_sizes_do_no_harm() {
        let patterns = Patterns::default();
        for nid in [0, 1, u64::MAX] {
            for offset in [0, 1, u64::MAX / 2, u64::MAX, 0, u64::MAX] {
                patterns.note(Nid::new(nid), offset);
                patterns.stored(Nid::new(nid), &(offset..u64::MAX));
            }
        }
    }
}
