//! The queue between the walk and the workers.
//!
//! The walk waits while the queue is full. A worker that puts the remainder of a large file back
//! never waits: each file taken from the queue has at most one remainder, so their number is
//! limited.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// A queue of tasks for many threads.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<Tasks<T>>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct Tasks<T> {
    new_tasks: VecDeque<T>,
    remainders: Vec<T>,
    /// Workers that may still add a remainder.
    busy: usize,
    closed: bool,
    /// A worker panicked: the others end.
    broken: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(limit: usize) -> Self {
        let state = Tasks {
            new_tasks: VecDeque::new(),
            remainders: Vec::new(),
            busy: 0,
            closed: false,
            broken: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    /// Adds a task; waits while the queue is full. After a worker's panic the task is dropped, as
    /// no worker would take it.
    pub(super) fn push(&self, work: T) {
        let mut state = self.state.lock();
        while state.new_tasks.len() >= self.limit && !state.broken {
            self.changed.wait(&mut state);
        }
        if state.broken {
            return;
        }
        state.new_tasks.push_back(work);
        self.changed.notify_all();
    }

    /// Adds the remainder of a task.
    pub(super) fn push_remainder(&self, work: T) {
        self.state.lock().remainders.push(work);
        self.changed.notify_all();
    }

    /// Ends the queue: no new tasks follow.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Calls `work` for each task, until there can be no more, or a worker panics.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "each worker adds 1 to `busy`, and subtracts it after its task"
    )]
    pub(super) fn serve(&self, mut work: impl FnMut(T)) {
        let mut state = self.state.lock();
        loop {
            if state.broken {
                return;
            }
            if let Some(task) = state.remainders.pop().or_else(|| state.new_tasks.pop_front()) {
                state.busy += 1;
                drop(state);
                self.changed.notify_all();
                let breaking = Breaking(self);
                work(task);
                std::mem::forget(breaking);
                state = self.state.lock();
                state.busy -= 1;
                if state.busy == 0 {
                    self.changed.notify_all();
                }
            } else if state.closed && state.busy == 0 {
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

/// Dropped when a worker panics: otherwise the others would wait for the remainder of its task.
struct Breaking<'a, T>(&'a Queue<T>);

impl<T> Drop for Breaking<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().broken = true;
        self.0.changed.notify_all();
    }
}

/// Closes a queue when dropped, so that the workers end also when the walk panics.
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
    fn remainders_are_done_before_workers_end() {
        let queue = Queue::new(2);
        let sum = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    queue.serve(|n: u32| {
                        if n > 0 {
                            queue.push_remainder(n - 1);
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
