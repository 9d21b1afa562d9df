//! How a fetcher works, and what it answers.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::attempts::RetryOptions;

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
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            retry: RetryOptions::default(),
            prefetch_time: Duration::from_secs(30),
            prefetch_metadata: true,
        }
    }
}

/// Why a reader does not get its bytes.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason.
    pub text: Arc<str>,
    /// Whether the time was over.
    pub is_timeout: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = if failure.is_timeout { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
        Self::new(kind, failure)
    }
}

/// Called once with the outcome of a want.
pub type Done = Box<dyn FnOnce(Result<(), Failure>) + Send>;
