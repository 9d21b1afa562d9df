//! Lets one thread wait for requests while they come one at a time, and all threads while several
//! programs read.
//!
//! Linux wakes the threads that read from `/dev/fuse` in turn. If a program reads with one thread,
//! each of its requests would wake another thread of the daemon, mostly on another processor, and
//! Linux often runs the reader before the answering thread can wait again. So while all requests
//! come from one thread, a thread of the daemon that has answered parks if another one waits
//! already.
//!
//! One thread can also send several requests before the first is answered (io_uring). Then requests
//! wait in the device while a thread of the daemon answers one.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// After a request of another reader, no thread parks for this many requests.
const BUSY_REQUESTS: u32 = 32;
/// Answers until a thread looks again whether a request waits already. Looking costs a system call.
const LOOK_EVERY: u32 = 8;
/// A thread parks at most this long. So a request waits at most this long for a thread that takes
/// long to answer another one.
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
    /// Answers until a thread looks at the device.
    until_look: AtomicU32,
    /// The FUSE device, from which all threads get their requests.
    device: OnceLock<OwnedFd>,
    /// Parked threads.
    parked: Mutex<usize>,
    wake: Condvar,
    max_park: Duration,
}

/// A thread that answers a request. Dropping it after the answer lets the thread park, or wait for
/// the next request.
pub(crate) struct Answering<'a>(&'a WaitingThreads);

impl WaitingThreads {
    /// All `threads` wait.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(threads),
            reader: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            until_look: AtomicU32::new(LOOK_EVERY),
            device: OnceLock::new(),
            parked: Mutex::new(0),
            wake: Condvar::new(),
            max_park: MAX_PARK,
        }
    }

    /// Sets the FUSE device. Before this, only the threads that send requests are told apart.
    pub(crate) fn watch(&self, device: OwnedFd) {
        // Cannot fail: the threads belong to one session, which calls this once.
        let _ = self.device.set(device);
    }

    /// Begins the answer to a request that the thread `reader` sent.
    pub(crate) fn answer(&self, reader: u32) -> Answering<'_> {
        self.waiting.fetch_sub(1, Relaxed);
        // A reader that waits for each answer has no other request in the device now, but soon
        // after the answer.
        if self.reader.swap(reader, Relaxed) != reader || self.sees_waiting_request() {
            self.wake_all();
        }
        Answering(self)
    }

    /// Lets all threads wait for requests.
    pub(crate) fn wake_all(&self) {
        if self.busy.swap(BUSY_REQUESTS, Relaxed) == 0 {
            // With the lock, no thread is between its test of `busy` and its wait.
            drop(self.parked.lock());
            self.wake.notify_all();
        }
    }

    /// Whether several readers sent requests a short time ago.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// Whether a request waits for a thread. Looks only at some of the calls.
    fn sees_waiting_request(&self) -> bool {
        let count = |until: u32| Some(until.checked_sub(1).unwrap_or(LOOK_EVERY));
        if self.until_look.fetch_update(Relaxed, Relaxed, count) != Ok(0) {
            return false;
        }
        self.device.get().is_some_and(|device| {
            let mut device = [PollFd::new(device, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut device, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }

    fn park(&self) {
        let mut parked = self.parked.lock();
        *parked = parked.saturating_add(1);
        let is_quiet = |_: &mut usize| self.busy.load(Relaxed) == 0;
        self.wake.wait_while_for(&mut parked, is_quiet, self.max_park);
        *parked = parked.saturating_sub(1);
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
        let threads =
            WaitingThreads { max_park: Duration::from_secs(3600), ..WaitingThreads::new(threads) };
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
            while *threads.parked.lock() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(threads.waiting.load(Relaxed), 2);
            drop(threads.answer(8));
        });
        assert_eq!((threads.waiting.load(Relaxed), *threads.parked.lock()), (3, 0));
    }

    #[test]
    fn no_thread_parks_while_requests_wait_in_the_device() {
        let threads = quiet(3);
        let (device, request) = rustix::pipe::pipe().unwrap();
        rustix::io::write(request, b"request").unwrap();
        threads.watch(device);
        let is_busy_after = |answers: u32| {
            (0..answers).any(|_| {
                // This answer does not let the thread park, which would take an hour.
                threads.busy.store(1, Relaxed);
                drop(threads.answer(7));
                threads.is_busy()
            })
        };
        assert!(is_busy_after(LOOK_EVERY + 1));
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
