//! Numbered tasks on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::start::{Error, catch, pass_on, start};

/// Runs `task` for the numbers 0 to `count` - 1 on up to `workers` threads, and returns the results in the order of the numbers.
/// Each thread creates its own context with `context`.
///
/// # Errors
/// An error of `task`, after which no thread starts another task; or [`Error::NotStarted`] when the system starts no thread.
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
    use crate::start::message;

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
