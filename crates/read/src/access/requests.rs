//! Access patterns: which files are read from front to back, and which in equal steps.

use std::sync::Mutex;

use ferofs_format::{FileOffset, Nid};

const FILES: usize = 64;
/// Equal steps that make a stride.
const STEPS: u32 = 3;
/// Steps of a stride that the system is told of before they are made: so many reads of the device go on at once.
const TOLD: u64 = 8;
/// Steps for which the system is told after one that had to wait for the medium; ever more, up to the most, if that happens
/// again: where nothing waits, telling costs as much as reading.
const PATIENCE: std::ops::RangeInclusive<u32> = 64..=1 << 15;
/// The least that is read ahead, and the most, in bytes.
const AHEAD: std::ops::RangeInclusive<usize> = 8 << 10..=64 << 10;

/// How a file is being read, as far as its last requests tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// From front to back; `ahead` bytes more may be read at once.
    Sequential {
        /// Grows while the reader goes on.
        ahead: usize,
    },
    /// In equal steps.
    Strided {
        /// Of the requests that will come, the first of which the system has not been told. It may lie beyond the file.
        next: FileOffset,
        /// From one to the next.
        step: u64,
        /// So many are to be told of.
        count: u64,
    },
    /// Here and there.
    Random,
}

/// The last request on each file; files share places, which costs a guess at worst.
#[derive(Debug)]
pub(crate) struct Patterns([Mutex<Track>; FILES]);

#[derive(Clone, Copy, Debug)]
struct Track {
    nid: Nid,
    start: u64,
    end: u64,
    step: u64,
    /// The furthest request that the system was told of, while steps are equal.
    told: u64,
    /// Requests that went on so.
    streak: u32,
    /// So many steps more are told of, and so many were the last time when that began.
    telling: u32,
    patience: u32,
}

impl Track {
    const fn new(nid: Nid, start: u64, end: u64) -> Self {
        Self { nid, start, end, step: 0, told: 0, streak: 0, telling: 0, patience: 0 }
    }
}

impl Default for Patterns {
    fn default() -> Self {
        let nothing = Track::new(Nid::new(u64::MAX), 0, 0);
        Self(std::array::from_fn(|_| Mutex::new(nothing)))
    }
}

impl Patterns {
    /// Notes a request, and says what it is a part of. The start of a file is the start of a sequence.
    pub(crate) fn note(&self, nid: Nid, offset: FileOffset, len: u64) -> Pattern {
        // Whoever finds another thread here does without a guess.
        let Ok(mut track) = self.track(nid).try_lock() else { return Pattern::Random };
        let start = offset.get();
        let end = start.saturating_add(len);
        let before = std::mem::replace(&mut *track, Track::new(nid, start, end));
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
            (track.told, track.patience) = (before.told, before.patience);
            track.telling = before.telling.saturating_sub(1);
        }
        let Some(sure) = track.streak.checked_sub(STEPS) else { return Pattern::Random };
        if track.telling == 0 {
            return Pattern::Strided { next: FileOffset::new(end), step: track.step, count: 0 };
        }
        // The longer it goes on, the further ahead.
        let until = start.saturating_add(track.step.saturating_mul((u64::from(sure) + 1).min(TOLD)));
        let next = track.told.max(start).saturating_add(track.step);
        track.told = track.told.max(until);
        let count = until.checked_sub(next).map_or(0, |ahead| ahead / track.step + 1);
        Pattern::Strided { next: FileOffset::new(next), step: track.step, count }
    }

    /// Notes that a request on the file, a strided one, had to wait for the medium.
    pub(crate) fn waited(&self, nid: Nid) {
        let Ok(mut track) = self.track(nid).try_lock() else { return };
        if track.nid == nid {
            if track.telling == 0 {
                track.patience = track.patience.saturating_mul(8).clamp(*PATIENCE.start(), *PATIENCE.end());
            }
            track.telling = track.patience;
        }
    }

    fn track(&self, nid: Nid) -> &Mutex<Track> {
        &self.0[usize::try_from(nid.get() % 64).unwrap_or(0)]
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
        let strided = |next, count| Pattern::Strided { next: FileOffset::new(next), step: 100, count };
        let untold = |end| Pattern::Strided { next: FileOffset::new(end), step: 100, count: 0 };
        assert_eq!(noted(&patterns, 7, 1400), untold(1410), "nothing had to wait");
        patterns.waited(Nid::new(7));
        assert_eq!(noted(&patterns, 7, 1500), strided(1600, 2));
        assert_eq!(noted(&patterns, 7, 1600), strided(1800, 2));
        for offset in (1700..3000).step_by(100) {
            noted(&patterns, 7, offset);
        }
        assert_eq!(noted(&patterns, 7, 3000), strided(3000 + 100 * TOLD, 1));
        let told =
            (3100..20_000).step_by(100).take_while(|start| noted(&patterns, 7, *start) != untold(start + 10));
        assert_eq!(told.count(), 64 - 17, "nothing waited since");
        let from = 3100 + 100 * (64 - 17);
        patterns.waited(Nid::new(7));
        assert!(noted(&patterns, 7, from + 100) != untold(from + 110), "again");
        assert_eq!(noted(&patterns, 7, from + 150), Pattern::Random);
        assert_eq!(noted(&patterns, 7, 300), Pattern::Random, "backwards");
    }
}
