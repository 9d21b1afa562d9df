//! The fetcher: readers say what they want, and worker threads fetch it into the cache.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::attempts::{self, Patience, RetryOptions, Sink};
use super::check::{Check, Checked};
use super::queue::{Queue, Urgency, overlap};
use super::reuse::{GapBudget, KnownBlocks, copy_blocks, copy_hashes};
use super::speed::Speed;
use super::stats::{Counters, FetchStats, add};
use crate::cache::{Cache, Claims, Entry, UNIT, to_usize, units_in};
use crate::error::{Error, FetchErrorKind, Result};
use crate::object::RemoteObject;

/// How a fetcher works.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Requests that are in flight at the same time. The latency of the server counts, not the number of processors.
    pub connections: usize,
    /// Retries.
    pub retry: RetryOptions,
    /// How long a prefetch tries.
    pub prefetch_time: Duration,
    /// Fetch the first metadata when the image is opened, before a reader needs it.
    pub prefetch_metadata: bool,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            retry: RetryOptions::default(),
            prefetch_time: Duration::from_secs(30),
            prefetch_metadata: true,
        }
    }
}

/// Why a reader does not get its bytes.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason.
    pub text: Arc<str>,
    /// Whether the time was over.
    pub is_timeout: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = if failure.is_timeout { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
        Self::new(kind, failure)
    }
}

/// Called once with the outcome of a want.
pub type Done = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// Units that are queued in the background with their hashes: 512 MiB, whose hashes are 4 MiB.
const BACKGROUND_STEP: u64 = (512 << 20) / UNIT;
/// Bytes stored between two looks at the size of the cache.
const COLLECT_EVERY: u64 = 64 << 20;
/// Bytes that are freed at least when the disk is full: as many as a few workers store.
const FULL_DISK_FREE: u64 = 4 << 20;
/// Times that space is freed for one store: the others that store at the same time may take it.
const FULL_DISK_ATTEMPTS: u32 = 8;
/// Time between two calls of [`Entry::sync`].
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often readers are told that their time is over.
const TICK: Duration = Duration::from_millis(100);
/// Bytes that are checked and stored at a time, if blocks are not larger.
const PART: u64 = 256 << 10;
/// How long prefetches wait for the index of known blocks. Reading the digests of a tree for 2 GB takes a tenth of it; hashing what has no tree
/// can take longer.
const INDEX_TIME: Duration = Duration::from_millis(500);
/// The pause before another look at whether the index is complete.
const INDEX_PAUSE: Duration = Duration::from_millis(5);
/// The pause before another look at a part that another process fetches.
const CLAIM_PAUSE: Duration = Duration::from_millis(3);

/// Fetches parts of one object into its entry of the cache.
///
/// When it is dropped, requests in flight end on their own, and what is stored is synced.
#[derive(Debug)]
pub struct Fetcher {
    shared: Arc<Shared>,
}

struct Shared {
    object: Arc<dyn RemoteObject>,
    cache: Cache,
    entry: Arc<Entry>,
    /// What the workers fetch, against other processes.
    claims: Claims,
    check: Option<Box<dyn Check>>,
    /// Blocks of other images on this machine.
    known: Option<Arc<KnownBlocks>>,
    gaps: GapBudget,
    started: Instant,
    options: FetchOptions,
    state: Mutex<State>,
    /// There is work, or the fetcher ends.
    work: Condvar,
    /// A flight ended, or the fetcher ends.
    landed: Condvar,
    speed: Speed,
    stats: Counters,
    /// Bytes stored since the size of the cache was looked at.
    uncollected: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("location", &self.object.location()).finish_non_exhaustive()
    }
}

struct State {
    queue: Queue,
    waiters: Vec<Waiter>,
    last_error: Option<Arc<str>>,
    stop: bool,
}

struct Waiter {
    units: Range<u64>,
    deadline: Instant,
    done: Done,
}

impl Fetcher {
    /// Starts the threads. With `check`, bytes are stored only if it accepts them.
    ///
    /// # Errors
    /// [`Error::Cache`] if a thread cannot be started.
    pub fn start(
        object: Arc<dyn RemoteObject>,
        cache: Cache,
        entry: Arc<Entry>,
        check: Option<Box<dyn Check>>,
        options: FetchOptions,
    ) -> Result<Self> {
        Self::start_with(object, cache, entry, check, None, options)
    }

