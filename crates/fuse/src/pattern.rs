//! How files are being read, as far as small reads tell: here and there, all over, or in strides.
//!
//! The kernel asks only for what its page cache lacks. Three ways to read cost a request for each page, and are told
//! apart here: a few pages of a large file; pages of a region that in the end are nearly all wanted; and one page each
//! so many bytes. All memory is fixed; files and regions share places, which costs a guess at worst.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ferofs::read::Nid;

/// What is watched as one, in bytes of a file.
const REGION: u64 = 1 << 20;
const REGIONS: usize = 4096;
/// A region of which this part was given to the kernel is being read all over.
const DENSE: u64 = REGION / 8;
const FILES: usize = 64;
/// So many equal distances make a stride.
const SURE: u32 = 3;
/// Steps of a stride that are predicted at first; they double each time that the prediction comes true.
const FIRST_STEPS: u32 = 4;
const MAX_STEPS: u32 = 32;

/// The patterns of an image's files.
#[derive(Debug)]
pub(crate) struct Patterns {
    /// A mark of the file and the region, and above it the bytes given.
    regions: Box<[AtomicU64]>,
    strides: [Mutex<Stride>; FILES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    nid: u64,
    /// Where the last read was, or the last one that was predicted.
    at: u64,
    step: u64,
    repeats: u32,
    predicted: u32,
}

/// Reads that will come: `count` of them, `step` bytes apart, after the one that was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) step: u64,
    pub(crate) count: u32,
}

/// What a small read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A stride, with what comes next unless others are already at it.
    Stride(Option<Ahead>),
    /// Somewhere; in a region that is read all over, or not.
    Random { dense: bool },
}

impl Patterns {
    pub(crate) fn new() -> Self {
        Self {
            regions: (0..REGIONS).map(|_| AtomicU64::new(0)).collect(),
            strides: [const { Mutex::new(Stride { nid: 0, at: 0, step: 0, repeats: 0, predicted: 0 }) };
                FILES],
        }
    }

    /// Notes a small read of `nid`.
    pub(crate) fn note(&self, nid: Nid, offset: u64) -> Pattern {
        let place = usize::try_from(nid.get() % 64).unwrap_or(0);
        // Nothing panics while it is locked.
        let mut stride = self.strides[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = stride.note(nid.get(), offset) {
            return pattern;
        }
        drop(stride);
        let (place, mark) = region(nid, offset);
        let word = self.regions[place].load(Relaxed);
        let given = if word & MARK == mark { word >> MARK_BITS } else { 0 };
        Pattern::Random { dense: given >= DENSE }
    }

    /// Notes that the kernel was given `len` bytes around `offset`.
    pub(crate) fn given(&self, nid: Nid, offset: u64, len: u64) {
        let (place, mark) = region(nid, offset);
        // Two threads at once may lose a note; nothing but time depends on it.
        let word = self.regions[place].load(Relaxed);
        let before = if word & MARK == mark { word >> MARK_BITS } else { 0 };
        // What was all given and is wanted again was not kept: memory is short, and giving more is in vain.
        let given = if before > REGION + REGION / 2 { 0 } else { before + len.min(REGION) };
        self.regions[place].store((given << MARK_BITS) | mark, Relaxed);
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
    fn note(&mut self, nid: u64, offset: u64) -> Option<Pattern> {
        if self.nid != nid {
            *self = Self { nid, at: offset, ..Self::default() };
            return None;
        }
        let is_sure = self.repeats >= SURE;
        if is_sure && offset <= self.at && (self.at - offset).is_multiple_of(self.step) {
            let behind = (self.at - offset) / self.step;
            if behind < self.predicted.into() {
                // Others bring what comes next.
                return Some(Pattern::Stride(None));
            }
        }
        let step = offset.checked_sub(self.at).filter(|step| *step > 0);
        let Some(step) = step else {
            *self = Self { nid, at: offset, ..Self::default() };
            return None;
        };
        if step != self.step {
            *self = Self { nid, at: offset, step, ..Self::default() };
            return None;
        }
        self.repeats = (self.repeats + 1).min(SURE);
        self.at = offset;
        if self.repeats < SURE {
            return None;
        }
        let count = (self.predicted * 2).clamp(FIRST_STEPS, MAX_STEPS);
        self.predicted = count;
        self.at = offset.saturating_add(step.saturating_mul(count.into()));
        Some(Pattern::Stride(Some(Ahead { step, count })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Nid = Nid::new(70);

    #[test]
    fn strides_are_found_and_grow() {
        let patterns = Patterns::new();
        let mut at = 0;
        for _ in 0..4 {
            assert_eq!(patterns.note(FILE, at), Pattern::Random { dense: false });
            at += 1 << 17;
        }
        let mut seen = Vec::new();
        for _ in 0..5 {
            let Pattern::Stride(Some(ahead)) = patterns.note(FILE, at) else { panic!("no stride at {at}") };
            assert_eq!(ahead.step, 1 << 17);
            // One that overtakes the prediction brings nothing itself.
            assert_eq!(patterns.note(FILE, at + (1 << 17)), Pattern::Stride(None));
            seen.push(ahead.count);
            at += (u64::from(ahead.count) + 1) << 17;
        }
        assert_eq!(seen, [4, 8, 16, 32, 32]);
        assert_eq!(patterns.note(FILE, 4096), Pattern::Random { dense: false });
    }

    #[test]
    fn a_region_is_dense_when_an_eighth_was_given() {
        let patterns = Patterns::new();
        let dense = |offset| patterns.note(FILE, offset) == Pattern::Random { dense: true };
        let mut at = 0;
        for n in 0..32u64 {
            at = (n * n * 5 % 256) * 4096;
            assert!(!dense(at), "{n}");
            patterns.given(FILE, at, 4096);
        }
        assert!(dense(at ^ 4096));
        assert!(!dense(REGION + at), "another region");
        // More was given than there is, so the kernel keeps nothing.
        for _ in 0..2 {
            patterns.given(FILE, at, REGION);
        }
        assert!(dense(0));
        patterns.given(FILE, at, 4096);
        assert!(!dense(8192));
    }

    #[test]
    fn offsets_of_all_sizes_do_no_harm() {
        let patterns = Patterns::new();
        for nid in [0, 1, u64::MAX] {
            for offset in [0, 1, u64::MAX / 2, u64::MAX, 0, u64::MAX] {
                patterns.note(Nid::new(nid), offset);
                patterns.given(Nid::new(nid), offset, u64::MAX);
            }
        }
    }
}
