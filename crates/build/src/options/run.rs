//! How a build uses the machine: threads, progress and cancellation. Every stage takes these options.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result, Warning};
use crate::progress::Progress;

/// Worker threads, progress and cancellation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Number of worker threads; `None`: one for each processor that this process may use.
    pub workers: Option<NonZeroUsize>,
    /// The build updates it while it runs.
    pub progress: Arc<Progress>,
    /// Another thread sets it to stop the build, which then returns [`Error::Interrupted`].
    pub cancel: Arc<AtomicBool>,
    /// Warnings are errors: the build then fails with [`Error::Warnings`] before the image gets its name.
    pub strict: bool,
}

impl RunOptions {
    /// The number of worker threads to start.
    pub fn worker_count(&self) -> usize {
        self.workers
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get)
            .min(WORKERS_MAX)
    }

    /// Runs tasks 0 to `count` - 1 on all workers, in any order, and returns the results in their order.
    ///
    /// # Errors
    /// The error of the first task that fails; [`Error::Interrupted`]; [`Error::Io`] when the system starts no thread.
    pub fn parallel<C, T: Send, E: From<ferofs_threads::Error> + From<Error> + Send>(
        &self,
        count: usize,
        context: impl Fn() -> C + Sync,
        task: impl Fn(&mut C, usize) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        ferofs_threads::parallel(self.worker_count(), count, context, |context, number| {
            self.check_cancelled()?;
            task(context, number)
        })
    }

    /// Fails if there are warnings and [`Self::strict`] is set.
    ///
    /// # Errors
    /// [`Error::Warnings`].
    pub fn check_warnings(&self, warnings: &mut Vec<Warning>) -> Result<()> {
        if self.strict && !warnings.is_empty() {
            return Err(Error::Warnings(std::mem::take(warnings)));
        }
        Ok(())
    }

    /// Fails once [`Self::cancel`] is set.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The most worker threads. A larger number is reduced to this: one thread collects all results, and it cannot keep more
/// workers busy.
const WORKERS_MAX: usize = 512;
