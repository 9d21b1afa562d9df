//! The ordered pipeline: jobs go out to workers, and results come back in the order of submission, in each of two queues.
//!
//! The builder appends data to the image in this order, so that the image does not depend on the number of threads. The
//! limit on jobs under way bounds memory: one slow job keeps the results of later jobs waiting, but not more than the limit.

use std::collections::VecDeque;

use crate::workers::{Error, Workers, with_workers};

/// Jobs `J` under way, and their results `R`. Jobs are in two queues: results come in the order of submission in each of them, and a slow
/// job of one queue does not hold up the results of the other.
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

    /// Whether another job can be submitted now. A job is under way from [`Self::submit`] until [`Self::next_result`] returns its
    /// result.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.under_way() < self.limit
    }

    /// Sends a job to the workers. Call it only after [`Self::has_capacity`] returned true: beyond the limit, results take
    /// more memory than planned.
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

    /// Waits until the oldest job of a queue is done, and returns its result; `None` when no job is under way. A panic of any worker
    /// continues in this thread, before the results of older jobs.
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

/// Calls `drive`, which submits jobs to `workers` threads and takes their results in the order of their queue. At most `limit` jobs, and at
/// least one, are under way. Each thread creates its own context with `context` and runs `work` for each job.
///
/// `work` returns its errors in `R`: `drive` sees the error of the first job that failed, in the order of its queue.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::workers::{catch, message};

    #[derive(Debug)]
    enum Failure {
        Job(u32),
        Threads,
    }

    impl From<Error> for Failure {
        fn from(_: Error) -> Self {
            Self::Threads
        }
    }

    /// Submits `count` jobs and returns their results, until the first error.
    fn drive(
        pipeline: &mut Pipeline<u32, Result<u32, Failure>>,
        count: u32,
    ) -> Result<Vec<u32>, Failure> {
        let (mut jobs, mut results) = (0..count, Vec::new());
        loop {
            while pipeline.has_capacity()
                && let Some(job) = jobs.next()
            {
                pipeline.submit(job);
            }
            match pipeline.next_result()? {
                Some(result) => results.push(result?),
                None => return Ok(results),
            }
        }
    }

    #[test]
    fn results_come_in_the_order_of_submission() {
        for (workers, limit) in [(1, 0), (1, 1), (2, 1), (2, 5), (8, 3), (8, 40)] {
            // Early jobs of each group of four take longest.
            let work = |(): &mut (), n: u32| {
                std::thread::sleep(Duration::from_micros(u64::from(3 - n % 4) * 300));
                Ok(n * 2)
            };
            let results =
                with_pipeline(workers, limit, || (), work, |pipeline| drive(pipeline, 100));
            assert_eq!(
                results.unwrap(),
                (0..100).map(|n| n * 2).collect::<Vec<_>>(),
                "{workers} {limit}"
            );
        }
    }

    #[test]
    fn a_slow_job_holds_up_its_own_queue_only() {
        for workers in [2, 8] {
            // The first side job ends when the main jobs, which are submitted behind it, have been taken.
            let (done, wait) = std::sync::mpsc::channel();
            let wait = std::sync::Mutex::new(wait);
            let work = |(): &mut (), n: u32| {
                if n == 100 {
                    wait.lock().unwrap().recv().unwrap();
                }
                n
            };
            let results = with_pipeline(
                workers,
                4,
                || (),
                work,
                |pipeline| {
                    let (mut main, mut results) = (0..20, Vec::new());
                    pipeline.submit_to(Queue::Side, 100);
                    pipeline.submit_to(Queue::Side, 101);
                    loop {
                        while pipeline.has_capacity()
                            && let Some(n) = main.next()
                        {
                            pipeline.submit(n);
                        }
                        match pipeline.next_result()? {
                            Some(result) => results.push(result),
                            None => return Ok::<_, Failure>(results),
                        }
                        if results.len() == 20 {
                            done.send(()).unwrap();
                        }
                    }
                },
            );
            assert_eq!(
                results.unwrap(),
                (0..20).chain([100, 101]).collect::<Vec<_>>(),
                "{workers}"
            );
        }
    }

    #[test]
    fn no_more_jobs_are_under_way_than_the_limit() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |(): &mut (), n: u32| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(200));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(n)
        };
        let drive = |pipeline: &mut Pipeline<_, _>| drive(pipeline, 50).map(|_| pipeline.peak());
        assert_eq!(with_pipeline(8, 3, || (), work, drive).unwrap(), 3);
        assert!(most.into_inner() <= 3);
    }

    #[test]
    fn the_error_of_the_first_job_that_failed_reaches_the_caller() {
        for workers in [1, 2, 8] {
            // Job 21 fails at once, job 20 later: the error is job 20's.
            let work = |(): &mut (), n: u32| match n {
                20 => {
                    std::thread::sleep(Duration::from_millis(5));
                    Err(Failure::Job(n))
                }
                21.. => Err(Failure::Job(n)),
                _ => Ok(n),
            };
            let result = with_pipeline(workers, 10, || (), work, |pipeline| drive(pipeline, 40));
            assert!(matches!(result, Err(Failure::Job(20))), "{workers} workers: {result:?}");
        }
    }

    #[test]
    fn a_panic_of_a_job_reaches_the_caller() {
        for workers in [1, 2, 8] {
            let work = |(): &mut (), n: u32| if n == 20 { panic!("job 20") } else { Ok(n) };
            let result =
                catch(|| with_pipeline(workers, 10, || (), work, |pipeline| drive(pipeline, 40)));
            assert_eq!(message(result), "job 20", "{workers} workers");
        }
    }

    #[test]
    fn a_pipeline_goes_on_after_it_was_empty() {
        let work = |(): &mut (), n: u32| Ok(n);
        let twice = with_pipeline(
            2,
            4,
            || (),
            work,
            |pipeline| Ok::<_, Failure>((drive(pipeline, 10)?.len(), drive(pipeline, 7)?.len())),
        );
        assert_eq!(twice.unwrap(), (10, 7));
    }
}
