//! Starts threads, and passes on their panics: workers whose results come in any order, and
//! numbered tasks on several threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Result as Caught, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};

/// Threads that do jobs `J` and return results `R` in any order. They end when this is dropped.
pub struct Workers<J, R> {
    jobs: Sender<J>,
    results: Receiver<Caught<R>>,
}

impl<J, R> Workers<J, R> {
    /// Sends a job to the next free thread.
    pub fn send(&self, job: J) {
        // This fails only when all threads have panicked; `recv` passes the panic on.
        let _ = self.jobs.send(job);
    }

    /// Waits for the result of any job. The panic of a thread continues in this thread.
    ///
    /// # Errors
    /// [`Error::Ended`] when all threads have ended.
    pub fn recv(&self) -> Result<R, Error> {
        self.results.recv().map_or(Err(Error::Ended), |result| Ok(pass_on(result)))
    }
}

/// Calls `drive`, which sends jobs to `count` threads. Each thread creates its own context with
/// `context` and runs `work` for each job.
///
/// # Errors
/// The error of `drive`, or [`Error::NotStarted`] when the system starts no thread.
pub fn with_workers<C, J: Send, R: Send, T, E: From<Error>>(
    count: usize,
    context: impl Fn() -> C + Sync,
    work: impl Fn(&mut C, J) -> R + Sync,
    drive: impl FnOnce(Workers<J, R>) -> Result<T, E>,
) -> Result<T, E> {
    let (jobs, queue) = unbounded::<J>();
    let (to_driver, results) = unbounded::<Caught<R>>();
    let serve = |queue: Receiver<J>, to_driver: Sender<Caught<R>>| {
        let served = catch(|| {
            let mut context = context();
            for job in queue {
                if to_driver.send(Ok(work(&mut context, job))).is_err() {
                    return;
                }
            }
        });
        if let Err(panic) = served {
            // The send fails only when the driver has returned an error already.
            let _ = to_driver.send(Err(panic));
        }
    };
    std::thread::scope(|scope| {
        start(scope, count, || {
            let (queue, to_driver, serve) = (queue.clone(), to_driver.clone(), &serve);
            move || serve(queue, to_driver)
        })?;
        drop((queue, to_driver));
        drive(Workers { jobs, results })
    })
}

/// Why threads did not do their work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system did not start a single thread.
    #[error("start a thread: {0}")]
    NotStarted(#[source] io::Error),
    /// All threads have ended: no result comes anymore.
    #[error("the threads have ended")]
    Ended,
}

impl Error {
    /// The error of a thread that the system did not start.
    #[must_use]
    pub fn not_started(error: io::Error) -> Self {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Self::NotStarted(error);
        }
        // The same error says that there is no memory for the stack of a thread.
        let reason = "the limits on memory (ulimit -v) or on processes (ulimit -u) are too low";
        Self::NotStarted(io::Error::new(io::ErrorKind::OutOfMemory, format!("{error}; {reason}")))
    }
}

/// Runs `work` and returns its panic as an error. The thread that waits for the result gives it to
/// [`pass_on`].
pub fn catch<T>(work: impl FnOnce() -> T) -> Caught<T> {
    // Unwind safe: the panic continues in the thread that waits, which then drops everything that
    // `work` changed.
    catch_unwind(AssertUnwindSafe(work))
}

/// Returns what a thread returned, or continues the thread's panic in this thread.
pub fn pass_on<T>(result: Caught<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts up to `count` threads: fewer when the system refuses to start more.
///
/// # Errors
/// [`Error::NotStarted`] when the system starts none.
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
        Some(error) if threads.is_empty() => Err(Error::not_started(error)),
        _ => Ok(threads),
    }
}

/// Runs `count` threads at the same time once: those that a daemon starts after it has said that
/// it works.
///
/// # Errors
/// [`Error::NotStarted`] if the system refuses one of them.
pub fn check_start(count: usize) -> Result<(), Error> {
    let (all_started, wait) = unbounded::<()>();
    std::thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, || wait.recv().ok());
        let started: io::Result<Vec<_>> = (0..count).map(start).collect();
        // Now the threads end.
        drop(all_started);
        started.map(drop).map_err(Error::not_started)
    })
}

/// The message of a panic, for tests.
#[cfg(test)]
pub(crate) fn message<T: std::fmt::Debug>(result: Caught<T>) -> String {
    (*result.unwrap_err().downcast::<&str>().unwrap()).to_owned()
}

/// Runs `task` for the numbers 0 to `count` - 1 on up to `workers` threads, and returns the results
/// in the order of the numbers. Each thread creates its own context with `context`.
///
/// # Errors
/// An error of `task`, after which no thread starts another task; or [`Error::NotStarted`] when the
/// system starts no thread.
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
            // Stops the other threads: their results are no longer needed.
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
            let task =
                |(): &mut (), n: usize| if n == 20 { panic!("task 20") } else { Ok::<_, Error>(n) };
            let result = catch(|| parallel(workers, 40, || (), task).map(drop));
            assert_eq!(message(result), "task 20", "{workers} workers");
            assert_eq!(
                parallel(workers, 40, || (), |(), n| Ok::<_, Error>(n)).unwrap(),
                (0..40).collect::<Vec<_>>()
            );
        }
    }
}
