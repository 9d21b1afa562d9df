//! Marks on ranges of very many things, in memory that follows the number of ranges and not of things.
//!
//! Ranges are gathered, and now and then sorted and swept: however they overlap, that takes time by their number alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Ranges that are gathered at least before they are swept: 1.5 MiB of them.
const PENDING: usize = 64 << 10;
/// Different marks.
const BITS: usize = 16;

/// Things in a row with the same marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub start: u64,
    pub end: u64,
    /// A device, or another space in which things have numbers.
    pub space: u16,
    /// The marks that they have.
    pub once: u16,
    /// Those of them that were given more than once.
    pub twice: u16,
}

/// Marks of things that have numbers, in several spaces.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    runs: Vec<Run>,
    /// So many of them are sorted, and do not overlap.
    settled: usize,
}

impl Marks {
    /// Gives `marks` to each thing in `range`.
    pub(crate) fn add(&mut self, space: u16, range: Range<u64>, marks: u16) {
        if range.is_empty() || marks == 0 {
            return;
        }
        let run = Run { start: range.start, end: range.end, space, once: marks, twice: 0 };
        if self.runs.len() > self.settled
            && let Some(last) = self.runs.last_mut().filter(|last| last.is_followed_by(&run))
        {
            last.end = run.end;
            return;
        }
        self.runs.push(run);
        if self.runs.len() - self.settled > self.settled.max(PENDING) {
            self.settle();
        }
    }

    /// All marked things, in order.
    pub(crate) fn settle(&mut self) -> &[Run] {
        if self.settled < self.runs.len() {
            self.runs = sweep(std::mem::take(&mut self.runs));
            self.settled = self.runs.len();
        }
        &self.runs
    }

    /// All marked things, in order, as far as they were [settled](Self::settle).
    pub(crate) fn settled(&self) -> &[Run] {
        self.runs.get(..self.settled).unwrap_or_default()
    }
}

impl Run {
    pub(crate) const fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn is_followed_by(&self, next: &Self) -> bool {
        self.end == next.start && (self.space, self.once, self.twice) == (next.space, next.once, next.twice)
    }
}

/// Cuts ranges where others start or end, and joins what has the same marks.
fn sweep(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| (run.space, run.start));
    let mut sweep = Sweep { swept: Vec::new(), open: BinaryHeap::new(), counts: [0; BITS], space: 0, at: 0 };
    for run in &runs {
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
    swept: Vec<Run>,
    /// Ends of the ranges that `at` is in, with their marks; the next one first.
    open: BinaryHeap<Reverse<(u64, u16, u16)>>,
    /// How often each mark was given here.
    counts: [u64; BITS],
    space: u16,
    at: u64,
}

impl Sweep {
    /// Goes on to `to`, or to where the last open range ends.
    fn advance(&mut self, to: u64) {
        while let Some(Reverse((end, once, twice))) = self.open.peek().copied().filter(|open| open.0.0 <= to)
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
        let run = Run { start: self.at, end, space: self.space, once: having(1), twice: having(2) };
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
            settle_after in 0usize..60,
        ) {
            let mut marks = Marks::default();
            for (number, (space, start, len, bits)) in ranges.iter().enumerate() {
                marks.add(*space, *start..start + len, *bits);
                if number == settle_after {
                    marks.settle();
                }
            }
            let runs = marks.settle();
            prop_assert!(runs.is_sorted_by_key(|run| (run.space, run.start)));
            for (space, thing) in (0..2).flat_map(|space| (0..90).map(move |thing| (space, thing))) {
                let count = |bit: u16| {
                    let has = |r: &&(u16, u64, u64, u16)| {
                        r.0 == space && (r.1..r.1 + r.2).contains(&thing) && r.3 >> bit & 1 != 0
                    };
                    ranges.iter().filter(has).count()
                };
                let at_least = |n| (0..3).filter(|bit| count(*bit) >= n).fold(0u16, |marks, bit| marks | 1 << bit);
                let found: Vec<_> =
                    runs.iter().filter(|run| run.space == space && (run.start..run.end).contains(&thing)).collect();
                let marks = found.first().map_or((0, 0), |run| (run.once, run.twice));
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(marks, (at_least(1), at_least(2)));
            }
        }
    }

    #[test]
    fn memory_follows_ranges() {
        let mut marks = Marks::default();
        for number in 0..10 * PENDING as u64 {
            marks.add(0, number..u64::MAX - number, 1);
            marks.add(0, 0..u64::MAX, 2);
        }
        assert!(marks.runs.len() <= 5 * PENDING, "{}", marks.runs.len());
        assert_eq!(marks.settle().len(), 3);
    }
}
