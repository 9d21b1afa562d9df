//! Lets one thread wait for requests while they come one at a time, and all threads while several programs read.
//!
//! Linux wakes the threads that read from `/dev/fuse` in turn. If a program reads with one thread, each of its requests would
//! wake another thread of the daemon, mostly on another processor, and Linux often runs the reader before the answering thread
//! can wait again. So while all requests come from one thread, a thread of the daemon that has answered parks if another one
//! waits already.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After a request of another reader, no thread parks for this many requests.
const BUSY_REQUESTS: u32 = 32;
/// A thread parks at most this long. So a request waits at most this long for a thread that takes long to answer another one.
const MAX_PARK: Duration = Duration::from_millis(10);

/// The threads of a session.
#[derive(Debug)]
pub(crate) struct WaitingThreads {
    /// Threads that wait for a request.
    waiting: AtomicUsize,
    /// The thread that sent the last request.
    reader: AtomicU32,
    /// Requests until threads may park.
    busy: AtomicU32,
    /// Parked threads.
    parked: Mutex<usize>,
    wake: Condvar,
    max_park: Duration,
}

/// A thread that answers a request. Dropping it after the answer lets the thread park, or wait for the next request.
pub(crate) struct Answering<'a>(&'a WaitingThreads);

impl WaitingThreads {
    /// All `threads` wait.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(threads),
            reader: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            parked: Mutex::new(0),
            wake: Condvar::new(),
            max_park: MAX_PARK,
        }
    }

    /// Begins the answer to a request that the thread `reader` sent.
    pub(crate) fn answer(&self, reader: u32) -> Answering<'_> {
        self.waiting.fetch_sub(1, Relaxed);
        if self.reader.swap(reader, Relaxed) != reader {
            self.wake_all();
        }
        Answering(self)
    }

    /// Lets all threads wait for requests.
    pub(crate) fn wake_all(&self) {
        if self.busy.swap(BUSY_REQUESTS, Relaxed) == 0 {
            // With the lock, no thread is between its test of `busy` and its wait.
            drop(self.parked());
            self.wake.notify_all();
        }
    }

    /// Whether several readers sent requests a short time ago.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    fn park(&self) {
        let mut parked = self.parked();
        *parked += 1;
        let is_quiet = |_: &mut usize| self.busy.load(Relaxed) == 0;
        let waited = self.wake.wait_timeout_while(parked, self.max_park, is_quiet);
        *waited.unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }

    fn parked(&self) -> MutexGuard<'_, usize> {
        // A panic cannot leave the number half changed.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let Self(threads) = self;
        let busy = threads.busy.fetch_update(Relaxed, Relaxed, |busy| busy.checked_sub(1)).is_ok();
        if !busy && threads.waiting.load(Relaxed) > 0 {
            threads.park();
        }
        threads.waiting.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that would park for an hour, after enough requests of reader 7 that they may.
    fn quiet(threads: usize) -> WaitingThreads {
        let threads = WaitingThreads { max_park: Duration::from_secs(3600), ..WaitingThreads::new(threads) };
        for _ in 0..BUSY_REQUESTS {
            drop(threads.answer(7));
        }
        assert_eq!(threads.busy.load(Relaxed), 0);
        threads
    }

    #[test]
    fn a_thread_parks_until_another_reader_sends_a_request() {
        let threads = quiet(3);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(threads.answer(7)));
            while *threads.parked() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(threads.waiting.load(Relaxed), 2);
            drop(threads.answer(8));
        });
        assert_eq!((threads.waiting.load(Relaxed), *threads.parked()), (3, 0));
    }

    #[test]
    fn a_single_thread_never_parks() {
        let threads = quiet(1);
        for _ in 0..100 {
            drop(threads.answer(7));
        }
        assert_eq!(threads.waiting.load(Relaxed), 1);
    }
}