    /// As [`Self::start`]; copies blocks that are in `known` instead of fetching them.
    pub(crate) fn start_with(
        object: Arc<dyn RemoteObject>,
        cache: Cache,
        entry: Arc<Entry>,
        check: Option<Box<dyn Check>>,
        known: Option<Arc<KnownBlocks>>,
        options: FetchOptions,
    ) -> Result<Self> {
        let border = check.as_ref().map_or(u64::MAX, |check| check.border() / UNIT);
        let state = State { queue: Queue::new(border), waiters: Vec::new(), last_error: None, stop: false };
        let claims = Claims::open(entry.path()).map_err(Error::cache(entry.path(), "claim parts of"))?;
        let shared = Arc::new(Shared {
            object,
            cache,
            entry,
            claims,
            check,
            known,
            gaps: GapBudget::default(),
            started: Instant::now(),
            options,
            state: Mutex::new(state),
            work: Condvar::new(),
            landed: Condvar::new(),
            speed: Speed::default(),
            stats: Counters::default(),
            uncollected: AtomicU64::new(0),
        });
        let fetcher = Self { shared };
        for worker in 0..options.connections.max(2) {
            let shared = Arc::clone(&fetcher.shared);
            let started = Builder::new().name("fetch".into()).spawn(move || shared.work(worker));
            started.map_err(|error| Error::cache(fetcher.shared.entry.path(), "start thread for")(error))?;
        }
        let shared = Arc::clone(&fetcher.shared);
        let started = Builder::new().name("keep".into()).spawn(move || shared.keep());
        started.map_err(|error| Error::cache(fetcher.shared.entry.path(), "start thread for")(error))?;
        Ok(fetcher)
    }

    /// The entry that it fills.
    #[must_use]
    pub fn entry(&self) -> &Arc<Entry> {
        &self.shared.entry
    }

    /// Fetches what is missing of `range` (bytes of the object), and calls `done` when all of it is stored, when it cannot be had, or at
    /// `deadline`.
    pub fn want(&self, range: Range<u64>, deadline: Instant, done: Done) {
        let shared = &self.shared;
        let range = range.start..range.end.min(shared.entry.size());
        add(&shared.stats.demanded, range.end.saturating_sub(range.start));
        let units = units_in(&range);
        match shared.entry.missing(units.clone()) {
            Ok(missing) if missing.is_empty() => return done(Ok(())),
            Ok(_) => {}
            Err(error) => return done(Err(shared.failure(&error.to_string(), false))),
        }
        let wanted = shared.around(&units);
        let mut state = shared.lock();
        for need in shared.needs(&wanted) {
            state.queue.add(shared.around_hashes(&need), Urgency::Demand);
        }
        // What the reader waits for does not wait for its surroundings if that was queued before.
        state.queue.add(wanted, Urgency::Demand);
        state.waiters.push(Waiter { units, deadline, done });
        // It may have landed since it was missing.
        let satisfied = shared.satisfied(&mut state);
        drop(state);
        shared.work.notify_all();
        satisfied.into_iter().for_each(|done| done(Ok(())));
    }

    /// Fetches `range` and waits for it.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn ensure(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure> {
        let (sender, receiver) = mpsc::channel();
        // The receiver is there until an answer has come.
        self.want(range, deadline, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or_else(|_| Err(self.shared.failure("the fetcher ended", false)))
    }

    /// Fetches `range` when nothing more urgent is to be done. Does not wait.
    pub fn prefetch(&self, range: Range<u64>) {
        let shared = &self.shared;
        let range = range.start..range.end.min(shared.entry.size());
        if range.is_empty() {
            return;
        }
        add(&shared.stats.announced, range.end - range.start);
        let step = shared.speed.request().div_ceil(UNIT).max(1);
        shared.announce(&range, step, Urgency::Prefetch);
    }

