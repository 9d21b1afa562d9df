//! Divides the files into jobs for the workers.
//!
//! Small files of a directory form batches, and a large file is divided into pieces. Files with a
//! fragment are sorted by its position in the packed inode, and those of the same cluster go to one
//! worker: each cluster is decoded once, and only a few are in memory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use ferofs_format::FileOffset;

use super::walk::File;
use crate::error::Error;
use ferofs_read::{ExtentData, FileType, Image, Inode};

/// Bytes of a piece. Files larger than two pieces are divided; smaller ones are not worth the
/// overhead.
const PIECE: u64 = 4 << 20;
/// Bytes of a batch's content at most, so that all workers get work.
const BATCH_BYTES: u64 = 1 << 20;
/// Files of a batch at most.
const BATCH_FILES: usize = 128;
/// Files with fragments that are sorted together. More would decode fewer clusters twice, but need
/// more memory.
const WINDOW: usize = 1 << 14;
/// Bytes of the paths of their directories at most: 1 KiB for each; in usual trees they have about
/// 50 bytes.
const WINDOW_PATHS: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct TargetFile {
    /// Its directory's path below the target.
    pub(super) dir: Arc<Path>,
    pub(super) file: File,
}

impl TargetFile {
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.dir.join(&self.file.name)
    }
}

/// A worker's task: a batch of small files, or a piece of a large one.
#[derive(Debug)]
pub(super) enum Job {
    Batch(Vec<TargetFile>),
    Piece(Arc<Large>, Range<u64>),
}

/// A file that several workers write. The one that finishes its last part completes it.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) item: TargetFile,
    /// The file, after a worker created it; `None` if an existing one stays.
    pub(super) made: OnceLock<Option<std::os::fd::OwnedFd>>,
    pub(super) failed: AtomicBool,
    /// Parts that are not finished, and 1 for the schedule.
    parts: AtomicUsize,
}

impl Large {
    fn new(item: TargetFile) -> Self {
        Self {
            item,
            made: OnceLock::new(),
            failed: AtomicBool::new(false),
            parts: AtomicUsize::new(1),
        }
    }

    /// Marks a part as finished; true for the last one.
    pub(super) fn finish_part(&self) -> bool {
        self.parts.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Collects files, and sends jobs to the workers.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    image: &'a Image,
    jobs: Sender<Job>,
    batch: Vec<TargetFile>,
    weight: u64,
    /// Files with a fragment, with its position in the packed inode.
    packed: Vec<(u64, TargetFile)>,
    /// Bytes of the paths of their directories.
    packed_paths: u64,
    /// The error that ended the division of a file.
    pub(super) stopped: Option<Error>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(image: &'a Image, jobs: Sender<Job>) -> Self {
        Self {
            image,
            jobs,
            batch: Vec::new(),
            weight: 0,
            packed: Vec::new(),
            packed_paths: 0,
            stopped: None,
        }
    }

    /// Adds a file. Returns a large file whose parts are all finished: the caller completes it.
    pub(super) fn add(&mut self, item: TargetFile) -> Option<Arc<Large>> {
        let inode = &item.file.inode;
        let mut weight = 0;
        if inode.file_type() == FileType::Regular {
            if inode.size() > 2 * PIECE {
                return self.divide(item);
            }
            if let Some(start) = fragment(self.image, inode) {
                self.packed_paths = self.packed_paths.saturating_add(path_len(&item));
                self.packed.push((start, item));
                if self.packed.len() == WINDOW || self.packed_paths > WINDOW_PATHS {
                    self.send_packed();
                }
                return None;
            }
            weight = inode.size();
        }
        // Each item holds its directory's path, which in a deep tree can be longer than the file.
        let weight = weight.saturating_add(path_len(&item));
        self.put(item, weight);
        None
    }

    /// Sends the remaining jobs.
    pub(super) fn finish(mut self) {
        self.send_packed();
        self.send_batch();
    }

    /// Divides a large file into jobs; holes need none.
    fn divide(&mut self, item: TargetFile) -> Option<Arc<Large>> {
        let large = Arc::new(Large::new(item));
        let inode = &large.item.file.inode;
        let mut at = 0;
        while at < inode.size() && !large.failed.load(Ordering::Relaxed) {
            // Mark the file as failed, so that it is not completed.
            if let Err(error) = self.image.budget().charge(1) {
                large.failed.store(true, Ordering::Release);
                self.stopped = Some(error.into());
                break;
            }
            match self.image.extents(inode, FileOffset::new(at)).map(|mut extents| extents.next()) {
                Ok(Some(Ok(extent))) if extent.data == ExtentData::Hole => at = extent.end(),
                _ => {
                    // The worker will find the same error, and report it.
                    let end =
                        (at / PIECE).saturating_add(1).saturating_mul(PIECE).min(inode.size());
                    large.parts.fetch_add(1, Ordering::Relaxed);
                    self.send(Job::Piece(Arc::clone(&large), at..end));
                    at = end;
                }
            }
        }
        large.finish_part().then_some(large)
    }

    fn put(&mut self, item: TargetFile, weight: u64) {
        self.batch.push(item);
        self.weight = self.weight.saturating_add(weight);
        if self.weight >= BATCH_BYTES || self.batch.len() == BATCH_FILES {
            self.send_batch();
        }
    }

    fn send_batch(&mut self) {
        self.weight = 0;
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.send(Job::Batch(batch));
        }
    }

    fn send_packed(&mut self) {
        self.send_batch();
        self.packed_paths = 0;
        let mut packed = std::mem::take(&mut self.packed);
        packed.sort_by_key(|(start, _)| *start);
        let mut cluster_end = 0;
        for (start, item) in packed {
            if start >= cluster_end {
                self.send_batch();
                // The worker will find the same error, and report it.
                cluster_end = packed_cluster_end(self.image, start).unwrap_or(0);
            }
            // The files of one cluster stay in one batch: the size of the cluster limits it.
            self.batch.push(item);
        }
        self.send_batch();
    }

    fn send(&self, job: Job) {
        // This fails only if all workers panicked, which ends the extraction anyway.
        let _ = self.jobs.send(job);
    }
}

fn path_len(item: &TargetFile) -> u64 {
    u64::try_from(item.dir.as_os_str().len()).unwrap_or(u64::MAX)
}

/// The position of `inode`'s fragment in the packed inode, if it has one.
fn fragment(image: &Image, inode: &Inode) -> Option<u64> {
    if image.superblock().packed.is_none() || !inode.layout().is_compressed() {
        return None;
    }
    match image
        .extents(inode, FileOffset::new(inode.size().checked_sub(1)?))
        .ok()?
        .next()?
        .ok()?
        .data
    {
        ExtentData::Fragment { offset } => Some(offset.get()),
        _ => None,
    }
}

fn packed_cluster_end(image: &Image, offset: u64) -> Option<u64> {
    let packed = image.inode(image.superblock().packed?).ok()?;
    let extent = image.extents(&packed, FileOffset::new(offset)).ok()?.next()?.ok()?;
    Some(extent.end())
}
