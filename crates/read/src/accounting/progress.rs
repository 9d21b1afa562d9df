//! Cancels work that other threads do, and counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Cancels work. All clones cancel the same work.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes the work end soon, with an error that says that it was interrupted.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the work is cancelled.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The flag that [`Cancel::cancel`] sets, for signal handlers, which can set nothing else.
impl From<Cancel> for Arc<AtomicBool> {
    fn from(cancel: Cancel) -> Self {
        cancel.0
    }
}

/// A number that the threads of an operation change, and that other threads can read at any time.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Makes the number at least `least`.
    pub fn raise(&self, least: u64) {
        self.0.fetch_max(least, Ordering::Relaxed);
    }

    /// Replaces the number.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }
}
