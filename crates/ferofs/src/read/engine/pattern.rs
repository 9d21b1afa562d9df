//! Access patterns: which files are read from front to back, and which in equal steps.

use std::sync::Mutex;

use ferofs_format::{FileOffset, Nid};

const FILES: usize = 64;
/// Equal steps that make a stride.
const STEPS: u32 = 3;
/// The least that is read ahead, and the most, in bytes.
const AHEAD: std::ops::RangeInclusive<usize> = 8 << 10..=64 << 10;

/// How a file is being read, as far as its last requests tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// From front to back; `ahead` bytes more may be read at once.
    Sequential {
        /// Grows while the reader goes on.
        ahead: usize,
    },
    /// In equal steps; the next request will be at `next`.
    Strided {
        /// An offset that may lie beyond the file.
        next: FileOffset,
    },
    /// Here and there.
    Random,
}

/// The last request on each file; files share places, which costs a guess at worst.
#[derive(Debug)]
pub(super) struct Patterns([Mutex<Track>; FILES]);

#[derive(Clone, Copy, Debug)]
struct Track {
    nid: Nid,
    start: u64,
    end: u64,
    step: u64,
    /// Requests that went on so.
    streak: u32,
}

impl Default for Patterns {
    fn default() -> Self {
        let nothing = Track { nid: Nid::new(u64::MAX), start: 0, end: 0, step: 0, streak: 0 };
        Self(std::array::from_fn(|_| Mutex::new(nothing)))
    }
}

impl Patterns {
    /// Notes a request, and says what it is a part of. The start of a file is the start of a sequence.
    pub(super) fn note(&self, nid: Nid, offset: FileOffset, len: u64) -> Pattern {
        let place = usize::try_from(nid.get() % 64).unwrap_or(0);
        // Whoever finds another thread here does without a guess.
        let Ok(mut track) = self.0[place].try_lock() else { return Pattern::Random };
        let start = offset.get();
        let end = start.saturating_add(len);
        let before = std::mem::replace(&mut *track, Track { nid, start, end, step: 0, streak: 0 });
        if start == 0 {
            return Pattern::Sequential { ahead: 0 };
        }
        if before.nid != nid {
            return Pattern::Random;
        }
        if before.end == start {
            track.streak = before.streak.saturating_add(1);
            // The first sequel alone does not make a reader that goes on.
            let ahead = if track.streak < 2 { 0 } else { AHEAD.start() << (track.streak - 2).min(8) };
            return Pattern::Sequential { ahead: ahead.min(*AHEAD.end()) };
        }
        track.step = start.saturating_sub(before.start);
        if track.step > 0 && track.step == before.step {
            track.streak = before.streak.saturating_add(1);
        }
        match track.streak >= STEPS {
            true => Pattern::Strided { next: FileOffset::new(start.saturating_add(track.step)) },
            false => Pattern::Random,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(patterns: &Patterns, nid: u64, offset: u64) -> Pattern {
        patterns.note(Nid::new(nid), FileOffset::new(offset), 10)
    }

    #[test]
    fn sequels_are_told_from_jumps() {
        let patterns = Patterns::default();
        for offset in [0, 10] {
            assert_eq!(noted(&patterns, 7, offset), Pattern::Sequential { ahead: 0 });
        }
        assert_eq!(noted(&patterns, 7, 20), Pattern::Sequential { ahead: *AHEAD.start() });
        for offset in (30..200).step_by(10) {
            noted(&patterns, 7, offset);
        }
        assert_eq!(noted(&patterns, 7, 200), Pattern::Sequential { ahead: *AHEAD.end() });
        assert_eq!(noted(&patterns, 7, 500), Pattern::Random);
        assert_eq!(noted(&patterns, 7, 510), Pattern::Sequential { ahead: 0 });
        assert_eq!(noted(&patterns, 71, 520), Pattern::Random, "another file at the same place");
    }

    #[test]
    fn equal_steps_are_a_stride() {
        let patterns = Patterns::default();
        for offset in [1000, 1100, 1200, 1300] {
            assert_eq!(noted(&patterns, 7, offset), Pattern::Random);
        }
        assert_eq!(noted(&patterns, 7, 1400), Pattern::Strided { next: FileOffset::new(1500) });
        assert_eq!(noted(&patterns, 7, 1450), Pattern::Random);
        assert_eq!(noted(&patterns, 7, 300), Pattern::Random, "backwards");
    }
}
