//! Where a build's time goes: what each activity took, summed over all threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What threads of a build are busy with, once the source is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Reading files, and decoding those of images.
    Read,
    /// Hashing files that others may be equal to.
    Hash,
    /// Looking for extents that are in the image already.
    Find,
    /// Encoding.
    Encode,
    /// Writing the image.
    Write,
    /// Waiting until the image is durable.
    Sync,
}

impl Activity {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Read, Self::Hash, Self::Find, Self::Encode, Self::Write, Self::Sync];
}

/// What an activity took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time, of all threads together.
    pub time: Duration,
    /// Bytes that went in; of writing, bytes that were written.
    pub bytes: u64,
}

/// Counters of all activities. Threads add to them at any time.
#[derive(Debug, Default)]
pub struct Timings {
    meters: [Meter; Activity::ALL.len()],
}

#[derive(Debug, Default)]
struct Meter {
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl Timings {
    /// What `activity` took so far.
    #[must_use]
    pub fn spent(&self, activity: Activity) -> Spent {
        let meter = &self.meters[activity as usize];
        Spent {
            time: Duration::from_nanos(meter.nanos.load(Ordering::Relaxed)),
            bytes: meter.bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn add(&self, activity: Activity, time: Duration, bytes: usize) {
        let meter = &self.meters[activity as usize];
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        meter.nanos.fetch_add(nanos, Ordering::Relaxed);
        meter.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Does `work` on so many bytes, as a part of `activity`.
    pub(crate) fn time<T>(&self, activity: Activity, bytes: usize, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(activity, start.elapsed(), bytes);
        result
    }
}
