//! How files are being read, as far as small reads tell: here and there, all over, or in strides.
//!
//! The kernel asks only for what its page cache lacks. Three ways to read cost a request for each page, and are told
//! apart here: a few pages of a large file; pages of a region that in the end are nearly all wanted; and one page each
//! so many bytes. Where memory is short, what is given beyond a read is gone before it is wanted: that shows when it is
//! asked for again. All memory is fixed; files and regions share places, which costs a guess at worst.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ferofs::read::Nid;

/// What is watched as one, in bytes of a file.
const REGION: u64 = 1 << 20;
const REGIONS: usize = 4096;
/// A region of which this part was given to the kernel is being read all over.
const DENSE: u64 = REGION / 8;
/// Parts of a region that are known to have been given, or not.
const PART: u64 = REGION / 64;
/// A read of what was given before weighs so much, and any other takes away 1: beyond a third of them the sum grows...
const LOST: u32 = 2;
/// ...up to this much. Beyond half of it, giving is in vain.
const MAX_LOST: u32 = 1024;
const FILES: usize = 64;
/// Smaller steps mostly stay within clusters, whose neighbours they want, too.
const MIN_STEP: u64 = 32 << 10;

/// The patterns of an image's files.
#[derive(Debug)]
pub(crate) struct Patterns {
    regions: Box<[Region]>,
    /// How much of what is wanted was given before.
    lost: AtomicU32,
    strides: [Mutex<Stride>; FILES],
}

/// A part of a file.
#[derive(Debug, Default)]
struct Region {
    /// A mark of the file and the region, and above it the bytes given.
    word: AtomicU64,
    /// A bit for each part that was given whole, and has not been asked for again.
    parts: AtomicU64,
}

/// The last read of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    nid: u64,
    at: u64,
    /// From the read before, if there was one, and if it is one that strides have.
    step: Option<u64>,
    /// There was none before.
    is_first: bool,
}

/// What a small read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A stride, as far as can be told yet. Pages that stand before the next step would make the kernel take it for a
    /// sequence, and read all that is between from then on.
    Stride,
    /// Somewhere; in a region that is read all over, or not.
    Random { dense: bool },
    /// Somewhere, and the kernel keeps nothing that is given beyond it.
    Vain,
}

