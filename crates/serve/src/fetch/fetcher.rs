//! The fetcher: readers ask for ranges, and worker threads fetch them into the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::check::{Check, VerifiedEntry, check_stored};
use super::options::{Done, FetchOptions};
use super::queue::{Queue, Urgency};
use super::reuse::{GapBudget, KnownBlocks};
use super::shared::{NO_ANSWER, Shared, State, Waiter};
use super::speed::Speed;
use super::stats::{Counters, FetchStats};
use crate::cache::{Cache, Claims, Entry, UNIT, units_in};
use crate::error::{Error, Failure, Result};
use crate::object::RemoteObject;
use crate::ranges::{len_of, widened};

/// Units that are queued in the background with their hashes: 512 MiB, whose hashes are 4 MiB.
const BACKGROUND_STEP: u64 = (512 << 20) / UNIT;

/// Fetches parts of one object into its entry of the cache.
///
/// When it is dropped, its requests end on their own, and the stored bytes are synced.
#[derive(Debug)]
pub struct Fetcher {
    shared: Arc<Shared>,
}
impl Fetcher {
    /// Starts the threads. With `check`, bytes are stored only if it accepts them. Blocks that are
    /// in `known` are copied instead of fetched.
    ///
    /// # Errors
    /// [`Error::Io`] if a thread cannot be started.
    pub(crate) fn start(
        object: Arc<dyn RemoteObject>,
        cache: Cache,
        entry: Arc<Entry>,
        check: Option<Box<dyn Check>>,
        known: Option<Arc<KnownBlocks>>,
        options: FetchOptions,
    ) -> Result<Self> {
        let border = check.as_ref().map_or(u64::MAX, |check| check.border() / UNIT);
        let state =
            State { queue: Queue::new(border), waiters: Vec::new(), last_error: None, stop: false };
        let claims =
            Claims::open(entry.path()).map_err(Error::io("claim parts of", entry.path()))?;
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
            finished: Condvar::new(),
            speed: Speed::default(),
            stats: Counters::default(),
            uncollected: AtomicU64::new(0),
            collect_after: AtomicU64::new(u64::MAX),
        });
        // Images that were fetched without a limit, or with a larger one.
        shared.collect_now();
        let fetcher = Self { shared };
        for worker in 0..options.connections.max(2) {
            let shared = Arc::clone(&fetcher.shared);
            let started = Builder::new().name("fetch".into()).spawn(move || shared.work(worker));
            started.map_err(|error| {
                Error::io("start thread for", fetcher.shared.entry.path())(error)
            })?;
        }
        let shared = Arc::clone(&fetcher.shared);
        let started = Builder::new().name("keep".into()).spawn(move || shared.keep());
        started
            .map_err(|error| Error::io("start thread for", fetcher.shared.entry.path())(error))?;
        Ok(fetcher)
    }

    /// The entry that it fills.
    #[must_use]
    pub fn entry(&self) -> &Arc<Entry> {
        &self.shared.entry
    }

    /// Fetches what is missing of `range` (bytes of the object), and calls `done` when all of it is
    /// stored, when it cannot be had, or at `deadline`.
    pub fn want(&self, range: Range<u64>, deadline: Instant, done: Done) {
        let shared = &self.shared;
        let range = range.start..range.end.min(shared.entry.size());
        shared.stats.demanded.add(len_of(&range));
        let units = units_in(&range);
        match shared.entry.missing(units.clone()) {
            Ok(missing) if missing.is_empty() => return done(Ok(())),
            Ok(_) => {}
            Err(error) => return done(Err(shared.failure(&error.to_string(), false))),
        }
        let wanted = shared.around(&units);
        let mut state = shared.state.lock();
        for need in shared.needs(&wanted) {
            state.queue.add(shared.around_hashes(&need), Urgency::Demand);
        }
        // The range that the reader waits for does not wait for its surroundings, if it was queued
        // before.
        state.queue.add(wanted, Urgency::Demand);
        state.waiters.push(Waiter { units, deadline, done });
        // It may have been stored since it was missing.
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

    /// Checks the stored bytes of `range` again, and removes wrong ones: a reader found other bytes
    /// than those that were stored.
    ///
    /// # Errors
    /// [`Failure`] of the disk.
    pub fn remove_wrong(&self, range: Range<u64>) -> Result<(), Failure> {
        let Some(check) = &self.shared.check else { return Ok(()) };
        let (entry, mut checked) = (&self.shared.entry, VerifiedEntry::default());
        // The range comes from a process that decodes the image, so it can have any numbers.
        let range = range.start.min(entry.size())..range.end.min(entry.size());
        let range = widened(&range, check.align().max(UNIT));
        check_stored(entry, &**check, &range, &mut checked)
            .map_err(|error| self.shared.failure(&error.to_string(), false))?;
        self.shared.stats.removed.add(checked.wrong);
        Ok(())
    }

    /// Fetches `range` when nothing more urgent is to be done. Does not wait.
    pub fn prefetch(&self, range: Range<u64>) {
        let shared = &self.shared;
        let range = range.start..range.end.min(shared.entry.size());
        if range.is_empty() {
            return;
        }
        shared.stats.announced.add(len_of(&range));
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
        self.shared.state.lock().queue.clear_prefetch();
    }

    /// Whether nothing is being fetched and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.state.lock().queue.is_idle()
    }

    /// Whether all blocks of other images on this machine can be found that will be. Earlier, some
    /// of them are fetched.
    #[must_use]
    pub fn has_index(&self) -> bool {
        self.shared.known.as_ref().is_none_or(|known| known.is_complete())
    }

    /// Why nothing comes.
    pub(crate) fn problem(&self) -> Failure {
        let last = self.shared.state.lock().last_error.clone();
        self.shared.failure(last.as_deref().unwrap_or(NO_ANSWER), true)
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> FetchStats {
        let left = self.shared.state.lock().queue.background_units();
        self.shared.stats.read(left.saturating_mul(UNIT))
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        if let Some(known) = &self.shared.known {
            known.stop();
        }
        let mut state = self.shared.state.lock();
        state.stop = true;
        // Without an answer: another fetcher may continue.
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop(waiters);
        self.shared.work.notify_all();
        self.shared.finished.notify_all();
        // Bytes that are not synced are fetched again after a power failure.
        let _ = self.shared.entry.sync();
    }
}
