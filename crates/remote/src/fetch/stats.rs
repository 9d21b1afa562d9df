//! Counters of what was asked, fetched and verified.

use std::sync::atomic::{AtomicU64, Ordering};

use super::latency::{BUCKETS, Latencies, percentile};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of a fetcher.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub struct FetchStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes that wait to be fetched in the background, or are being fetched.
            pub background_left: u64,
            /// Requests by their time, for [`FetchStats::percentile`].
            latencies: [u64; BUCKETS],
        }

        /// The counters, which several threads increase.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* latencies: Latencies }

        impl Counters {
            pub(crate) fn read(&self, background_left: u64) -> FetchStats {
                FetchStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    background_left,
                    latencies: self.latencies.read(),
                }
            }
        }
    };
}

counters! {
    /// Bytes that readers waited for.
    demanded,
    /// Bytes that readers announced.
    announced,
    /// Bytes that were fetched in the background.
    background,
    /// Requests sent to the server.
    requests,
    /// Bytes that arrived from the server.
    fetched,
    /// Bytes that were copied from other images on this machine instead of fetched.
    reused,
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
    /// Bytes that were stored, and then changed on the disk: they were removed, and fetched again.
    removed,
    /// Parts that could not be fetched, and waits that ended without them.
    failures,
}

impl FetchStats {
    /// The microseconds within which `percent` of the requests ended, at most 41 % too high.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        percentile(&self.latencies, percent, self.longest_micros)
    }

    /// The mean of the microseconds of requests.
    #[must_use]
    pub const fn mean_micros(&self) -> u64 {
        match self.request_micros.checked_div(self.requests) {
            Some(mean) => mean,
            None => 0,
        }
    }
}

impl Counters {
    /// Records a request of this many microseconds.
    pub(crate) fn request(&self, bytes: u64, micros: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
        self.request_micros.fetch_add(micros, Ordering::Relaxed);
        self.longest_micros.fetch_max(micros, Ordering::Relaxed);
        self.latencies.record(micros);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
