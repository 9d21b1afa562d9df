//! The ranges to fetch, and the ranges that workers fetch now. All numbers are units.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::ranges::len_of;

/// Why a range is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A reader waits for it.
    Demand,
    /// A reader will probably need it.
    Prefetch,
    /// Readers may need it later: the files of an access profile, or all of the object.
    Background,
}

/// Ranges that wait for a worker, and ranges that workers fetch.
#[derive(Debug)]
pub(crate) struct Queue {
    demand: VecDeque<Range<u64>>,
    prefetch: VecDeque<Range<u64>>,
    background: VecDeque<Range<u64>>,
    fetches: Vec<Fetch>,
    /// A range left the queue because it is stored already.
    dropped: bool,
    /// No job crosses this unit.
    border: u64,
    /// Units at most of a job in the background.
    background_most: u64,
    /// Jobs in the background that failed at once, since the last one that did not.
    background_failures: u32,
}

/// A range that a worker fetches.
#[derive(Debug)]
struct Fetch {
    units: Range<u64>,
    urgency: Urgency,
    worker: usize,
}

/// The most ranges that wait for prefetch. Older ones are dropped: readers have probably passed
/// them.
const PREFETCH_MAX: usize = 4096;
/// The most ranges that wait in the background. Further ones are dropped: readers fetch them when
/// they need them.
const BACKGROUND_MAX: usize = 1 << 16;
/// Units of a range in the background whose stored parts are looked up at a time (256 MiB): readers
/// wait for the queue meanwhile.
const LOOK: u64 = 1 << 16;
/// Jobs in the background that fail at once, one after the other, before the queue drops all
/// others: the server does not have the object any more, or the disk is full.
const BACKGROUND_FAILURES: u32 = 8;

impl Queue {
    /// A queue whose jobs do not cross the unit `border`.
    pub(crate) fn new(border: u64) -> Self {
        Self {
            demand: VecDeque::new(),
            prefetch: VecDeque::new(),
            background: VecDeque::new(),
            fetches: Vec::new(),
            dropped: false,
            border,
            background_most: u64::MAX,
            background_failures: 0,
        }
    }

    /// Adds a range that readers want, except for the parts that are queued or being fetched.
    pub(crate) fn add(&mut self, units: Range<u64>, urgency: Urgency) {
        let fetches = self.fetches.iter().map(|fetch| &fetch.units);
        let mut parts = vec![units.clone()];
        match urgency {
            Urgency::Demand => {
                for known in fetches.chain(&self.demand) {
                    parts = subtract(parts, known);
                }
                self.demand.extend(parts);
            }
            Urgency::Prefetch => {
                for known in fetches.chain(&self.demand).chain(&self.prefetch) {
                    parts = subtract(parts, known);
                }
                self.prefetch.extend(parts);
                while self.prefetch.len() > PREFETCH_MAX {
                    self.prefetch.pop_front();
                }
            }
            Urgency::Background => {
                let known =
                    fetches.chain(&self.demand).chain(&self.prefetch).chain(&self.background);
                for known in known.filter(|known| overlap(known, &units)) {
                    parts = subtract(parts, known);
                }
                parts.truncate(BACKGROUND_MAX.saturating_sub(self.background.len()));
                self.background.extend(parts);
            }
        }
    }

    /// The next range for `worker`, at most `most` units. `missing` returns the runs of a range
    /// that are not stored; at most `prefetches` workers prefetch at a time, so that a worker is
    /// left for readers that wait. Ranges in the background come last.
    pub(crate) fn next(
        &mut self,
        worker: usize,
        most: u64,
        prefetches: usize,
        missing: impl Fn(Range<u64>) -> Vec<Range<u64>>,
    ) -> Option<(Range<u64>, Urgency)> {
        for urgency in [Urgency::Demand, Urgency::Prefetch, Urgency::Background] {
            if !self.may_begin(urgency, prefetches) {
                return None;
            }
            let (range, most) = match urgency {
                Urgency::Demand => (&mut self.demand, most),
                Urgency::Prefetch => (&mut self.prefetch, most),
                Urgency::Background => (&mut self.background, self.background_most),
            };
            while let Some(mut queued) = range.pop_front() {
                let looked = queued.start.saturating_add(LOOK);
                if urgency == Urgency::Background && looked < queued.end {
                    range.push_front(looked..queued.end);
                    queued.end = looked;
                }
                let mut parts = missing(queued);
                for known in &self.fetches {
                    parts = subtract(parts, &known.units);
                }
                let mut parts = parts.into_iter();
                let Some(mut first) = parts.next() else {
                    self.dropped = true;
                    continue;
                };
                for part in parts.rev() {
                    range.push_front(part);
                }
                let border = if first.start < self.border { self.border } else { u64::MAX };
                let limit = border.min(first.start.saturating_add(most));
                if first.end > limit {
                    range.push_front(limit..first.end);
                    first.end = limit;
                } else {
                    extend(range, &mut first, limit, &missing);
                }
                self.fetches.push(Fetch { units: first.clone(), urgency, worker });
                return Some((first, urgency));
            }
        }
        None
    }

    /// Whether one more worker may fetch for this reason. A job in the background takes long: a
    /// third of the workers that prefetch have them, and only one begins while a reader waits, so
    /// that the reader has the line.
    fn may_begin(&self, urgency: Urgency, prefetches: usize) -> bool {
        let count = |wanted| self.fetches.iter().filter(|fetch| fetch.urgency == wanted).count();
        let (prefetching, background) = (count(Urgency::Prefetch), count(Urgency::Background));
        let is_free = prefetching.saturating_add(background) < prefetches;
        // Hashes that a worker fetches within another job are of that job.
        let is_of = |worker, urgency| {
            self.fetches.iter().any(|fetch| fetch.worker == worker && fetch.urgency == urgency)
        };
        let is_demand = |fetch: &Fetch| {
            fetch.urgency == Urgency::Demand
                && !is_of(fetch.worker, Urgency::Prefetch)
                && !is_of(fetch.worker, Urgency::Background)
        };
        match urgency {
            Urgency::Demand => true,
            Urgency::Prefetch => is_free,
            Urgency::Background if self.fetches.iter().any(is_demand) => is_free && background == 0,
            Urgency::Background => is_free && background < (prefetches / 3).max(1),
        }
    }

