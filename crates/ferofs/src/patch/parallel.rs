//! Independent tasks on all processors, each thread with hands of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::build::Options;

/// Does tasks 0 to `count` - 1 with `task`; the results are in the order of numbers. The first error ends it.
pub(crate) fn parallel<H, T: Send>(
    options: &Options,
    count: usize,
    hands: impl Fn() -> H + Sync,
    task: impl Fn(&mut H, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut hands = hands();
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(done);
            }
            let result = options.check_cancelled().and_then(|()| task(&mut hands, number));
            match result {
                Ok(result) => done.push((number, result)),
                Err(error) => {
                    // The others need not go on.
                    next.store(count, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let mut all: Vec<Option<T>> = Vec::new();
    all.resize_with(count, || None);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.worker_count().min(count)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| -> Result<()> {
            let done: Result<Vec<(usize, T)>> = match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            for (number, result) in done? {
                all[number] = Some(result);
            }
            Ok(())
        })
    })?;
    Ok(all.into_iter().flatten().collect())
}
