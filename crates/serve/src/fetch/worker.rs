//! A worker thread: takes a range from the queue, and fetches it or copies it.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::attempts::{self, Patience, Sink};
use super::check::Checked;
use super::options::Done;
use super::queue::{Urgency, overlap};
use super::reuse::{copy_blocks, copy_hashes};
use super::shared::{Shared, State};
use crate::cache::{UNIT, bytes_of, units_in};
use crate::error::{Failure, FetchErrorKind};
use crate::object::later;
use crate::ranges::{len_of, range_of};
use ferofs_format::units::{to_u64, to_usize};

/// The largest request for an object of which all is fetched.
const COMPLETE: u64 = 4 << 20;
/// Bytes that are checked and stored at a time, if blocks are not larger.
const PART: u64 = 256 << 10;
/// The pause before another look at whether the index is complete.
const INDEX_PAUSE: Duration = Duration::from_millis(5);
/// The pause before another look at a part that another process fetches.
const CLAIM_PAUSE: Duration = Duration::from_millis(3);

impl Shared {
    /// A worker thread.
    pub(super) fn work(&self, worker: usize) {
        let mut buffer = Vec::new();
        let mut state = self.state.lock();
        while !state.stop {
            let most = if self.options.complete { COMPLETE } else { self.speed.request() };
            let most = (most / UNIT).max(1);
            state.queue.limit_background((self.speed.background() / UNIT).max(1));
            let next = state.queue.next(worker, most, self.prefetches(), |units| {
                self.missing(units).iter().map(|run| self.align(run)).collect()
            });
            // Another process may have stored it.
            let satisfied =
                if state.queue.take_dropped() { self.satisfied(&mut state) } else { Vec::new() };
            if !satisfied.is_empty() {
                drop(state);
                satisfied.into_iter().for_each(|done| done(Ok(())));
                state = self.state.lock();
            }
            let Some((units, urgency)) = next else {
                if state.stop {
                    return;
                }
                if self.is_indexing() {
                    self.work.wait_for(&mut state, INDEX_PAUSE);
                } else {
                    self.work.wait(&mut state);
                }
                continue;
            };
            drop(state);
            let started = Instant::now();
            let (job_units, buffer_cell) = (units.clone(), Cell::new(buffer));
            let mut job = Job {
                shared: self,
                worker,
                units: job_units,
                urgency,
                started,
                buffer: buffer_cell,
            };
            job.copy_known();
            let result = if job.units.is_empty() { Ok(()) } else { job.fetch(&job.units) };
            buffer = job.buffer.take();
            state = self.state.lock();
            state.queue.finished(&job.units, worker);
            self.finished.notify_all();
            let result = self.ended(&mut state, &job, result);
            let mut finished = self.finished(&mut state, &job.units, result);
            // The copied bytes may have been evicted since.
            finished.extend(self.finished(&mut state, &units, Ok(())));
            drop(state);
            for (done, result) in finished {
                done(result);
            }
            self.collect();
            state = self.state.lock();
        }
    }

    /// Tells the readers that wait for a part of a job that it ended. If it was not a demand,
    /// another part of it may have failed: then the parts that they miss are fetched for them.
    fn ended(
        &self,
        state: &mut State,
        job: &Job<'_>,
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if job.urgency == Urgency::Background {
            let took_long = job.started.elapsed().saturating_mul(2) >= self.options.prefetch_time;
            state.queue.background_ended(job.units.clone(), result.is_ok(), took_long);
            if result.is_ok() {
                self.stats.background.add(len_of(&bytes_of(&job.units)));
            }
        }
        if state.queue.has_background() {
            // Workers that left the line to a reader.
            self.work.notify_all();
        }
        if job.urgency == Urgency::Demand { result } else { Ok(()) }
    }

