//! Measures the time of each activity of a build, summed over all threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The activities of a build's threads after the source was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Reading files, and decoding those of images.
    Read,
    /// Hashing files to find identical ones.
    Hash,
    /// Looking for extents that the image already has.
    Find,
    /// Encoding.
    Encode,
    /// Placing what was encoded in the order of the image, on one thread: the processor time of that thread in the data stage.
    Order,
    /// Writing the image.
    Write,
    /// Waiting until the image is durable.
    Sync,
}

impl Activity {
    /// All activities.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Hash, Self::Find, Self::Encode, Self::Order, Self::Write, Self::Sync];
}

/// The processor time of this thread so far.
pub(crate) fn processor_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// The processor time of all threads so far.
pub(crate) fn process_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The time and bytes of an activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spent {
    /// Time, of all threads together.
    pub time: Duration,
    /// Bytes of input; for [`Activity::Write`], bytes of output.
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
    /// The time and bytes of `activity` so far.
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

    /// Runs `work` on this many bytes, and adds the processor time that this thread needs to `activity`.
    pub(crate) fn processor_time<T>(&self, activity: Activity, bytes: usize, work: impl FnOnce() -> T) -> T {
        let start = processor_time();
        let result = work();
        self.add(activity, processor_time().saturating_sub(start), bytes);
        result
    }

    /// Runs `work` on this many bytes, and adds its time to `activity`.
    pub(crate) fn time<T>(&self, activity: Activity, bytes: usize, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(activity, start.elapsed(), bytes);
        result
    }
}
