//! Decides how far a sequential reader's next bytes are announced to a source with a high latency.
//!
//! Separate from [`super::requests`], because local files need not pay for it. A server's threads take the requests of one sequential
//! reader in any order. They must not count as random reads: else each would start with a small distance again.

use std::ops::Range;

use ferofs_format::Nid;
use parking_lot::Mutex;

use crate::access::table_entry;

/// Entries of the table of files. With more files in use, they replace each other, and are announced from the start again.
const FILES: usize = 64;
/// The first request of a file announces this many times its length behind it; each further one doubles that.
const FIRST: u64 = 4;
/// Bytes by which a request may start before the end of an earlier one and still continue it: eight of the kernel's requests of
/// 128 KiB may be under way at once.
const DISORDER: u64 = 1 << 20;

/// How far each file was announced. Several files can share an entry, which only causes other announcements.
#[derive(Debug)]
pub(crate) struct Announcements([Mutex<Window>; FILES]);

#[derive(Clone, Copy, Debug)]
struct Window {
    nid: Nid,
    /// The end of the furthest request.
    end: u64,
    /// The end of the announced bytes.
    announced: u64,
    /// Requests that continued others.
    streak: u32,
}

impl Default for Announcements {
    fn default() -> Self {
        let nothing = Window { nid: Nid::new(u64::MAX), end: 0, announced: 0, streak: 0 };
        Self(std::array::from_fn(|_| Mutex::new(nothing)))
    }
}

impl Announcements {
    /// Records a request for the range `wanted` of file `nid`; returns the bytes to announce, perhaps beyond the file's end.
    /// Announces at least `distance` bytes of a sequential reader's next ones, after a few requests.
    pub(crate) fn note(&self, nid: Nid, wanted: Range<u64>, distance: u64) -> Option<Range<u64>> {
        // Each change is one assignment.
        let mut window = table_entry(&self.0, nid.get()).lock();
        let before = *window;
        let len = wanted.end.saturating_sub(wanted.start);
        let follows = before.nid == nid && wanted.start == before.end;
        // Requests that were overtaken, and those that overtook others: only within what was announced.
        let disordered = before.nid == nid
            && before.streak > 0
            && wanted.start <= before.announced
            && wanted.end.saturating_add(DISORDER) >= before.end;
        if follows || disordered {
            window.end = before.end.max(wanted.end);
            window.streak = before.streak.saturating_add(1);
        } else {
            *window = Window { nid, end: wanted.end, announced: wanted.end, streak: 0 };
            if wanted.start > 0 {
                return None;
            }
        }
        let goal =
            len.saturating_mul(FIRST).saturating_mul(1 << window.streak.min(32)).min(distance);
        let from = window.announced.max(window.end);
        if from.saturating_sub(window.end) >= goal {
            return None;
        }
        // A quarter more, so that not each request announces a little.
        let until = window.end.saturating_add(goal).saturating_add(goal / 4);
        window.announced = until;
        Some(from..until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 128 << 10;
    const DISTANCE: u64 = 4 << 20;

    fn note(announcements: &Announcements, start: u64) -> Option<Range<u64>> {
        announcements.note(Nid::new(7), start..start + LEN, DISTANCE)
    }

    #[test]
    fn a_sequential_reader_is_announced_more_and_more() {
        let announcements = Announcements::default();
        let (mut announced, mut calls) = (LEN, 0);
        for number in 0..100 {
            let end = (number + 1) * LEN;
            if let Some(range) = note(&announcements, number * LEN) {
                assert_eq!(range.start, announced.max(end), "without gaps");
                (announced, calls) = (range.end, calls + 1);
            }
            let ahead = (4 * LEN * (1 << number.min(20))).min(DISTANCE);
            assert!(
                (ahead..=ahead / 4 * 5).contains(&(announced - end)),
                "{number}: {}",
                announced - end
            );
        }
        assert!(calls < 25, "{calls}");
    }

    #[test]
    fn the_order_of_neighbours_does_not_matter() {
        let announcements = Announcements::default();
        let order = [0, 1, 3, 2, 5, 4, 6, 9, 8, 7];
        let mut announced = 0;
        for number in order {
            if let Some(range) = note(&announcements, number * LEN) {
                assert!(announced == 0 || range.start == announced);
                announced = range.end;
            }
        }
        assert!(announced >= 10 * LEN + DISTANCE);
    }

    #[test]
    fn random_reads_announce_nothing() {
        let announcements = Announcements::default();
        for number in [50, 3, 90, 70, 51, 20] {
            assert_eq!(note(&announcements, number * LEN), None);
        }
        assert_eq!(note(&announcements, 21 * LEN), Some(22 * LEN..32 * LEN), "continues");
        assert_eq!(
            announcements.note(Nid::new(71), 22 * LEN..23 * LEN, DISTANCE),
            None,
            "another file"
        );
    }
}
