//! The state that the threads of a fetcher share: readers that wait, the queue, ranges that can be
//! checked, and the store with its size.

use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::check::Check;
use super::options::{Done, FetchOptions};
use super::queue::{Queue, Urgency};
use super::reuse::{GapBudget, KnownBlocks};
use super::speed::Speed;
use super::stats::Counters;
use crate::cache::{Cache, Claims, Entry, UNIT, units_in};
use crate::error::Failure;
use crate::object::RemoteObject;
use crate::ranges::widened;
use ferofs_format::units::to_u64;

/// Bytes stored between two looks at the size of the cache: an eighth of its limit, but not less
/// than what a few workers store at the same time, so that it is read before it is evicted.
const COLLECT_EVERY: RangeInclusive<u64> = 4 << 20..=64 << 20;
/// The same for one of several images that are fetched into the same cache, at least: each look
/// lists all of them.
const COLLECT_SHARE_MIN: u64 = 256 << 10;
/// Bytes that are freed at least when the disk is full: as many as a few workers store.
const FULL_DISK_FREE: u64 = 4 << 20;
/// Times that space is freed for one store: the others that store at the same time may take it.
const FULL_DISK_ATTEMPTS: u32 = 8;
/// Time between two calls of [`Entry::sync`].
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often readers are told that their time is over.
const TICK: Duration = Duration::from_millis(100);
/// How long prefetches wait for the index of known blocks. Reading the digests of a tree for 2 GB
/// takes a tenth of it; hashing files without a tree can take longer.
const INDEX_TIME: Duration = Duration::from_millis(500);

/// Why a range does not come, if no request has failed.
pub(super) const NO_ANSWER: &str = "no answer in time";

/// The state that the threads of a fetcher share.
pub(super) struct Shared {
    pub(super) object: Arc<dyn RemoteObject>,
    pub(super) cache: Cache,
    pub(super) entry: Arc<Entry>,
    /// Excludes other processes from the ranges that the workers fetch.
    pub(super) claims: Claims,
    pub(super) check: Option<Box<dyn Check>>,
    /// Blocks of other images on this machine.
    pub(super) known: Option<Arc<KnownBlocks>>,
    pub(super) gaps: GapBudget,
    pub(super) started: Instant,
    pub(super) options: FetchOptions,
    pub(super) state: Mutex<State>,
    /// There is work, or the fetcher ends.
    pub(super) work: Condvar,
    /// A fetch is finished, or the fetcher ends.
    pub(super) finished: Condvar,
    pub(super) speed: Speed,
    pub(super) stats: Counters,
    /// Bytes stored since the size of the cache was looked at.
    pub(super) uncollected: AtomicU64,
    /// Bytes after which it is looked at again.
    pub(super) collect_after: AtomicU64,
}

/// Bytes by which the cache exceeds `limit` until they are evicted.
fn collect_every(limit: u64) -> u64 {
    (limit / 8).clamp(*COLLECT_EVERY.start(), *COLLECT_EVERY.end())
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("location", &self.object.location()).finish_non_exhaustive()
    }
}

/// The ranges that readers want, and the fetches for them.
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) waiters: Vec<Waiter>,
    pub(super) last_error: Option<Arc<str>>,
    pub(super) stop: bool,
}

pub(super) struct Waiter {
    pub(super) units: Range<u64>,
    pub(super) deadline: Instant,
    pub(super) done: Done,
}

impl Shared {
    pub(super) fn failure(&self, reason: &str, is_timeout: bool) -> Failure {
        Failure { text: format!("{}: {reason}", self.object.location()).into(), is_timeout }
    }

    /// The smallest range around `units` that can be checked.
    pub(super) fn align(&self, units: &Range<u64>) -> Range<u64> {
        let align = self.check.as_ref().map_or(1, |check| check.align().div_ceil(UNIT)).max(1);
        let units = widened(units, align);
        units.start..units.end.min(self.entry.size().div_ceil(UNIT))
    }

    /// The range that a request for `units` fetches, because the surroundings cost almost no time.
    pub(super) fn around(&self, units: &Range<u64>) -> Range<u64> {
        if self.is_indexing() || self.options.complete {
            // Most of it may be known soon, or is wanted anyway.
            return self.align(units);
        }
        self.align(&widened(units, (self.speed.around() / UNIT).max(1)))
    }

    /// Queues a range that nobody waits for, in parts of `step` units: first the hashes of each
    /// part, so that they come in time.
    pub(super) fn announce(&self, range: &Range<u64>, step: u64, urgency: Urgency) {
        let mut units = self.align(&units_in(range));
        let border = self.check.as_ref().map_or(u64::MAX, |check| check.border() / UNIT);
        let mut state = self.state.lock();
        while units.start < units.end {
            let end =
                units.start.saturating_add(1).checked_next_multiple_of(step).unwrap_or(u64::MAX);
            let end = units.end.min(end);
            // Data and its hashes in one part would need no hashes before them.
            let end = if units.start < border { end.min(border) } else { end };
            let part = self.align(&(units.start..end));
            for need in self.needs(&part) {
                state.queue.add(self.around_hashes(&need), urgency);
            }
            units.start = part.end;
            state.queue.add(part, urgency);
        }
        drop(state);
        self.work.notify_all();
    }

    /// The units of the hash tree that the check of `units` needs and that are not stored, the
    /// highest level first.
    pub(super) fn needs(&self, units: &Range<u64>) -> Vec<Range<u64>> {
        let Some(check) = &self.check else { return Vec::new() };
        let ranges = check.needs(&self.entry.bytes_of(units));
        let needs = ranges.into_iter().map(|range| units_in(&range));
        needs.filter(|need| !self.missing(need.clone()).is_empty()).collect()
    }

