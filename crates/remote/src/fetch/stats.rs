//! Counters of what was asked, fetched and verified.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a fetcher has done.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub struct FetchStats { $($(#[$doc])* pub $name: u64,)* }

        /// The counters, which several threads increase.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> FetchStats {
                FetchStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Bytes that readers waited for.
    demanded,
    /// Bytes that readers announced.
    announced,
    /// Requests sent to the server.
    requests,
    /// Bytes that arrived from the server.
    fetched,
    /// Bytes that were checked against the hash tree.
    verified,
    /// Bytes that were stored in the cache.
    stored,
    /// Microseconds of all requests.
    request_micros,
    /// Microseconds of the longest request.
    longest_micros,
    /// Requests that were sent again.
    retries,
    /// Requests without an answer in time.
    timeouts,
    /// Requests with a broken connection, or an answer that ended early.
    connection_errors,
    /// Requests that the server did not serve (status 4xx and 5xx).
    server_errors,
    /// Answers with bytes that do not have the expected digest.
    digest_errors,
    /// Bytes that could not be stored in the cache.
    cache_errors,
    /// Wants that failed.
    failures,
}

impl Counters {
    /// Records a request of this many microseconds.
    pub(crate) fn request(&self, bytes: u64, micros: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
        self.request_micros.fetch_add(micros, Ordering::Relaxed);
        self.longest_micros.fetch_max(micros, Ordering::Relaxed);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
