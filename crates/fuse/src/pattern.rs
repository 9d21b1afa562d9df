//! How files are being read, as far as small reads tell: here and there, all over, or in strides.
//!
//! The kernel asks only for what its page cache lacks. Three ways to read cost a request for each page, and are told
//! apart here: a few pages of a large file; pages of a region that in the end are nearly all wanted; and one page each
//! so many bytes. Where memory is short, what is given beyond a read is gone before it is wanted: that shows when it is
//! asked for again. All memory is fixed; files and regions share places, which costs a guess at worst.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferofs_read::Nid;

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
/// A stride is trusted after so many equal steps.
const TRUSTED: u32 = 3;
/// The first steps that are given ahead, which double as long as all of them are taken...
const FIRST_AHEAD: u32 = 2;
/// ...up to this many.
const MAX_AHEAD: u32 = 32;

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

/// The last read of a file, or the last step that was given ahead of one.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    nid: u64,
    at: u64,
    /// From the read before, if there was one, and if it is one that strides have.
    step: Option<u64>,
    /// Equal steps so far.
    steps: u32,
    /// Steps that were given ahead of the last read.
    ahead: u32,
    /// There was none before.
    is_first: bool,
}

/// The steps that a stride will take next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// In bytes.
    pub(crate) step: u64,
    pub(crate) count: u32,
}

/// What a small read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A stride, as far as can be told yet, and what it will want if it is trusted. Pages that stand before the next step would make
    /// the kernel take it for a sequence, and read all that is between from then on.
    Stride(Option<Ahead>),
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
        let mut stride = self.stride(nid);
        if stride.note(nid.get(), offset) {
            return Pattern::Stride(stride.ahead());
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

    /// Notes that the kernel was given so many steps ahead of the read at `offset`, so that it will not ask for them.
    pub(crate) fn given_ahead(&self, nid: Nid, offset: u64, given: Ahead) {
        let mut stride = self.stride(nid);
        if stride.nid == nid.get() && stride.at == offset {
            stride.at = offset.saturating_add(given.step.saturating_mul(given.count.into()));
            stride.ahead = given.count;
        }
    }

    fn stride(&self, nid: Nid) -> MutexGuard<'_, Stride> {
        let place = usize::try_from(nid.get() % 64).unwrap_or(0);
        // Nothing panics while it is locked.
        self.strides[place].lock().unwrap_or_else(PoisonError::into_inner)
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
            *self = Self { nid, at: offset, is_first: true, ..Self::default() };
            return true;
        }
        let step = offset.checked_sub(self.at).filter(|step| *step >= MIN_STEP);
        let is_equal = step.is_some() && step == self.step;
        let goes_on = is_equal || step.is_some() && self.is_first;
        let (steps, ahead) = if is_equal { (self.steps.saturating_add(1), self.ahead) } else { (0, 0) };
        *self = Self { nid, at: offset, step, steps, ahead, is_first: false };
        goes_on
    }

    /// What to give ahead of the read that was just noted. All that was given before has been taken.
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
        let patterns = Patterns::new();
        let random = Pattern::Random { dense: false };
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
    fn a_trusted_stride_is_given_more_and_more_until_it_ends() {
        let patterns = Patterns::new();
        let step = 1 << 17;
        let mut at = 0;
        for _ in 0..=TRUSTED {
            assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
            at += step;
        }
        for count in [2, 4, 8, 16, 32, 32] {
            let ahead = Ahead { step, count };
            assert_eq!(patterns.note(FILE, at), Pattern::Stride(Some(ahead)));
            patterns.given_ahead(FILE, at, ahead);
            at += step * u64::from(count + 1);
        }
        // Somebody asks for what was given: the kernel did not keep it.
        assert!(matches!(patterns.note(FILE, at - 2 * step), Pattern::Random { .. }));
        assert!(matches!(patterns.note(FILE, at - step), Pattern::Random { .. }));
        assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
        // What was not given after all is asked for as if nothing had been said.
        for number in 1..10 {
            assert!(matches!(patterns.note(FILE, at + number * step), Pattern::Stride(_)));
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
