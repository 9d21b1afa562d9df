//! Progress and summary of a build, and the time of each of its activities, summed over all
//! threads.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferofs_format::Incompat;
use ferofs_read::Count;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Warning;
use ferofs_host::UsedPatterns;

/// The stage of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Listing the source.
    Walk,
    /// Reading, encoding and writing content.
    Data,
    /// Writing metadata, and waiting until the image is durable.
    Metadata,
    /// Comparing the image with the source.
    Verify,
}

/// Progress of a build. Other threads may read it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    /// Files found by the walk so far.
    pub found: Count,
    /// Regular files whose content is done; a large one counts once for each part.
    pub files_done: Count,
    /// Bytes of content to be read; 0 until the walk is over. It falls when the build finds holes,
    /// which are not read.
    pub bytes_total: Count,
    /// Bytes of content that were read and written.
    pub bytes_done: Count,
    /// The time that each activity has taken so far.
    pub timings: Timings,
    /// The excludes that matched a name so far.
    pub(crate) used_excludes: UsedPatterns,
}

impl Progress {
    /// The current stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Walk,
            1 => Stage::Data,
            2 => Stage::Metadata,
            _ => Stage::Verify,
        }
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

/// The summary of a build.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Inodes in the image.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of all regular files, each counted once.
    pub bytes_in: u64,
    /// Bytes of the image.
    pub bytes_out: u64,
    /// Bytes of regular files that share the data of identical files.
    pub bytes_shared: u64,
    /// Bytes of the image that are data of an earlier image, at the same place.
    pub bytes_kept: u64,
    /// Files whose whole content is among these bytes.
    pub files_kept: u64,
    /// Time spent listing the source.
    pub walk_time: Duration,
    /// Time spent on content.
    pub data_time: Duration,
    /// Time spent on metadata, and on writing everything to storage.
    pub metadata_time: Duration,
    /// Time spent on comparing the image with the source.
    pub verify_time: Duration,
    /// The largest number of jobs that were in progress at once. Each takes up to about 5 MiB of
    /// memory.
    pub peak_jobs: usize,
    /// Worker threads.
    pub workers: usize,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// The features without which the image cannot be read. Some follow from the source: chunks for
    /// files with holes, addresses of 48 bits.
    pub incompat: Incompat,
    /// The parts of the source that were left out.
    pub warnings: Vec<Warning>,
}

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
    /// Placing what was encoded in the order of the image, on one thread: the processor time of
    /// that thread in the data stage.
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

    /// Runs `work` on this many bytes, and adds the processor time that this thread needs to
    /// `activity`.
    pub(crate) fn processor_time<T>(
        &self,
        activity: Activity,
        bytes: usize,
        work: impl FnOnce() -> T,
    ) -> T {
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
