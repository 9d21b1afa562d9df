//! Work on several threads. An error or a panic of any thread reaches the thread that waits for its result, so that nothing
//! waits for ever.
//!
//! [`parallel`] does numbered tasks, and returns the results in their order. [`with_workers`] does jobs that the calling
//! thread sends while it takes answers. [`start`] is for all other work: it does with fewer threads when the system gives no
//! more.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Result as Caught, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};

/// Why threads did not do their work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system started not one thread.
    #[error("start a thread: {0}")]
    NotStarted(io::Error),
    /// All threads have ended, so that no answer comes any more.
    #[error("the threads have ended")]
    Ended,
}

/// Does `work`; a panic becomes an error, for [`pass_on`] in the thread that waits for the result.
pub fn catch<T>(work: impl FnOnce() -> T) -> Caught<T> {
    // Whoever passes the panic on gives up all that `work` may have left half changed.
    catch_unwind(AssertUnwindSafe(work))
}

/// What a thread returned; its panic goes on in this thread.
pub fn pass_on<T>(result: Caught<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts up to `count` threads. When the system gives no more, those that run do the work.
///
/// # Errors
/// [`Error::NotStarted`] when there is not one.
pub fn start<'scope, T: Send + 'scope, F: FnOnce() -> T + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    mut work: impl FnMut() -> F,
) -> Result<Vec<ScopedJoinHandle<'scope, T>>, Error> {
    let mut threads = Vec::with_capacity(count);
    let mut refused: Option<io::Error> = None;
    while threads.len() < count && refused.is_none() {
        match Builder::new().spawn_scoped(scope, work()) {
            Ok(thread) => threads.push(thread),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if threads.is_empty() => Err(Error::NotStarted(error)),
        _ => Ok(threads),
    }
}

/// Threads that do jobs `J` and answer with `A`, in any order. They end when this is dropped.
pub struct Workers<J, A> {
    jobs: Sender<J>,
    answers: Receiver<Caught<A>>,
}

impl<J, A> Workers<J, A> {
    /// Hands out a job.
    pub fn send(&self, job: J) {
        // It fails when all threads have panicked, which `recv` passes on.
        let _ = self.jobs.send(job);
    }

    /// Waits for the next answer to any job; a thread's panic goes on in this thread.
    pub fn recv(&self) -> Result<A, Error> {
        // Threads end when the jobs do, or with a panic that is passed on here.
        self.answers.recv().map_or(Err(Error::Ended), |answer| Ok(pass_on(answer)))
    }
}

/// Lets `drive` send jobs to `count` threads. Each thread makes a context with `context`, and does its jobs with `work`.
///
/// # Errors
/// That of `drive`, and [`Error::NotStarted`] when the system gives no thread.
pub fn with_workers<C, J: Send, A: Send, R, E: From<Error>>(
    count: usize,
    context: impl Fn() -> C + Sync,
    work: impl Fn(&mut C, J) -> A + Sync,
    drive: impl FnOnce(Workers<J, A>) -> Result<R, E>,
) -> Result<R, E> {
    let (jobs, queue) = unbounded::<J>();
    let (answers, answered) = unbounded::<Caught<A>>();
    let serve = |queue: Receiver<J>, answers: Sender<Caught<A>>| {
        let served = catch(|| {
            let mut context = context();
            for job in queue {
                if answers.send(Ok(work(&mut context, job))).is_err() {
                    return;
                }
            }
        });
        if let Err(panic) = served {
            // When nobody listens any more the command has failed already.
            let _ = answers.send(Err(panic));
        }
    };
    std::thread::scope(|scope| {
        start(scope, count, || {
            let (queue, answers, serve) = (queue.clone(), answers.clone(), &serve);
            move || serve(queue, answers)
        })?;
        drop((queue, answers));
        drive(Workers { jobs, answers: answered })
    })
}

/// Does tasks 0 to `count` - 1 with `task` on up to `workers` threads; the results are in the order of numbers. The first error or panic ends it.
pub fn parallel<C, T: Send, E: From<Error> + Send>(
    workers: usize,
    count: usize,
    context: impl Fn() -> C + Sync,
    task: impl Fn(&mut C, usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut context = context();
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(done);
            }
            done.push((number, task(&mut context, number)?));
        }
    };
    let work = || {
        let result = catch(work);
        if !matches!(result, Ok(Ok(_))) {
            // The others need not go on.
            next.store(count, Ordering::Relaxed);
        }
        result
    };
    let mut all: Vec<Option<T>> = Vec::new();
    all.resize_with(count, || None);
    std::thread::scope(|scope| {
        let threads = start(scope, workers.min(count), || &work)?;
        threads.into_iter().try_for_each(|thread| -> Result<(), E> {
            let done: Result<Vec<(usize, T)>, E> = pass_on(pass_on(thread.join()));
            for (number, result) in done? {
                all[number] = Some(result);
            }
            Ok(())
        })
    })?;
    Ok(all.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(result: Caught<T>) -> String {
        (*result.unwrap_err().downcast::<&str>().unwrap()).to_owned()
    }

    #[test]
    fn a_panic_of_a_worker_reaches_the_driver() {
        for workers in [1, 2, 8] {
            let result = catch(|| {
                let work = |_: &mut (), n: u32| if n == 20 { panic!("job 20") } else { n };
                with_workers(
                    workers,
                    || (),
                    work,
                    |workers| {
                        (0..40).for_each(|n| workers.send(n));
                        (0..40).try_for_each(|_| workers.recv().map(drop))
                    },
                )
            });
            assert_eq!(message(result), "job 20", "{workers} workers");
            let result = catch(|| {
                let context = || panic!("no context");
                with_workers(
                    workers,
                    context,
                    |(): &mut (), n: u32| n,
                    |workers| {
                        (0..40).for_each(|n| workers.send(n));
                        (0..40).try_for_each(|_| workers.recv().map(drop))
                    },
                )
            });
            assert_eq!(message(result), "no context", "{workers} workers");
        }
    }

    #[test]
    fn an_error_of_the_driver_ends_the_workers() {
        for workers in [1, 2, 8] {
            let result = with_workers(
                workers,
                || (),
                |(), n: u32| n,
                |workers| {
                    (0..40).for_each(|n| workers.send(n));
                    workers.recv()?;
                    Err::<(), _>(Error::Ended)
                },
            );
            assert!(matches!(result, Err(Error::Ended)));
        }
    }

    #[test]
    fn a_panic_of_a_task_reaches_the_caller() {
        for workers in [1, 2, 8] {
            let task = |(): &mut (), n: usize| if n == 20 { panic!("task 20") } else { Ok::<_, Error>(n) };
            let result = catch(|| parallel(workers, 40, || (), task).map(drop));
            assert_eq!(message(result), "task 20", "{workers} workers");
            assert_eq!(
                parallel(workers, 40, || (), |(), n| Ok::<_, Error>(n)).unwrap(),
                (0..40).collect::<Vec<_>>()
            );
        }
    }
}
