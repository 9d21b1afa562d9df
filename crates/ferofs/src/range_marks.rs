//! Marks on ranges of blocks or slots: which kinds of use each has, and which kinds it has more
//! than once.
//!
//! Memory and time depend on the number of ranges, not on their lengths: ranges are collected, and
//! now and then sorted and merged in one sweep. Sets of ranges in crates do not count how often a
//! range was added, which the checks need.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Added ranges that are collected at least before they are merged: 1.5 MiB. Fewer would merge
/// often, more need more memory.
const PENDING: usize = 64 << 10;
/// Bits of a mark.
const BITS: usize = 16;

/// Consecutive blocks or slots with the same marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkedRange {
    pub start: u64,
    pub end: u64,
    /// The device, or another address space.
    pub space: u16,
    /// Marks that were added.
    pub once: u16,
    /// Marks that were added more than once.
    pub twice: u16,
}

/// The marks of several address spaces.
#[derive(Debug, Default)]
pub(crate) struct RangeMarks {
    ranges: Vec<MarkedRange>,
    /// The number of `ranges`, from the first on, that are sorted and do not overlap.
    merged: usize,
}

impl RangeMarks {
    /// Adds the bits `marks` to each block or slot in `range`.
    pub(crate) fn add(&mut self, space: u16, range: Range<u64>, marks: u16) {
        if range.is_empty() || marks == 0 {
            return;
        }
        let run = MarkedRange { start: range.start, end: range.end, space, once: marks, twice: 0 };
        if self.ranges.len() > self.merged
            && let Some(last) = self.ranges.last_mut().filter(|last| last.is_followed_by(&run))
        {
            last.end = run.end;
            return;
        }
        self.ranges.push(run);
        if self.ranges.len() - self.merged > self.merged.max(PENDING) {
            self.merge();
        }
    }

    /// Sorts and merges all ranges, and returns them in order.
    pub(crate) fn merge(&mut self) -> &[MarkedRange] {
        if self.merged < self.ranges.len() {
            self.ranges = sweep(std::mem::take(&mut self.ranges));
            self.merged = self.ranges.len();
        }
        &self.ranges
    }

    /// The ranges as of the last [`merge`](Self::merge), in order.
    pub(crate) fn ranges(&self) -> &[MarkedRange] {
        self.ranges.get(..self.merged).unwrap_or_default()
    }
}

impl MarkedRange {
    pub(crate) const fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn is_followed_by(&self, next: &Self) -> bool {
        self.end == next.start
            && (self.space, self.once, self.twice) == (next.space, next.once, next.twice)
    }
}

/// Splits ranges where others start or end, and joins neighbours with the same marks.
fn sweep(mut ranges: Vec<MarkedRange>) -> Vec<MarkedRange> {
    ranges.sort_unstable_by_key(|run| (run.space, run.start));
    let mut sweep =
        Sweep { swept: Vec::new(), open: BinaryHeap::new(), counts: [0; BITS], space: 0, at: 0 };
    for run in &ranges {
        sweep.advance(if run.space == sweep.space { run.start } else { u64::MAX });
        (sweep.space, sweep.at) = (run.space, run.start);
        sweep.count(run.once, run.twice, |count| *count += 1);
        sweep.open.push(Reverse((run.end, run.once, run.twice)));
    }
    sweep.advance(u64::MAX);
    sweep.swept.shrink_to_fit();
    sweep.swept
}

struct Sweep {
    swept: Vec<MarkedRange>,
    /// Ends of the ranges that contain `at`, with their marks; the smallest end first.
    open: BinaryHeap<Reverse<(u64, u16, u16)>>,
    /// How often each mark was added at `at`.
    counts: [u64; BITS],
    space: u16,
    at: u64,
}

impl Sweep {
    /// Advances to `to`, or to the end of the last open range.
    fn advance(&mut self, to: u64) {
        while let Some(Reverse((end, once, twice))) =
            self.open.peek().copied().filter(|open| open.0.0 <= to)
        {
            self.emit(end);
            self.open.pop();
            self.count(once, twice, |count| *count -= 1);
        }
        if !self.open.is_empty() {
            self.emit(to);
        }
    }

    fn count(&mut self, once: u16, twice: u16, change: impl Fn(&mut u64)) {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            for marks in [once, twice] {
                if marks >> bit & 1 != 0 {
                    change(count);
                }
            }
        }
    }

    fn emit(&mut self, end: u64) {
        let having = |least: u64| {
            let counts = self.counts.iter().enumerate();
            counts.filter(|(_, count)| **count >= least).fold(0, |marks, (bit, _)| marks | 1 << bit)
        };
        let run = MarkedRange {
            start: self.at,
            end,
            space: self.space,
            once: having(1),
            twice: having(2),
        };
        self.at = end;
        if run.start == run.end {
            return;
        }
        match self.swept.last_mut().filter(|last| last.is_followed_by(&run)) {
            Some(last) => last.end = end,
            None => self.swept.push(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sweeping_agrees_with_counting(
            ranges in proptest::collection::vec((0u16..2, 0u64..40, 1u64..40, 1u16..8), 0..60),
            merge_after in 0usize..60,
        ) {
            let mut marks = RangeMarks::default();
            for (number, (space, start, len, bits)) in ranges.iter().enumerate() {
                marks.add(*space, *start..start + len, *bits);
                if number == merge_after {
                    marks.merge();
                }
            }
            let merged = marks.merge();
            prop_assert!(merged.is_sorted_by_key(|run| (run.space, run.start)));
            for (space, item) in (0..2).flat_map(|space| (0..90).map(move |item| (space, item))) {
                let count = |bit: u16| {
                    let has = |r: &&(u16, u64, u64, u16)| {
                        r.0 == space && (r.1..r.1 + r.2).contains(&item) && r.3 >> bit & 1 != 0
                    };
                    ranges.iter().filter(has).count()
                };
                let at_least = |n| (0..3).filter(|bit| count(*bit) >= n).fold(0u16, |marks, bit| marks | 1 << bit);
                let found: Vec<_> =
                    merged.iter().filter(|run| run.space == space && (run.start..run.end).contains(&item)).collect();
                let marks = found.first().map_or((0, 0), |run| (run.once, run.twice));
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(marks, (at_least(1), at_least(2)));
            }
        }
    }

    #[test]
    fn memory_follows_ranges() {
        let mut marks = RangeMarks::default();
        for number in 0..10 * PENDING as u64 {
            marks.add(0, number..u64::MAX - number, 1);
            marks.add(0, 0..u64::MAX, 2);
        }
        assert!(marks.ranges.len() <= 5 * PENDING, "{}", marks.ranges.len());
        assert_eq!(marks.merge().len(), 3);
    }
}
