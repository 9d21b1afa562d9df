//! Workers whose results come in any order.

use std::thread::Result as Caught;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::start::{Error, catch, pass_on, start};

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

/// Calls `drive`, which sends jobs to `count` threads. Each thread creates its own context with `context` and runs `work` for
/// each job.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::message;

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
}
