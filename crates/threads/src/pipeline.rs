//! The ordered pipeline: jobs go out to workers, and results come back in the order of submission,
//! in each of two queues.
//!
//! The builder appends data to the image in this order, so that the image does not depend on the
//! number of threads. The limit on jobs under way bounds memory: one slow job keeps the results of
//! later jobs waiting, but not more than the limit.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::workers::{Error, Workers, with_workers};

/// Jobs `J` under way, and their results `R`. Jobs are in two queues: results come in the order of
/// submission in each of them, and a slow job of one queue does not hold up the results of the
/// other.
pub struct Pipeline<J, R> {
    workers: Workers<(Ticket, J), (Ticket, R)>,
    /// The most jobs under way.
    limit: usize,
    /// [`Queue::Main`] and [`Queue::Side`].
    queues: [Pending<R>; 2],
    peak: usize,
}

/// A queue of a [`Pipeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The jobs of which everything else follows.
    Main,
    /// Jobs that follow from results of the main queue, and whose results it does not need.
    Side,
}

/// Which job it is: its queue, and its number there.
type Ticket = (Queue, u64);

/// The jobs under way of one queue.
struct Pending<R> {
    /// Their results, the oldest job first; `None` until its worker has finished.
    results: VecDeque<Option<R>>,
    /// The number of the oldest job.
    oldest: u64,
}

impl<R> Pending<R> {
    const fn new() -> Self {
        Self { results: VecDeque::new(), oldest: 0 }
    }

    /// The result of the oldest job, if its worker has finished.
    fn take_oldest(&mut self) -> Option<R> {
        let result = self.results.front_mut()?.take()?;
        self.results.pop_front();
        self.oldest += 1;
        Some(result)
    }
}

impl<J, R> Pipeline<J, R> {
    fn under_way(&self) -> usize {
        self.queues.iter().map(|queue| queue.results.len()).sum()
    }

    /// Whether another job can be submitted now. A job is under way from [`Self::submit`] until
    /// [`Self::next_result`] returns its result.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.under_way() < self.limit
    }

    /// Sends a job to the workers. Call it only after [`Self::has_capacity`] returned true: beyond
    /// the limit, results take more memory than planned.
    pub fn submit(&mut self, job: J) {
        self.submit_to(Queue::Main, job);
    }

    /// As [`Self::submit`], in any queue.
    pub fn submit_to(&mut self, queue: Queue, job: J) {
        debug_assert!(self.has_capacity(), "more jobs than the limit");
        let pending = &mut self.queues[queue as usize];
        self.workers.send(((queue, pending.oldest + pending.results.len() as u64), job));
        pending.results.push_back(None);
        self.peak = self.peak.max(self.under_way());
    }

    /// Waits until the oldest job of a queue is done, and returns its result; `None` when no job is
    /// under way. A panic of any worker continues in this thread, before the results of older jobs.
    ///
    /// # Errors
    /// [`Error::Ended`] when all workers have ended.
    pub fn next_result(&mut self) -> Result<Option<R>, Error> {
        loop {
            if let Some(result) = self.queues.iter_mut().find_map(Pending::take_oldest) {
                return Ok(Some(result));
            }
            if self.under_way() == 0 {
                return Ok(None);
            }
            let ((queue, number), result) = self.workers.recv()?;
            let pending = &mut self.queues[queue as usize];
            let slot = usize::try_from(number - pending.oldest)
                .ok()
                .and_then(|n| pending.results.get_mut(n));
            // Each number that comes back was submitted, and came back only once.
            *slot.ok_or(Error::Ended)? = Some(result);
        }
    }

    /// The most jobs that were under way at the same time.
    #[must_use]
    pub const fn peak(&self) -> usize {
        self.peak
    }
}

/// Calls `drive`, which submits jobs to `workers` threads and takes their results in the order of
/// their queue. At most `limit` jobs, and at least one, are under way. Each thread creates its own
/// context with `context` and runs `work` for each job.
///
/// `work` returns its errors in `R`: `drive` sees the error of the first job that failed, in the
/// order of its queue.
///
/// # Errors
/// The error of `drive`, or [`Error::NotStarted`] when the system starts no thread.
pub fn with_pipeline<C, J: Send, R: Send, T, E: From<Error>>(
    workers: usize,
    limit: usize,
    context: impl Fn() -> C + Sync,
    work: impl Fn(&mut C, J) -> R + Sync,
    drive: impl FnOnce(&mut Pipeline<J, R>) -> Result<T, E>,
) -> Result<T, E> {
    let work = |context: &mut C, (ticket, job)| (ticket, work(context, job));
    with_workers(workers, context, work, |workers| {
        let queues = [Pending::new(), Pending::new()];
        drive(&mut Pipeline { workers, limit: limit.max(1), queues, peak: 0 })
    })
}