    /// Sets the most units of a job in the background.
    pub(crate) fn limit_background(&mut self, most: u64) {
        self.background_most = most;
    }

    /// Units that wait in the background, or are being fetched for it.
    pub(crate) fn background_units(&self) -> u64 {
        let fetching = self.fetches.iter().filter(|fetch| fetch.urgency == Urgency::Background);
        let ranges = fetching.map(|fetch| &fetch.units).chain(&self.background);
        ranges.map(len_of).fold(0, u64::saturating_add)
    }

    /// Whether ranges wait in the background.
    pub(crate) fn has_background(&self) -> bool {
        !self.background.is_empty()
    }

    /// Records how a job in the background ended. After a failure that took long, the range waits
    /// again, after the others: the server may come back.
    pub(crate) fn background_ended(
        &mut self,
        units: Range<u64>,
        is_fetched: bool,
        took_long: bool,
    ) {
        match (is_fetched, took_long) {
            (true, _) => self.background_failures = 0,
            (false, true) => self.background.push_back(units),
            (false, false) => {
                self.background_failures = self.background_failures.saturating_add(1);
                if self.background_failures >= BACKGROUND_FAILURES {
                    self.background_failures = 0;
                    self.background.clear();
                }
            }
        }
    }

    /// Ends the fetch of a range that [`Self::next`] returned, or that [`Self::begin`] began.
    pub(crate) fn finished(&mut self, units: &Range<u64>, worker: usize) {
        self.fetches.retain(|fetch| fetch.worker != worker || fetch.units != *units);
    }

    /// Makes the fetch of `units` smaller, because the worker has stored a part of it, and queues
    /// the `remaining` ranges for other workers, before all others.
    pub(crate) fn shrink(
        &mut self,
        units: &Range<u64>,
        worker: usize,
        first: &Range<u64>,
        remaining: Vec<(Range<u64>, Urgency)>,
    ) {
        let mut fetches = self.fetches.iter_mut();
        if let Some(fetch) = fetches.find(|fetch| fetch.worker == worker && fetch.units == *units) {
            fetch.units.clone_from(first);
        }
        for (range, urgency) in remaining.into_iter().rev() {
            match urgency {
                Urgency::Demand => self.demand.push_front(range),
                Urgency::Prefetch => self.prefetch.push_front(range),
                Urgency::Background => self.background.push_front(range),
            }
        }
    }

    /// Whether a worker other than `worker` fetches a part of `units`.
    pub(crate) fn is_fetched_elsewhere(&self, units: &Range<u64>, worker: usize) -> bool {
        self.fetches.iter().any(|fetch| fetch.worker != worker && overlap(&fetch.units, units))
    }

    /// Whether nothing waits and nothing is fetched.
    pub(crate) fn is_idle(&self) -> bool {
        let is_empty =
            self.demand.is_empty() && self.prefetch.is_empty() && self.background.is_empty();
        is_empty && self.fetches.is_empty()
    }

    /// Whether a range left the queue, since the last call, because it is stored or being fetched
    /// already.
    pub(crate) fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }

    /// The range from the start of `units` to `end`, without the ranges after `units` that are
    /// being fetched.
    pub(crate) fn free_from(&self, units: &Range<u64>, end: u64) -> Range<u64> {
        let behind =
            self.fetches.iter().map(|fetch| &fetch.units).filter(|range| range.end > units.end);
        let next = behind.map(|range| range.start.max(units.end)).min().unwrap_or(end);
        units.start..end.min(next).max(units.end)
    }

    /// Begins the fetch of a range that was not queued.
    pub(crate) fn begin(&mut self, units: Range<u64>, worker: usize) {
        self.fetches.push(Fetch { units, urgency: Urgency::Demand, worker });
    }

    /// Forgets the prefetches that wait.
    pub(crate) fn clear_prefetch(&mut self) {
        self.prefetch.clear();
    }
}

/// Adds to `first` the ranges of `queue` that follow it without a gap, up to `limit`, so that one
/// request fetches them.
fn extend(
    queue: &mut VecDeque<Range<u64>>,
    first: &mut Range<u64>,
    limit: u64,
    missing: impl Fn(Range<u64>) -> Vec<Range<u64>>,
) {
    while let Some(number) = queue.iter().position(|range| range.start == first.end) {
        let end = queue[number].end.min(limit);
        if end == first.end || missing(first.end..end).first() != Some(&(first.end..end)) {
            return;
        }
        first.end = end;
        if queue[number].end == end {
            queue.remove(number);
        } else {
            queue[number].start = end;
        }
    }
}

/// Whether two ranges have a common unit.
pub(crate) const fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The parts of `parts` that are not in `known`.
pub(crate) fn subtract(parts: Vec<Range<u64>>, known: &Range<u64>) -> Vec<Range<u64>> {
    let mut remaining = Vec::with_capacity(parts.len());
    for part in parts {
        if !overlap(&part, known) {
            remaining.push(part);
            continue;
        }
        if part.start < known.start {
            remaining.push(part.start..known.start);
        }
        if known.end < part.end {
            remaining.push(known.end..part.end);
        }
    }
    remaining
}
