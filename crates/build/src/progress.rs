//! Progress and summary of a build.

pub(crate) mod timings;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use ferofs_format::Incompat;

use crate::error::Warning;
use crate::options::source::UsedPatterns;
use crate::progress::timings::Timings;

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
    pub found: AtomicU64,
    /// Regular files whose content is done; a large one counts once for each part.
    pub files_done: AtomicU64,
    /// Bytes of content to be read; 0 until the walk is over.
    pub bytes_total: AtomicU64,
    /// Bytes of content that were read and written.
    pub bytes_done: AtomicU64,
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
    /// Time spent listing the source.
    pub walk_time: Duration,
    /// Time spent on content.
    pub data_time: Duration,
    /// Time spent on metadata, and on writing everything to storage.
    pub metadata_time: Duration,
    /// Time spent on comparing the image with the source.
    pub verify_time: Duration,
    /// The largest number of jobs that were in progress at once. Each takes up to about 5 MiB of memory.
    pub peak_jobs: usize,
    /// Worker threads.
    pub workers: usize,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// The features without which the image cannot be read. Some follow from the source: chunks for files with holes, addresses of 48 bits.
    pub incompat: Incompat,
    /// The parts of the source that were left out.
    pub warnings: Vec<Warning>,
}