    /// Hashes that are fetched together: 64 KiB of them are enough for 8 MiB of data.
    pub(super) fn around_hashes(&self, units: &Range<u64>) -> Range<u64> {
        const AROUND: u64 = (64 << 10) / UNIT;
        let all = self.entry.size().div_ceil(UNIT);
        self.align(&(units.start..units.start.saturating_add(AROUND).max(units.end).min(all)))
    }

    /// The runs that are not stored. If the cache cannot be read, all of it: the read will tell.
    pub(super) fn missing(&self, units: Range<u64>) -> Vec<Range<u64>> {
        self.entry.missing(units.clone()).unwrap_or_else(|_| vec![units])
    }

    /// Workers that prefetch at the same time. None at first: prefetches would fetch what is not in
    /// the index yet. Readers do not wait for it.
    pub(super) fn prefetches(&self) -> usize {
        if self.is_indexing() { 0 } else { (self.options.connections.saturating_mul(3) / 4).max(1) }
    }

    /// Whether the index of known blocks will probably be complete soon.
    pub(super) fn is_indexing(&self) -> bool {
        let is_incomplete = self.known.as_ref().is_some_and(|known| !known.is_complete());
        is_incomplete && self.started.elapsed() < INDEX_TIME
    }

    /// The readers whose bytes are all stored.
    pub(super) fn satisfied(&self, state: &mut State) -> Vec<Done> {
        let is_satisfied = |waiter: &mut Waiter| self.missing(waiter.units.clone()).is_empty();
        state.waiters.extract_if(.., is_satisfied).map(|waiter| waiter.done).collect()
    }

    /// The thread that ends waiting in time and syncs what was stored.
    pub(super) fn keep(&self) {
        let mut synced = Instant::now();
        loop {
            let mut state = self.state.lock();
            if state.stop {
                return;
            }
            let wait = if state.waiters.is_empty() { SYNC_EVERY } else { TICK };
            self.finished.wait_for(&mut state, wait);
            let now = Instant::now();
            let reason = state.last_error.clone().unwrap_or_else(|| NO_ANSWER.into());
            let satisfied = self.satisfied(&mut state);
            let over: Vec<Waiter> =
                state.waiters.extract_if(.., |waiter| waiter.deadline <= now).collect();
            drop(state);
            satisfied.into_iter().for_each(|done| done(Ok(())));
            for waiter in over {
                self.stats.failures.add(1);
                (waiter.done)(Err(self.failure(&reason, true)));
            }
            if synced.elapsed() >= SYNC_EVERY {
                // The disk may be full or broken: what is not synced is only lost by a power
                // failure.
                let _ = self.entry.sync();
                synced = Instant::now();
            }
        }
    }

    /// Evicts if the cache has become too large.
    pub(super) fn collect(&self) {
        if self.uncollected.load(Ordering::Relaxed) >= self.collect_after.load(Ordering::Relaxed) {
            self.collect_now();
        }
    }

    /// Evicts if the cache is too large.
    pub(super) fn collect_now(&self) {
        let Some(limit) = self.cache.limit() else { return };
        self.uncollected.store(0, Ordering::Relaxed);
        let step = collect_every(limit);
        self.collect_after.store(step, Ordering::Relaxed);
        let Ok(collected) = self.cache.collect(step) else { return };
        // All images in use together store that many bytes until one of them looks.
        let share =
            step.checked_div(to_u64(collected.in_use)).unwrap_or(step).max(COLLECT_SHARE_MIN);
        self.collect_after.store(share, Ordering::Relaxed);
        let excess = collected.after.saturating_sub(limit);
        if excess > 0 {
            let _ = self.cache.shrink_entry(&self.entry, excess.saturating_add(share));
        }
    }

    /// Frees space for `len` bytes, and for what other threads store meanwhile.
    pub(super) fn free(&self, len: u64) {
        let wanted = len.saturating_mul(2).max(FULL_DISK_FREE);
        let used = self
            .cache
            .usage()
            .map_or(0, |usage| usage.iter().map(|entry| entry.stored).sum::<u64>());
        let collected = self.cache.collect_to(used.saturating_sub(wanted));
        let freed = collected.map_or(0, |done| done.before.saturating_sub(done.after));
        if freed < wanted {
            // The store that follows tells whether it helped.
            let _ = self.cache.shrink_entry(&self.entry, wanted.saturating_sub(freed));
        }
    }

    /// Stores bytes of another image that were checked.
    pub(super) fn store_known(&self, start: u64, bytes: &[u8], urgency: Urgency) -> io::Result<()> {
        self.stats.verified.add(to_u64(bytes.len()));
        self.store(start, bytes, urgency)?;
        self.stats.reused.add(to_u64(bytes.len()));
        Ok(())
    }

    /// Stores checked bytes; frees space in the cache if the disk is full, but not for what nobody
    /// waits for.
    pub(super) fn store(&self, start: u64, bytes: &[u8], urgency: Urgency) -> io::Result<()> {
        let mut stored = self.entry.store(start, bytes);
        let may_free = urgency != Urgency::Background && !self.options.complete;
        let attempts = if may_free { FULL_DISK_ATTEMPTS } else { 0 };
        // Other threads and processes take what this one frees.
        for _ in 0..attempts {
            match &stored {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    self.free(to_u64(bytes.len()))
                }
                _ => break,
            }
            stored = self.entry.store(start, bytes);
        }
        let counter = if stored.is_ok() { &self.stats.stored } else { &self.stats.cache_errors };
        counter.add(to_u64(bytes.len()));
        self.uncollected.fetch_add(to_u64(bytes.len()), Ordering::Relaxed);
        stored
    }
}