    /// The readers that have got an outcome by the end of this fetch.
    fn finished(
        &self,
        state: &mut State,
        units: &Range<u64>,
        result: Result<(), Failure>,
    ) -> Vec<(Done, Result<(), Failure>)> {
        let mut finished = Vec::new();
        let mut number = 0usize;
        while let Some(waiter) = state.waiters.get(number) {
            if !overlap(&waiter.units, units) {
                number = number.saturating_add(1);
                continue;
            }
            let missing = self.missing(waiter.units.clone());
            if missing.is_empty() {
                finished.push((state.waiters.swap_remove(number).done, Ok(())));
            } else if let Err(failure) = &result {
                finished.push((state.waiters.swap_remove(number).done, Err(failure.clone())));
            } else {
                // Others are being fetched or wait; evicted units are fetched again.
                for run in missing {
                    state.queue.add(self.align(&run), Urgency::Demand);
                }
                self.work.notify_all();
                number = number.saturating_add(1);
            }
        }
        finished
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
        self.shared.stats.failures.add(1);
        self.shared.failure(reason, is_timeout)
    }

    /// Fetches the hashes that the check of `units` needs, the highest level first, unless another
    /// worker does: they were queued before `units` were.
    fn needs(&self, units: &Range<u64>) -> Result<(), Failure> {
        for need in self.shared.needs(units) {
            let mut state = self.shared.state.lock();
            while state.queue.is_fetched_elsewhere(&need, self.worker)
                && !state.stop
                && !self.shared.missing(need.clone()).is_empty()
            {
                // Another worker fetches them, and needs only higher levels, which are at lower
                // positions.
                self.shared.finished.wait(&mut state);
            }
            if self.shared.missing(need.clone()).is_empty() {
                continue;
            }
            // Up to the next range that is being fetched; also this worker may fetch the ranges
            // after it.
            let need = state.queue.free_from(&need, self.shared.around_hashes(&need).end);
            state.queue.begin(need.clone(), self.worker);
            drop(state);
            let result = self.fetch(&need);
            self.shared.state.lock().queue.finished(&need, self.worker);
            self.shared.finished.notify_all();
            result?;
        }
        Ok(())
    }

    /// Copies the blocks of this job that are stored in other images on this machine. What is left
    /// becomes this job and, if it needs several requests, jobs of other workers.
    fn copy_known(&mut self) {
        let shared = self.shared;
        let range = shared.entry.bytes_of(&self.units);
        let Some((known, check)) = shared.known.as_ref().zip(shared.check.as_ref()) else { return };
        // Without its hashes nothing is known of the range; the fetch that follows will tell why.
        if known.is_empty() || range.start >= check.border() || self.needs(&self.units).is_err() {
            return;
        }
        let longest_gap = shared.speed.around();
        let store = |start, bytes: &[u8]| shared.store_known(start, bytes, self.urgency);
        // If nothing can be stored, the store of what was fetched will tell.
        let Ok(copied) = copy_blocks(known, &**check, range, &shared.gaps, longest_gap, store)
        else {
            return;
        };
        if self.urgency == Urgency::Background {
            shared.stats.background.add(copied.reused);
        }
        let mut requests = copied.requests.iter().map(units_in);
        let first = requests.next().unwrap_or(self.units.start..self.units.start);
        // The plans of other workers are made again.
        copied
            .requests
            .iter()
            .take(1)
            .for_each(|request| shared.gaps.record(request, &copied.missing));
        let mut state = shared.state.lock();
        let is_wanted =
            |units: &Range<u64>| state.waiters.iter().any(|waiter| overlap(&waiter.units, units));
        let rest = requests.map(|units| (is_wanted(&units), units));
        let rest = rest
            .map(|(wanted, units)| (units, if wanted { Urgency::Demand } else { self.urgency }));
        let rest: Vec<_> = rest.collect();
        state.queue.shrink(&self.units, self.worker, &first, rest);
        let satisfied = shared.satisfied(&mut state);
        drop(state);
        shared.work.notify_all();
        shared.finished.notify_all();
        satisfied.into_iter().for_each(|done| done(Ok(())));
        self.units = first;
    }

