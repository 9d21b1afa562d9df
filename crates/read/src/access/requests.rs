//! Classifies the requests that the engine gets: sequential, strided or random.

use std::ops::RangeInclusive;

use ferofs_format::{FileOffset, Nid};
use parking_lot::Mutex;

use crate::access::table_entry;

/// Entries of the table of files. With more files in use, they replace each other and are
/// classified anew.
const FILES: usize = 64;
/// Equal steps after which requests count as strided. Fewer happen by chance.
const STEPS: u32 = 3;
/// Steps of a stride at most that are prefetched: the device then serves that many reads at once.
const MAX_PREFETCHED: u64 = 8;
/// Steps for which prefetching goes on after a request that waited for the medium. The number grows
/// each time that a request waits again, from the least to the most. Without waits, prefetching
/// stops: its system calls cost as much as reading cached bytes.
const PREFETCHING: RangeInclusive<u32> = 64..=1 << 15;
/// Bytes that are read ahead of a sequential reader, from the least to the most. They double with
/// each request; the most is half of the cache that keeps them.
const AHEAD: RangeInclusive<usize> = 8 << 10..=64 << 10;

/// How a file is being read, as far as its last requests show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Each request starts where the last one ended.
    Sequential {
        /// Bytes to read ahead, which grow while the reader goes on.
        ahead: usize,
    },
    /// Requests are equal steps apart.
    Strided {
        /// The first expected request that was not prefetched yet. It may lie beyond the file.
        next: FileOffset,
        /// Bytes from one request to the next.
        step: u64,
        /// The number of requests to prefetch, from `next` on.
        count: u64,
    },
    /// Neither.
    Random,
}

/// The last request on each file. Several files can share an entry, which can cause a wrong
/// classification, but no wrong data.
#[derive(Debug)]
pub(crate) struct Patterns([Mutex<Track>; FILES]);

#[derive(Clone, Copy, Debug)]
struct Track {
    nid: Nid,
    start: u64,
    end: u64,
    step: u64,
    /// The start of the furthest request that was prefetched, while steps are equal.
    prefetched: u64,
    /// Requests that continued the pattern.
    streak: u32,
    /// Steps for which prefetching still goes on.
    prefetching: u32,
    /// The number that `prefetching` started from the last time.
    prefetching_from: u32,
}

impl Track {
    const fn new(nid: Nid, start: u64, end: u64) -> Self {
        Self {
            nid,
            start,
            end,
            step: 0,
            prefetched: 0,
            streak: 0,
            prefetching: 0,
            prefetching_from: 0,
        }
    }
}

impl Default for Patterns {
    fn default() -> Self {
        let nothing = Track::new(Nid::new(u64::MAX), 0, 0);
        Self(std::array::from_fn(|_| Mutex::new(nothing)))
    }
}

impl Patterns {
    /// Records a request, and classifies it. A request at a file's start counts as sequential.
    pub(crate) fn note(&self, nid: Nid, offset: FileOffset, len: u64) -> Pattern {
        // A wait for another thread would cost more than a wrong guess.
        let Some(mut track) = self.track(nid).try_lock() else { return Pattern::Random };
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
            // One continuation alone does not show that the reader goes on.
            let ahead =
                track.streak.checked_sub(2).map_or(0, |surplus| AHEAD.start() << surplus.min(8));
            return Pattern::Sequential { ahead: ahead.min(*AHEAD.end()) };
        }
        track.step = start.saturating_sub(before.start);
        if track.step > 0 && track.step == before.step {
            track.streak = before.streak.saturating_add(1);
            (track.prefetched, track.prefetching_from) =
                (before.prefetched, before.prefetching_from);
            track.prefetching = before.prefetching.saturating_sub(1);
        }
        let Some(surplus) = track.streak.checked_sub(STEPS) else { return Pattern::Random };
        if track.prefetching == 0 {
            return Pattern::Strided { next: FileOffset::new(end), step: track.step, count: 0 };
        }
        // The longer the stride goes on, the further ahead it is prefetched.
        let until = start.saturating_add(
            track.step.saturating_mul((u64::from(surplus) + 1).min(MAX_PREFETCHED)),
        );
        let next = track.prefetched.max(start).saturating_add(track.step);
        track.prefetched = track.prefetched.max(until);
        let further = until.checked_sub(next).and_then(|ahead| ahead.checked_div(track.step));
        let count = further.map_or(0, |further| further.saturating_add(1));
        Pattern::Strided { next: FileOffset::new(next), step: track.step, count }
    }

    /// Records that a strided request on the file waited for the medium.
    pub(crate) fn waited(&self, nid: Nid) {
        let Some(mut track) = self.track(nid).try_lock() else { return };
        if track.nid == nid {
            if track.prefetching == 0 {
                let longer = track.prefetching_from.saturating_mul(8);
                track.prefetching_from = longer.clamp(*PREFETCHING.start(), *PREFETCHING.end());
            }
            track.prefetching = track.prefetching_from;
        }
    }

    fn track(&self, nid: Nid) -> &Mutex<Track> {
        table_entry(&self.0, nid.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(patterns: &Patterns, nid: u64, offset: u64) -> Pattern {
        patterns.note(Nid::new(nid), FileOffset::new(offset), 10)
    }

    #[test]
    fn sequences_and_jumps_are_distinguished() {
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
        let strided =
            |next, count| Pattern::Strided { next: FileOffset::new(next), step: 100, count };
        let not_prefetched =
            |end| Pattern::Strided { next: FileOffset::new(end), step: 100, count: 0 };
        assert_eq!(noted(&patterns, 7, 1400), not_prefetched(1410), "nothing had to wait");
        patterns.waited(Nid::new(7));
        assert_eq!(noted(&patterns, 7, 1500), strided(1600, 2));
        assert_eq!(noted(&patterns, 7, 1600), strided(1800, 2));
        for offset in (1700..3000).step_by(100) {
            noted(&patterns, 7, offset);
        }
        assert_eq!(noted(&patterns, 7, 3000), strided(3000 + 100 * MAX_PREFETCHED, 1));
        let prefetched = (3100..20_000)
            .step_by(100)
            .take_while(|start| noted(&patterns, 7, *start) != not_prefetched(start + 10));
        assert_eq!(prefetched.count(), 64 - 17, "nothing waited since");
        let from = 3100 + 100 * (64 - 17);
        patterns.waited(Nid::new(7));
        assert!(noted(&patterns, 7, from + 100) != not_prefetched(from + 110), "again");
        assert_eq!(noted(&patterns, 7, from + 150), Pattern::Random);
        assert_eq!(noted(&patterns, 7, 300), Pattern::Random, "backwards");
    }
}
