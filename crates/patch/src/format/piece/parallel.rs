//! Divides parts of a piece among threads.

use parking_lot::Mutex;

use crate::error::Result;

/// Calls the functions that `start` gives, one for each thread, with all `parts`, in up to `threads` threads. The order of the calls is any.
/// The parts are made when a thread takes them: a list of them would take more memory than the plan that they come from.
pub(super) fn parallel<T: Send, F: FnMut(T) -> Result<()>>(
    threads: usize,
    parts: impl Iterator<Item = T> + Send,
    start: impl Fn() -> F + Sync,
) -> Result<()> {
    let mut parts = parts.peekable();
    // A thread for one part would only cost its start.
    let first = parts.next();
    let is_one = parts.peek().is_none();
    let parts = Mutex::new(first.into_iter().chain(parts));
    let work = || {
        let mut each = start();
        loop {
            let next = parts.lock().next();
            let Some(part) = next else { return Ok(()) };
            each(part)?;
        }
    };
    if threads <= 1 || is_one {
        return work();
    }
    std::thread::scope(|scope| {
        let started = ferofs_threads::start(scope, threads, || work)?;
        started.into_iter().try_for_each(|thread| ferofs_threads::pass_on(thread.join()))
    })
}
