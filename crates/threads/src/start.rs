//! Starts threads, and passes on their panics.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::{Builder, Result as Caught, Scope, ScopedJoinHandle};

/// Why threads did not do their work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system did not start a single thread.
    #[error("start a thread: {0}")]
    NotStarted(io::Error),
    /// All threads have ended: no result comes anymore.
    #[error("the threads have ended")]
    Ended,
}

/// Runs `work` and returns its panic as an error. The thread that waits for the result gives it to [`pass_on`].
pub fn catch<T>(work: impl FnOnce() -> T) -> Caught<T> {
    // Unwind safe: the panic continues in the thread that waits, which then drops everything that `work` changed.
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
        Some(error) if threads.is_empty() => Err(Error::NotStarted(error)),
        _ => Ok(threads),
    }
}

/// The message of a panic, for tests.
#[cfg(test)]
pub(crate) fn message<T: std::fmt::Debug>(result: Caught<T>) -> String {
    (*result.unwrap_err().downcast::<&str>().unwrap()).to_owned()
}