    /// Copies the hashes of `units` that other trees on this machine have at the same place.
    fn copy_known_hashes(&self, units: &Range<u64>) {
        let shared = self.shared;
        let Some((known, check)) = shared.known.as_ref().zip(shared.check.as_ref()) else { return };
        let is_hashes = bytes_of(units).start >= check.border();
        if known.is_empty() || !is_hashes || self.needs(units).is_err() {
            return;
        }
        for run in shared.missing(units.clone()) {
            // Blocks that are not copied are fetched.
            let store = |start, bytes: &[u8]| shared.store_known(start, bytes, self.urgency);
            let _ = copy_hashes(known, &**check, &bytes_of(&run), store);
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
            let Some(deadline) = self.deadline().filter(|deadline| *deadline > Instant::now())
            else {
                return Err(
                    self.failed("another process fetches it, and has not ended in time", true)
                );
            };
            // A process that is stopped keeps its claims. To fetch a part twice costs less than a
            // reader that gets nothing.
            let (waited, all) = (started.elapsed(), deadline.saturating_duration_since(started));
            if waited >= shared.options.retry.request || waited.saturating_mul(2) >= all {
                break None;
            }
            self.pause(CLAIM_PAUSE);
        };
        for run in shared.missing(units.clone()) {
            self.fetch_run(shared.entry.bytes_of(&shared.align(&run)))?;
        }
        drop(claim);
        Ok(())
    }

    fn fetch_run(&self, range: Range<u64>) -> Result<(), Failure> {
        let shared = self.shared;
        let started = Instant::now();
        // Nested calls, for hashes, get a buffer of their own.
        let mut parts =
            Parts { job: self, end: range.end, buffer: self.buffer.take(), stored: Ok(()) };
        let (object, retry) = (&*shared.object, &shared.options.retry);
        let fetched =
            attempts::fetch_parts(object, range.clone(), retry, self, &shared.stats, &mut parts);
        let Parts { buffer, stored, .. } = parts;
        self.buffer.set(buffer);
        stored?;
        fetched.map_err(|kind| {
            let is_timeout = matches!(kind, FetchErrorKind::Timeout);
            let last = shared.state.lock().last_error.clone().filter(|_| is_timeout);
            self.failed(last.as_deref().unwrap_or(&kind.to_string()), is_timeout)
        })?;
        // A later failure has another reason.
        shared.state.lock().last_error = None;
        shared.speed.record(len_of(&range), started.elapsed());
        Ok(())
    }

    /// Checks bytes that arrived, and stores them if they are right.
    fn store(&self, start: u64, bytes: &[u8]) -> Result<bool, Failure> {
        let shared = self.shared;
        if let Some(check) = &shared.check {
            // Hashes came while these bytes came.
            self.needs(&units_in(&range_of(start, bytes)))?;
            match check.check(start, bytes) {
                Checked::Right => shared.stats.verified.add(to_u64(bytes.len())),
                Checked::NotCovered => {}
                Checked::Wrong => return Ok(false),
            }
        }
        shared.store(start, bytes, self.urgency).map_err(|error| {
            self.failed(
                &format!("cannot be stored in {}: {error}", shared.entry.path().display()),
                false,
            )
        })?;
        // Readers do not wait for what follows.
        let satisfied = shared.satisfied(&mut shared.state.lock());
        satisfied.into_iter().for_each(|done| done(Ok(())));
        shared.finished.notify_all();
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
        let end = start
            .saturating_add(1)
            .checked_next_multiple_of(part)
            .unwrap_or(u64::MAX)
            .min(self.end);
        self.buffer.resize(to_usize(end.saturating_sub(start)), 0);
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
        let state = self.shared.state.lock();
        if state.stop {
            return None;
        }
        let waiters = state.waiters.iter().filter(|waiter| overlap(&waiter.units, &self.units));
        let longest = waiters.map(|waiter| waiter.deadline).max();
        let options = &self.shared.options;
        // A large part takes long on a slow line.
        let transfer = options.retry.transfer(len_of(&bytes_of(&self.units)));
        let own = later(self.started, options.prefetch_time.saturating_add(transfer));
        match self.urgency {
            Urgency::Demand => longest.or(Some(own)),
            Urgency::Prefetch | Urgency::Background => {
                Some(longest.map_or(own, |longest| longest.max(own)))
            }
        }
    }

    fn pause(&self, time: Duration) {
        let until = later(Instant::now(), time);
        let mut state = self.shared.state.lock();
        while !state.stop && !self.shared.finished.wait_until(&mut state, until).timed_out() {}
    }

    fn failed(&self, error: &FetchErrorKind) {
        self.shared.state.lock().last_error = Some(error.to_string().into());
    }
}
