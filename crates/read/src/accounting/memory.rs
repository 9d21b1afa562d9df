//! The engine's books on memory: what all of its parts hold, the most they held, and the limit.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::stats::Counters;

/// Who waits for memory this long in vain takes it beyond the limit: who holds it may be waiting for that very thread.
const PATIENCE: Duration = Duration::from_millis(10);

/// Bytes held, by whatever part.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
    /// Requests that wait for a buffer.
    waiting: Mutex<usize>,
    freed: Condvar,
}

impl Memory {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.unwrap_or(usize::MAX),
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            waiting: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    /// Notes `len` bytes as held, within the limit or not.
    pub(crate) fn take(&self, len: usize) {
        let held = self.held.fetch_add(len, Relaxed) + len;
        self.peak.fetch_max(held, Relaxed);
    }

    /// Notes `len` bytes as held if the limit allows them.
    pub(crate) fn try_take(&self, len: usize) -> bool {
        let fits = |held: usize| held.checked_add(len).filter(|held| *held <= self.limit);
        let taken = self.held.fetch_update(Relaxed, Relaxed, fits);
        if let Ok(before) = taken {
            self.peak.fetch_max(before + len, Relaxed);
        }
        taken.is_ok()
    }

    /// Notes `len` bytes as held, after waiting for others to give some back if the limit asks for that.
    pub(crate) fn take_patiently(&self, len: usize, counters: &Counters) {
        if self.try_take(len) {
            return;
        }
        let start = Instant::now();
        // The number cannot be half changed.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        while !self.try_take(len) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            if left.is_zero() {
                self.take(len);
                break;
            }
            waiting = self.freed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *waiting -= 1;
        counters.stalled(start);
    }

    /// Notes `len` bytes as given back.
    pub(crate) fn give(&self, len: usize) {
        self.held.fetch_sub(len, Relaxed);
        if self.limit != usize::MAX && *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.freed.notify_all();
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
    fn the_limit_holds_for_a_while() {
        let (memory, counters) = (Memory::new(Some(100)), Counters::default());
        assert!(memory.try_take(60) && !memory.try_take(50));
        std::thread::scope(|scope| {
            scope.spawn(|| memory.take_patiently(50, &counters));
            memory.give(60);
        });
        assert_eq!(memory.held(), 50);
        // Nobody gives any back.
        memory.take_patiently(100, &counters);
        assert_eq!((memory.held(), memory.peak()), (150, 150));
        assert!(counters.snapshot().stalls > 0);
    }
}
