//! The queue between the walk and the workers.
//!
//! The walk waits when it is full. A worker that leaves the rest of a large file to others never waits: there are
//! no more such rests than files that were taken from the queue.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Work for many threads.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    fresh: VecDeque<T>,
    rests: Vec<T>,
    /// Workers that may still leave a rest.
    busy: usize,
    closed: bool,
    /// A worker panicked: nothing more is done.
    broken: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(limit: usize) -> Self {
        let state =
            State { fresh: VecDeque::new(), rests: Vec::new(), busy: 0, closed: false, broken: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    /// Adds fresh work; waits for room. After a worker's panic nobody would do it, and it is dropped.
    pub(super) fn push(&self, work: T) {
        let mut state = self.lock();
        while state.fresh.len() >= self.limit && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return;
        }
        state.fresh.push_back(work);
        self.changed.notify_all();
    }

    /// Adds what a worker leaves of its work.
    pub(super) fn push_rest(&self, work: T) {
        self.lock().rests.push(work);
        self.changed.notify_all();
    }

    /// No fresh work comes any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Does all the work that comes, until there can be no more, or a worker panics.
    pub(super) fn serve(&self, mut work: impl FnMut(T)) {
        let mut state = self.lock();
        loop {
            if state.broken {
                return;
            }
            if let Some(item) = state.rests.pop().or_else(|| state.fresh.pop_front()) {
                state.busy += 1;
                drop(state);
                self.changed.notify_all();
                let breaking = Breaking(self);
                work(item);
                std::mem::forget(breaking);
                state = self.lock();
                state.busy -= 1;
                if state.busy == 0 {
                    self.changed.notify_all();
                }
            } else if state.closed && state.busy == 0 {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Each change is whole before the lock goes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when a worker panics: the others would wait for the rest of its work.
struct Breaking<'a, T>(&'a Queue<T>);

impl<T> Drop for Breaking<'_, T> {
    fn drop(&mut self) {
        self.0.lock().broken = true;
        self.0.changed.notify_all();
    }
}

/// Closes a queue when dropped, so that workers end even when the walk panics.
pub(super) struct Closing<'a, T>(pub &'a Queue<T>);

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn rests_are_done_before_workers_end() {
        let queue = Queue::new(2);
        let sum = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    queue.serve(|n: u32| {
                        if n > 0 {
                            queue.push_rest(n - 1);
                        }
                        sum.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
            let closing = Closing(&queue);
            for _ in 0..10 {
                closing.0.push(99);
            }
        });
        assert_eq!(sum.into_inner(), 1000);
    }

    #[test]
    fn a_panic_ends_the_others_and_the_walk() {
        for workers in [1, 2, 8] {
            let queue = Queue::new(2);
            let result = ferofs_threads::catch(|| {
                std::thread::scope(|scope| {
                    for _ in 0..workers {
                        scope.spawn(|| queue.serve(|n: u32| assert!(n < 20, "work {n}")));
                    }
                    let closing = Closing(&queue);
                    (0..100).for_each(|n| closing.0.push(n));
                });
            });
            assert!(result.is_err(), "{workers} workers");
        }
    }
}
