//! How long requests took: a histogram, from which percentiles are estimated.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of the histogram.
pub(crate) const BUCKETS: usize = 32;
/// The end of the first bucket, in microseconds. Each next bucket ends 1.41 times as late; the last one has all that is longer than 2.1 seconds.
const FIRST: u64 = 64;

/// Requests by their time, which several threads count.
#[derive(Debug, Default)]
pub(crate) struct Latencies([AtomicU64; BUCKETS]);

impl Latencies {
    /// Counts a request of this many microseconds.
    pub(crate) fn record(&self, micros: u64) {
        let bucket = (0..BUCKETS).find(|bucket| micros <= end(*bucket)).unwrap_or(BUCKETS - 1);
        if let Some(count) = self.0.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The requests in each bucket.
    pub(crate) fn read(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0.get(bucket).map_or(0, |count| count.load(Ordering::Relaxed)))
    }
}

/// The longest time of a bucket, in microseconds.
fn end(bucket: usize) -> u64 {
    let doubled = FIRST << (bucket / 2);
    if bucket.is_multiple_of(2) { doubled } else { doubled.saturating_mul(181) / 128 }
}

/// The microseconds within which `percent` of the requests ended, at most 41 % too high. `longest` is the longest time of all.
pub(crate) fn percentile(counts: &[u64; BUCKETS], percent: u64, longest: u64) -> u64 {
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
