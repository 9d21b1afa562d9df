//! How a fetcher works, and what it answers.

use std::time::Duration;

use super::attempts::RetryOptions;
use crate::error::Failure;

/// How a fetcher works.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Requests at the same time. The latency of the server counts, not the number of processors.
    pub connections: usize,
    /// Retries.
    pub retry: RetryOptions,
    /// How long a prefetch tries.
    pub prefetch_time: Duration,
    /// Fetch the first metadata when the image is opened, before a reader needs it.
    pub prefetch_metadata: bool,
    /// All of the object is fetched: by large requests, and without removing stored parts if the
    /// disk is full.
    pub complete: bool,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            retry: RetryOptions::default(),
            prefetch_time: Duration::from_secs(30),
            prefetch_metadata: true,
            complete: false,
        }
    }
}

/// Called once with the outcome of a want.
pub type Done = Box<dyn FnOnce(Result<(), Failure>) + Send>;
