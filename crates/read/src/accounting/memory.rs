//! Accounting of memory: the bytes that an open image holds, their maximum so far, and the limit.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::stats::Counters;

/// How long a thread that reaches the limit waits for others to release memory. Then it exceeds the
/// limit: waiting longer could deadlock with a thread that waits for a cluster which this thread
/// decodes.
const MAX_WAIT: Duration = Duration::from_millis(10);

/// The bytes that caches, buffers and pinned content hold.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
    /// Requests that are served, each by its thread, if there is a limit.
    requests: AtomicUsize,
    /// Those of them that wait for a buffer.
    waiting: Mutex<usize>,
    released: Condvar,
}

/// A request that is served, until this is dropped.
#[derive(Debug)]
pub(crate) struct Served<'a>(&'a Memory);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
        // All others may wait now.
        if *self.0.waiting.lock() > 0 {
            self.0.released.notify_all();
        }
    }
}

impl Memory {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.unwrap_or(usize::MAX),
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            waiting: Mutex::new(0),
            released: Condvar::new(),
        }
    }

    /// Bytes that may be held; `usize::MAX` without a limit.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Counts a request of this thread, if there is a limit.
    pub(crate) fn serve(&self) -> Option<Served<'_>> {
        (self.limit != usize::MAX).then(|| {
            self.requests.fetch_add(1, Relaxed);
            Served(self)
        })
    }

    /// Adds `len` bytes, even beyond the limit.
    pub(crate) fn take(&self, len: usize) {
        let held = self.held.fetch_add(len, Relaxed).wrapping_add(len);
        self.peak.fetch_max(held, Relaxed);
    }

    /// Adds `len` bytes if the limit allows them.
    pub(crate) fn try_take(&self, len: usize) -> bool {
        let fits = |held: usize| held.checked_add(len).filter(|held| *held <= self.limit);
        let taken = self.held.fetch_update(Relaxed, Relaxed, fits);
        if let Ok(before) = taken {
            self.peak.fetch_max(before.saturating_add(len), Relaxed);
        }
        taken.is_ok()
    }

    /// Adds `len` bytes. At the limit, waits up to [`MAX_WAIT`] for other threads to release
    /// memory, unless `len` alone exceeds the limit, or no other request is served that does not
    /// wait, too.
    pub(crate) fn take_or_wait(&self, len: usize, counters: &Counters) {
        if len > self.limit {
            return self.take(len);
        }
        if self.try_take(len) {
            return;
        }
        if cfg!(target_family = "wasm") {
            // There are no other threads that could release memory.
            return self.take(len);
        }
        let mut start = None;
        let mut waiting = self.waiting.lock();
        *waiting = waiting.saturating_add(1);
        while !self.try_take(len) {
            let all_wait = *waiting >= self.requests.load(Relaxed);
            let left =
                MAX_WAIT.saturating_sub(start.as_ref().map_or(Duration::ZERO, Instant::elapsed));
            if all_wait || left.is_zero() {
                self.take(len);
                break;
            }
            start.get_or_insert_with(Instant::now);
            self.released.wait_for(&mut waiting, left);
        }
        *waiting = waiting.saturating_sub(1);
        if let Some(start) = start {
            counters.stalled(start);
        }
    }

    /// Subtracts `len` bytes that were released.
    pub(crate) fn release(&self, len: usize) {
        self.held.fetch_sub(len, Relaxed);
        if self.limit != usize::MAX && *self.waiting.lock() > 0 {
            self.released.notify_all();
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_at_the_limit_waits_then_exceeds_it() {
        let (memory, counters) = (Memory::new(Some(100)), Counters::default());
        let _others = (memory.serve(), memory.serve());
        assert!(memory.try_take(60) && !memory.try_take(50));
        std::thread::scope(|scope| {
            scope.spawn(|| memory.take_or_wait(50, &counters));
            memory.release(60);
        });
        assert_eq!(memory.held(), 50);
        // No thread releases memory.
        memory.take_or_wait(100, &counters);
        assert_eq!((memory.held(), memory.peak()), (150, 150));
        let stalls = counters.snapshot().stalls;
        assert!(stalls > 0);
        // More than all threads can release.
        memory.take_or_wait(101, &counters);
        assert_eq!((memory.held(), counters.snapshot().stalls), (251, stalls));
    }

    #[test]
    fn a_request_does_not_wait_for_itself() {
        let (memory, counters) = (Memory::new(Some(100)), Counters::default());
        let _own = memory.serve();
        memory.take_or_wait(60, &counters);
        memory.take_or_wait(60, &counters);
        assert_eq!((memory.held(), counters.snapshot().stalls), (120, 0));
    }
}