impl Patterns {
    pub(crate) fn new() -> Self {
        Self {
            regions: (0..REGIONS).map(|_| Region::default()).collect(),
            lost: AtomicU32::new(0),
            strides: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Notes a small read of `nid`.
    pub(crate) fn note(&self, nid: Nid, offset: u64) -> Pattern {
        let place = usize::try_from(nid.get() % 64).unwrap_or(0);
        // Nothing panics while it is locked.
        let mut stride = self.strides[place].lock().unwrap_or_else(PoisonError::into_inner);
        if stride.note(nid.get(), offset) {
            return Pattern::Stride;
        }
        drop(stride);
        let (place, mark) = region(nid, offset);
        let region = &self.regions[place];
        let word = region.word.load(Relaxed);
        if word & MARK != mark {
            return self.somewhere(false, false);
        }
        let part = 1 << (offset % REGION / PART);
        let was_given = region.parts.fetch_and(!part, Relaxed) & part != 0;
        self.somewhere(word >> MARK_BITS >= DENSE, was_given)
    }

    fn somewhere(&self, dense: bool, was_given: bool) -> Pattern {
        // Two threads at once may lose a count; nothing but time depends on it.
        let lost = match (self.lost.load(Relaxed), was_given) {
            (lost, true) => (lost + LOST).min(MAX_LOST),
            (lost, false) => lost.saturating_sub(1),
        };
        self.lost.store(lost, Relaxed);
        if lost > MAX_LOST / 2 { Pattern::Vain } else { Pattern::Random { dense } }
    }

    /// Notes that the kernel was given this range.
    pub(crate) fn given(&self, nid: Nid, range: &Range<u64>) {
        let (place, mark) = region(nid, range.start);
        let region = &self.regions[place];
        let word = region.word.load(Relaxed);
        if word & MARK != mark {
            region.parts.store(0, Relaxed);
        }
        let before = if word & MARK == mark { word >> MARK_BITS } else { 0 };
        let given = (before + range.end.saturating_sub(range.start).min(REGION)).min(2 * REGION);
        region.word.store((given << MARK_BITS) | mark, Relaxed);
        let start = range.start % REGION;
        let end = range.end.saturating_sub(range.start - start).min(REGION);
        let whole = start.div_ceil(PART)..end / PART;
        region.parts.fetch_or(whole.fold(0, |parts, part| parts | 1 << part), Relaxed);
    }
}

const MARK_BITS: u32 = 40;
const MARK: u64 = (1 << MARK_BITS) - 1;

/// The place of a region in the table, and what tells it from others there; a mark is never 0.
fn region(nid: Nid, offset: u64) -> (usize, u64) {
    let number = (offset / REGION).wrapping_add(nid.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let place = usize::try_from(mixed >> 52).unwrap_or(0) % REGIONS;
    (place, (mixed & MARK) | 1)
}

impl Stride {
    /// Notes a read, and says whether it may be a step of a stride.
    fn note(&mut self, nid: u64, offset: u64) -> bool {
        if self.nid != nid {
            *self = Self { nid, at: offset, step: None, is_first: true };
            return true;
        }
        let step = offset.checked_sub(self.at).filter(|step| *step >= MIN_STEP);
        let goes_on = step.is_some() && (self.is_first || step == self.step);
        *self = Self { nid, at: offset, step, is_first: false };
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Nid = Nid::new(70);

    #[test]
    fn equal_steps_are_a_stride() {
        let patterns = Patterns::new();
        let random = Pattern::Random { dense: false };
        for number in 0..20 {
            assert_eq!(patterns.note(FILE, number << 17), Pattern::Stride);
        }
        for offset in [4096, 1 << 20, 3 << 20, 2 << 20, 4 << 20] {
            assert_eq!(patterns.note(FILE, offset), random);
        }
        assert_eq!(patterns.note(FILE, 6 << 20), Pattern::Stride);
        assert_eq!(patterns.note(FILE, 7 << 20), random);
        for number in 2..20 {
            assert_eq!(patterns.note(FILE, number << 13), random, "small steps");
        }
    }

    #[test]
    fn a_region_is_dense_when_a_part_of_it_was_given() {
        let patterns = Patterns::new();
        let dense = |offset| patterns.note(FILE, offset) == Pattern::Random { dense: true };
        let mut at = 0;
        for n in 0..32u64 {
            at = (n * n * 5 % 256) * 4096;
            assert!(!dense(at), "{n}");
            patterns.given(FILE, &(at..at + 4096));
        }
        assert!(dense(at ^ 4096));
        assert!(!dense(REGION + at), "another region");
    }

    #[test]
    fn nothing_is_given_where_it_is_not_kept() {
        let patterns = Patterns::new();
        let random = |offset| matches!(patterns.note(FILE, offset), Pattern::Random { .. });
        // All is given, and asked for again: each read adds to the sum.
        patterns.note(FILE, 0);
        let mut rounds = 0;
        while random(rounds % 64 * PART) {
            patterns.given(FILE, &(0..REGION));
            rounds += 1;
            assert!(rounds < 10_000);
        }
        assert!(rounds > 200, "{rounds}");
        // Nothing that was given is asked for any more.
        let mut rounds = 0;
        while !random(REGION + rounds % 256 * 4096) {
            rounds += 1;
            assert!(rounds < 10_000);
        }
    }

    #[test]
    fn offsets_of_all_sizes_do_no_harm() {
        let patterns = Patterns::new();
        for nid in [0, 1, u64::MAX] {
            for offset in [0, 1, u64::MAX / 2, u64::MAX, 0, u64::MAX] {
                patterns.note(Nid::new(nid), offset);
                patterns.given(Nid::new(nid), &(offset..u64::MAX));
            }
        }
    }
}