    /// Fetches `range` when no reader wants anything, by few large requests. Does not wait.
    pub fn background(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.shared.entry.size());
        if !range.is_empty() {
            self.shared.announce(&range, BACKGROUND_STEP, Urgency::Background);
        }
    }

    /// Forgets what was announced and not begun.
    pub fn forget_prefetches(&self) {
        self.shared.lock().queue.clear_prefetch();
    }

    /// Whether nothing is being fetched and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.lock().queue.is_idle()
    }

    /// Whether all blocks of other images on this machine can be found that will be. Earlier, some of them are fetched.
    #[must_use]
    pub fn has_index(&self) -> bool {
        self.shared.known.as_ref().is_none_or(|known| known.is_complete())
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> FetchStats {
        let left = self.shared.lock().queue.background_units();
        self.shared.stats.read(left * UNIT)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        if let Some(known) = &self.shared.known {
            known.stop();
        }
        let mut state = self.shared.lock();
        state.stop = true;
        // Without an answer: another fetcher may continue.
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop(waiters);
        self.shared.work.notify_all();
        self.shared.landed.notify_all();
        // What is not synced is fetched again after a power failure.
        let _ = self.shared.entry.sync();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No change of the state can panic half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self, reason: &str, is_timeout: bool) -> Failure {
        Failure { text: format!("{}: {reason}", self.object.location()).into(), is_timeout }
    }

    /// The smallest range around `units` that can be checked.
    fn align(&self, units: &Range<u64>) -> Range<u64> {
        let align = self.check.as_ref().map_or(1, |check| check.align().div_ceil(UNIT)).max(1);
        let all = self.entry.size().div_ceil(UNIT);
        units.start / align * align..units.end.next_multiple_of(align).min(all)
    }

    /// What a request for `units` fetches with it, because this costs almost no time.
    fn around(&self, units: &Range<u64>) -> Range<u64> {
        if self.is_indexing() {
            // Most of it may be known soon.
            return self.align(units);
        }
        let around = (self.speed.around() / UNIT).max(1);
        let all = self.entry.size().div_ceil(UNIT);
        self.align(&(units.start / around * around..units.end.next_multiple_of(around).min(all)))
    }

    /// Queues what nobody waits for, in parts of `step` units: first the hashes of each part, so that they come in time.
    fn announce(&self, range: &Range<u64>, step: u64, urgency: Urgency) {
        let mut units = self.align(&units_in(range));
        let border = self.check.as_ref().map_or(u64::MAX, |check| check.border() / UNIT);
        let mut state = self.lock();
        while units.start < units.end {
            let end = units.end.min((units.start / step + 1) * step);
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

    /// The units of the hash tree that the check of `units` needs and that are not stored, the highest level first.
    fn needs(&self, units: &Range<u64>) -> Vec<Range<u64>> {
        let Some(check) = &self.check else { return Vec::new() };
        let ranges = check.needs(&(units.start * UNIT..(units.end * UNIT).min(self.entry.size())));
        let needs = ranges.into_iter().map(|range| units_in(&range));
        needs.filter(|need| !self.missing(need.clone()).is_empty()).collect()
    }

    /// Hashes that are fetched together: 64 KiB of them are enough for 8 MiB of data.
    fn around_hashes(&self, units: &Range<u64>) -> Range<u64> {
        const AROUND: u64 = (64 << 10) / UNIT;
        let all = self.entry.size().div_ceil(UNIT);
        self.align(&(units.start..(units.start + AROUND).max(units.end).min(all)))
    }

    /// The runs that are not stored. If the cache cannot be read, all of it: the read will tell.
    fn missing(&self, units: Range<u64>) -> Vec<Range<u64>> {
        self.entry.missing(units.clone()).unwrap_or_else(|_| vec![units])
    }

    /// Workers that prefetch at the same time. None at first: prefetches would fetch what is not in the index yet. Readers do not wait for it.
    fn prefetches(&self) -> usize {
        if self.is_indexing() { 0 } else { (self.options.connections * 3 / 4).max(1) }
    }

    /// Whether the index of known blocks will probably be complete soon.
    fn is_indexing(&self) -> bool {
        let is_incomplete = self.known.as_ref().is_some_and(|known| !known.is_complete());
        is_incomplete && self.started.elapsed() < INDEX_TIME
    }

    /// A worker thread.
    fn work(&self, worker: usize) {
        let mut buffer = Vec::new();
        let mut state = self.lock();
        while !state.stop {
            let most = (self.speed.request() / UNIT).max(1);
            state.queue.limit_background((self.speed.background() / UNIT).max(1));
            let next = state.queue.next(worker, most, self.prefetches(), |units| {
                self.missing(units).iter().map(|run| self.align(run)).collect()
            });
            // Another process may have stored it.
            let satisfied = if state.queue.take_dropped() { self.satisfied(&mut state) } else { Vec::new() };
            if !satisfied.is_empty() {
                drop(state);
                satisfied.into_iter().for_each(|done| done(Ok(())));
                state = self.lock();
            }
            let Some((units, urgency)) = next else {
                if state.stop {
                    return;
                }
                state = if self.is_indexing() {
                    let waited = self.work.wait_timeout(state, INDEX_PAUSE);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                } else {
                    self.work.wait(state).unwrap_or_else(PoisonError::into_inner)
                };
                continue;
            };
            drop(state);
            let started = Instant::now();
            let (flight, buffer_cell) = (units.clone(), Cell::new(buffer));
            let mut job = Job { shared: self, worker, units: flight, urgency, started, buffer: buffer_cell };
            job.copy_known();
            let result = if job.units.is_empty() { Ok(()) } else { job.fetch(&job.units) };
            buffer = job.buffer.take();
            state = self.lock();
            state.queue.landed(&job.units, worker);
            self.landed.notify_all();
            let result = self.ended(&mut state, &job, result);
            let mut finished = self.finished(&mut state, &job.units, result);
            // What was copied may have been evicted since.
            finished.extend(self.finished(&mut state, &units, Ok(())));
            drop(state);
            for (done, result) in finished {
                done(result);
            }
            self.collect();
            state = self.lock();
        }
    }

    /// What the end of a job means for the readers that wait for a part of it. If the job was no demand, another part of it may have failed: what
    /// they miss is fetched for them.
    fn ended(&self, state: &mut State, job: &Job<'_>, result: Result<(), Failure>) -> Result<(), Failure> {
        if job.urgency == Urgency::Background {
            let took_long = job.started.elapsed() >= self.options.prefetch_time / 2;
            state.queue.background_ended(job.units.clone(), result.is_ok(), took_long);
            if result.is_ok() {
                add(&self.stats.background, (job.units.end - job.units.start) * UNIT);
            }
        }
        if state.queue.has_background() {
            // Workers that left the line to a reader.
            self.work.notify_all();
        }
        if job.urgency == Urgency::Demand { result } else { Ok(()) }
    }

    /// The readers whose bytes are all stored.
    fn satisfied(&self, state: &mut State) -> Vec<Done> {
        let is_satisfied = |waiter: &mut Waiter| self.missing(waiter.units.clone()).is_empty();
        state.waiters.extract_if(.., is_satisfied).map(|waiter| waiter.done).collect()
    }

    /// The readers that have got an outcome by the end of this flight.
    fn finished(
        &self,
        state: &mut State,
        units: &Range<u64>,
        result: Result<(), Failure>,
    ) -> Vec<(Done, Result<(), Failure>)> {
        let mut finished = Vec::new();
        let mut number = 0;
        while number < state.waiters.len() {
            let waiter = &state.waiters[number];
            if !overlap(&waiter.units, units) {
                number += 1;
                continue;
            }
            let missing = self.missing(waiter.units.clone());
            if missing.is_empty() {
                finished.push((state.waiters.swap_remove(number).done, Ok(())));
            } else if let Err(failure) = &result {
                finished.push((state.waiters.swap_remove(number).done, Err(failure.clone())));
            } else {
                // Others are in flight or wait; what was evicted meanwhile is fetched again.
                for run in missing {
                    state.queue.add(self.align(&run), Urgency::Demand);
                }
                self.work.notify_all();
                number += 1;
            }
        }
        finished
    }

    /// The thread that ends waiting in time and syncs what was stored.
    fn keep(&self) {
        let mut synced = Instant::now();
        loop {
            let state = self.lock();
            if state.stop {
                return;
            }
            let wait = if state.waiters.is_empty() { SYNC_EVERY } else { TICK };
            let (mut state, _) =
                self.landed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let reason = state.last_error.clone().unwrap_or_else(|| "no answer in time".into());
            let satisfied = self.satisfied(&mut state);
            let over: Vec<Waiter> = state.waiters.extract_if(.., |waiter| waiter.deadline <= now).collect();
            drop(state);
            satisfied.into_iter().for_each(|done| done(Ok(())));
            for waiter in over {
                add(&self.stats.failures, 1);
                (waiter.done)(Err(self.failure(&reason, true)));
            }
            if synced.elapsed() >= SYNC_EVERY {
                // The disk may be full or broken: what is not synced is only lost by a power failure.
                let _ = self.entry.sync();
                synced = Instant::now();
            }
        }
    }

    /// Evicts if the cache has become too large.
    fn collect(&self) {
        if self.cache.limit().is_none() || self.uncollected.load(Ordering::Relaxed) < COLLECT_EVERY {
            return;
        }
        self.uncollected.store(0, Ordering::Relaxed);
        let Ok(collected) = self.cache.collect(COLLECT_EVERY) else { return };
        let limit = self.cache.limit().unwrap_or(u64::MAX);
        if collected.after > limit {
            let _ = self.cache.shrink_entry(&self.entry, collected.after - limit + COLLECT_EVERY);
        }
    }

    /// Frees space for `len` bytes, and for what other threads store meanwhile.
    fn free(&self, len: u64) {
        let wanted = len.saturating_mul(2).max(FULL_DISK_FREE);
        let used = self.cache.usage().map_or(0, |usage| usage.iter().map(|entry| entry.stored).sum::<u64>());
        let collected = self.cache.collect_to(used.saturating_sub(wanted));
        let freed = collected.map_or(0, |done| done.before - done.after);
        if freed < wanted {
            // The store that follows tells whether it helped.
            let _ = self.cache.shrink_entry(&self.entry, wanted - freed);
        }
    }

    /// Stores bytes of another image that were checked.
    fn store_known(&self, start: u64, bytes: &[u8], urgency: Urgency) -> io::Result<()> {
        add(&self.stats.verified, bytes.len() as u64);
        self.store(start, bytes, urgency)?;
        add(&self.stats.reused, bytes.len() as u64);
        Ok(())
    }

    /// Stores checked bytes; frees space in the cache if the disk is full, but not for what nobody waits for.
    fn store(&self, start: u64, bytes: &[u8], urgency: Urgency) -> io::Result<()> {
        let mut stored = self.entry.store(start, bytes);
        let attempts = if urgency == Urgency::Background { 0 } else { FULL_DISK_ATTEMPTS };
        // Other threads and processes take what this one frees.
        for _ in 0..attempts {
            match &stored {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => self.free(bytes.len() as u64),
                _ => break,
            }
            stored = self.entry.store(start, bytes);
        }
        let counter = if stored.is_ok() { &self.stats.stored } else { &self.stats.cache_errors };
        add(counter, bytes.len() as u64);
        self.uncollected.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        stored
    }
}

/// One range that a worker fetches.
struct Job<'a> {
    shared: &'a Shared,
    worker: usize,
    units: Range<u64>,
    urgency: Urgency,
    started: Instant,
    buffer: Cell<Vec<u8>>,
}

impl Job<'_> {
    fn failed(&self, reason: &str, is_timeout: bool) -> Failure {
        add(&self.shared.stats.failures, 1);
        self.shared.failure(reason, is_timeout)
    }

    /// Fetches the hashes that the check of `units` needs, the highest level first, unless another worker does: they were queued before
    /// `units` were.
    fn needs(&self, units: &Range<u64>) -> Result<(), Failure> {
        for need in self.shared.needs(units) {
            let mut state = self.shared.lock();
            while state.queue.is_in_flight_elsewhere(&need, self.worker)
                && !state.stop
                && !self.shared.missing(need.clone()).is_empty()
            {
                // Another worker fetches them, and needs only higher levels, which are at lower positions.
                state = self.shared.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if self.shared.missing(need.clone()).is_empty() {
                continue;
            }
            // Up to what is in flight: also this worker may fetch what follows.
            let need = state.queue.free_from(&need, self.shared.around_hashes(&need).end);
            state.queue.begin(need.clone(), self.worker);
            drop(state);
            let result = self.fetch(&need);
            self.shared.lock().queue.landed(&need, self.worker);
            self.shared.landed.notify_all();
            result?;
        }
        Ok(())
    }

    /// Copies the blocks of this job that are stored in other images on this machine. What is left becomes this job and, if it needs
    /// several requests, jobs of other workers.
    fn copy_known(&mut self) {
        let shared = self.shared;
        let range = self.units.start * UNIT..(self.units.end * UNIT).min(shared.entry.size());
        let Some((known, check)) = shared.known.as_ref().zip(shared.check.as_ref()) else { return };
        // Without its hashes nothing is known of the range; the fetch that follows will tell why.
        if known.is_empty() || range.start >= check.border() || self.needs(&self.units).is_err() {
            return;
        }
        let longest_gap = shared.speed.around();
        let store = |start, bytes: &[u8]| shared.store_known(start, bytes, self.urgency);
        // If nothing can be stored, the store of what was fetched will tell.
        let Ok(copied) = copy_blocks(known, &**check, range, &shared.gaps, longest_gap, store) else {
            return;
        };
        if self.urgency == Urgency::Background {
            add(&shared.stats.background, copied.reused);
        }
        let mut requests = copied.requests.iter().map(units_in);
        let first = requests.next().unwrap_or(self.units.start..self.units.start);
        // Those of other workers are planned again.
        copied.requests.iter().take(1).for_each(|request| shared.gaps.record(request, &copied.missing));
        let mut state = shared.lock();
        let is_wanted = |units: &Range<u64>| state.waiters.iter().any(|waiter| overlap(&waiter.units, units));
        let rest = requests.map(|units| (is_wanted(&units), units));
        let rest = rest.map(|(wanted, units)| (units, if wanted { Urgency::Demand } else { self.urgency }));
        let rest: Vec<_> = rest.collect();
        state.queue.shrink(&self.units, self.worker, &first, rest);
        let satisfied = shared.satisfied(&mut state);
        drop(state);
        shared.work.notify_all();
        shared.landed.notify_all();
        satisfied.into_iter().for_each(|done| done(Ok(())));
        self.units = first;
    }

    /// Copies the hashes of `units` that other trees on this machine have at the same place.
    fn copy_known_hashes(&self, units: &Range<u64>) {
        let shared = self.shared;
        let Some((known, check)) = shared.known.as_ref().zip(shared.check.as_ref()) else { return };
        let is_hashes = units.start * UNIT >= check.border();
        if known.is_empty() || !is_hashes || self.needs(units).is_err() {
            return;
        }
        for run in shared.missing(units.clone()) {
            let run = run.start * UNIT..run.end * UNIT;
            // What is not copied is fetched.
            let store = |start, bytes: &[u8]| shared.store_known(start, bytes, self.urgency);
            let _ = copy_hashes(known, &**check, &run, store);
        }
    }

    /// Fetches what is missing of `units`, and stores it.
    fn fetch(&self, units: &Range<u64>) -> Result<(), Failure> {
        let shared = self.shared;
        // Before the claim: others may wait for it, whose hashes this worker waits for.
        self.copy_known_hashes(units);
        let started = Instant::now();
        let claim = loop {
            match shared.claims.take(units) {
                Ok(Some(claim)) => break Some(claim),
                Ok(None) => {}
                // The error of the store will tell.
                Err(_) => break None,
            }
            if shared.missing(units.clone()).is_empty() {
                return Ok(());
            }
            let Some(deadline) = self.deadline().filter(|deadline| *deadline > Instant::now()) else {
                return Err(self.failed("another process fetches it, and has not ended in time", true));
            };
            // A process that is stopped keeps its claims. To fetch a part twice costs less than a reader that gets nothing.
            let most = shared.options.retry.request.min(deadline.saturating_duration_since(started) / 2);
            if started.elapsed() >= most {
                break None;
            }
            self.pause(CLAIM_PAUSE);
        };
        for run in shared.missing(units.clone()) {
            let run = shared.align(&run);
            self.fetch_run(run.start * UNIT..(run.end * UNIT).min(shared.entry.size()))?;
        }
        drop(claim);
        Ok(())
    }

    fn fetch_run(&self, range: Range<u64>) -> Result<(), Failure> {
        let shared = self.shared;
        let started = Instant::now();
        // Nested calls, for hashes, get a buffer of their own.
        let mut parts = Parts { job: self, end: range.end, buffer: self.buffer.take(), stored: Ok(()) };
        let (object, retry) = (&*shared.object, &shared.options.retry);
        let fetched = attempts::fetch_parts(object, range.clone(), retry, self, &shared.stats, &mut parts);
        let Parts { buffer, stored, .. } = parts;
        self.buffer.set(buffer);
        stored?;
        fetched.map_err(|kind| {
            let is_timeout = matches!(kind, FetchErrorKind::Timeout);
            let last = shared.lock().last_error.clone().filter(|_| is_timeout);
            self.failed(last.as_deref().unwrap_or(&kind.to_string()), is_timeout)
        })?;
        // A later failure has another reason.
        shared.lock().last_error = None;
        shared.speed.record(range.end - range.start, started.elapsed());
        Ok(())
    }

    /// Checks bytes that arrived, and stores them if they are right.
    fn store(&self, start: u64, bytes: &[u8]) -> Result<bool, Failure> {
        let shared = self.shared;
        if let Some(check) = &shared.check {
            // Hashes came while these bytes came.
            self.needs(&units_in(&(start..start + bytes.len() as u64)))?;
            match check.check(start, bytes) {
                Checked::Right => add(&shared.stats.verified, bytes.len() as u64),
                Checked::NotCovered => {}
                Checked::Wrong => return Ok(false),
            }
        }
        shared.store(start, bytes, self.urgency).map_err(|error| {
            self.failed(&format!("cannot be stored in {}: {error}", shared.entry.path().display()), false)
        })?;
        // Readers do not wait for what follows.
        let satisfied = shared.satisfied(&mut shared.lock());
        satisfied.into_iter().for_each(|done| done(Ok(())));
        shared.landed.notify_all();
        Ok(true)
    }
}

/// Stores a range part by part, while the rest arrives.
struct Parts<'a, 'b> {
    job: &'a Job<'b>,
    end: u64,
    /// The part that arrives.
    buffer: Vec<u8>,
    /// Why a part was not stored.
    stored: Result<(), Failure>,
}

impl Sink for Parts<'_, '_> {
    fn part(&mut self, start: u64) -> &mut [u8] {
        let align = self.job.shared.check.as_ref().map_or(1, |check| check.align());
        let part = PART.next_multiple_of(align);
        let end = self.end.min((start / part + 1) * part);
        self.buffer.resize(to_usize(end - start), 0);
        &mut self.buffer
    }

    fn take(&mut self, start: u64) -> Result<bool, FetchErrorKind> {
        self.job.store(start, &self.buffer).map_err(|failure| {
            self.stored = Err(failure);
            FetchErrorKind::Short
        })
    }
}

impl Patience for Job<'_> {
    fn deadline(&self) -> Option<Instant> {
        let state = self.shared.lock();
        if state.stop {
            return None;
        }
        let waiters = state.waiters.iter().filter(|waiter| overlap(&waiter.units, &self.units));
        let longest = waiters.map(|waiter| waiter.deadline).max();
        let bytes = (self.units.end - self.units.start) * UNIT;
        // A large part takes long on a slow line.
        let transfer = Duration::from_secs(bytes / self.shared.options.retry.slowest.max(1));
        let own = self.started + self.shared.options.prefetch_time + transfer;
        match self.urgency {
            Urgency::Demand => longest.or(Some(own)),
            Urgency::Prefetch | Urgency::Background => Some(longest.map_or(own, |longest| longest.max(own))),
        }
    }

    fn pause(&self, time: Duration) {
        let state = self.shared.lock();
        if !state.stop {
            let until = Instant::now() + time;
            let mut state = state;
            while !state.stop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                state =
                    self.shared.landed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    fn failed(&self, error: &FetchErrorKind) {
        self.shared.lock().last_error = Some(error.to_string().into());
    }
}
