//! Counters of what was asked, fetched and verified, and how long requests took.

use ferofs_read::Count;

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
        pub(crate) struct Counters { $(pub(crate) $name: Count,)* latencies: Latencies }

        impl Counters {
            pub(crate) fn read(&self, background_left: u64) -> FetchStats {
                FetchStats {
                    $($name: self.$name.get(),)*
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
        self.requests.add(1);
        self.fetched.add(bytes);
        self.request_micros.add(micros);
        self.longest_micros.raise(micros);
        self.latencies.record(micros);
    }
}

/// Buckets of the histogram.
const BUCKETS: usize = 32;
/// The end of the first bucket, in microseconds. Each next bucket ends 1.41 times as late; the last
/// one has all that is longer than 2.1 seconds.
const FIRST: u64 = 64;

/// Requests by their time, which several threads count.
#[derive(Debug, Default)]
struct Latencies([Count; BUCKETS]);

impl Latencies {
    /// Counts a request of this many microseconds.
    fn record(&self, micros: u64) {
        let bucket = (0..BUCKETS).find(|bucket| micros <= end(*bucket)).unwrap_or(BUCKETS - 1);
        if let Some(count) = self.0.get(bucket) {
            count.add(1);
        }
    }

    /// The requests in each bucket.
    fn read(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0.get(bucket).map_or(0, Count::get))
    }
}

/// The longest time of a bucket, in microseconds.
fn end(bucket: usize) -> u64 {
    let doubled = FIRST << (bucket / 2);
    if bucket.is_multiple_of(2) { doubled } else { doubled.saturating_mul(181) / 128 }
}

/// The microseconds within which `percent` of the requests ended, at most 41 % too high. `longest`
/// is the longest time of all.
fn percentile(counts: &[u64; BUCKETS], percent: u64, longest: u64) -> u64 {
    let total: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let wanted = total.saturating_mul(percent.into()).div_ceil(100);
    let mut sum = 0u128;
    for (bucket, count) in counts.iter().enumerate().take(BUCKETS - 1) {
        sum = sum.saturating_add((*count).into());
        if sum >= wanted {
            return end(bucket).min(longest);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close() {
        let latencies = Latencies::default();
        for micros in 1..=10_000 {
            latencies.record(micros * 10);
        }
        let counts = latencies.read();
        assert_eq!(counts.iter().sum::<u64>(), 10_000);
        for (percent, right) in [(50, 50_000), (90, 90_000), (99, 99_000)] {
            let found = percentile(&counts, percent, 100_000);
            assert!((right..=right * 142 / 100).contains(&found), "{percent} %: {found}");
        }
        assert_eq!(percentile(&counts, 100, 100_000), 100_000);
        assert_eq!(percentile(&[0; BUCKETS], 50, 0), 0);
        latencies.record(u64::MAX);
        assert_eq!(latencies.read()[BUCKETS - 1], 1);
        assert_eq!(percentile(&latencies.read(), 100, u64::MAX), u64::MAX);
    }
}
