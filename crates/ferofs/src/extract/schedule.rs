//! The order of work: which files a worker makes together, and which file several workers make.
//!
//! Small files are handed out in batches of one directory. A large file is cut in pieces. Files with a fragment
//! are put in the order of their fragments first, and those of one cluster of the packed inode go to one worker:
//! so each cluster is decoded once, while a few of them are in memory at most.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use ferofs_format::FileOffset;

use super::walk::File;
use crate::error::{Error, Result};
use ferofs_read::{ExtentData, FileType, Image, Inode};

/// Files larger than two of these are cut in pieces of this size.
const PIECE: u64 = 4 << 20;
/// Content of a batch, and its files, at most.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_FILES: usize = 128;
/// Files with fragments that are put in order together.
const WINDOW: usize = 1 << 14;
/// Bytes of their directories' paths at most: 1 KiB for each, where sound trees have some fifty.
const WINDOW_PATHS: u64 = 16 << 20;

/// A file to make.
#[derive(Debug)]
pub(super) struct Item {
    /// Its directory's path below the target.
    pub(super) dir: Arc<Path>,
    pub(super) file: File,
}

impl Item {
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.dir.join(&self.file.name)
    }
}

/// What a worker does in one go.
#[derive(Debug)]
pub(super) enum Job {
    Batch(Vec<Item>),
    Piece(Arc<Large>, Range<u64>),
}

/// A file that several workers make. Who holds the last part of it completes it.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) item: Item,
    /// The file, once a worker has made it; `None` if there is nothing to be done for it.
    pub(super) made: OnceLock<Option<std::os::fd::OwnedFd>>,
    pub(super) failed: AtomicBool,
    parts: AtomicUsize,
}

impl Large {
    fn new(item: Item) -> Self {
        Self { item, made: OnceLock::new(), failed: AtomicBool::new(false), parts: AtomicUsize::new(1) }
    }

    /// Gives a part back; true for the last one.
    pub(super) fn is_last(&self) -> bool {
        self.parts.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Takes files, and hands out jobs.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    image: &'a Image,
    jobs: Sender<Job>,
    batch: Vec<Item>,
    weight: u64,
    /// Files by where their fragment starts in the packed inode.
    packed: Vec<(u64, Item)>,
    /// Bytes of the paths of their directories.
    packed_paths: u64,
    /// Why a file was not cut to its end.
    pub(super) stopped: Option<Error>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(image: &'a Image, jobs: Sender<Job>) -> Self {
        Self { image, jobs, batch: Vec::new(), weight: 0, packed: Vec::new(), packed_paths: 0, stopped: None }
    }

    /// Takes a file; gives one back that is large and for which the caller holds the last part.
    pub(super) fn add(&mut self, item: Item) -> Option<Arc<Large>> {
        let inode = &item.file.inode;
        let mut weight = 0;
        if inode.file_type() == FileType::Regular {
            if inode.size() > 2 * PIECE {
                return self.cut(item);
            }
            if let Some(start) = fragment(self.image, inode) {
                self.packed_paths = self.packed_paths.saturating_add(path_len(&item));
                self.packed.push((start, item));
                if self.packed.len() == WINDOW || self.packed_paths > WINDOW_PATHS {
                    self.hand_out_packed();
                }
                return None;
            }
            weight = inode.size();
        }
        // Each item keeps its directory's path, which in a deep tree is longer than many a file.
        let weight = weight.saturating_add(path_len(&item));
        self.put(item, weight);
        None
    }

    /// Hands out all that waits.
    pub(super) fn finish(mut self) {
        self.hand_out_packed();
        self.hand_out();
    }

    /// Cuts a large file; holes are nobody's work.
    fn cut(&mut self, item: Item) -> Option<Arc<Large>> {
        // A directory's small files go first, so that the pieces fill the time when little else is left.
        let large = Arc::new(Large::new(item));
        let inode = &large.item.file.inode;
        let mut at = 0;
        while at < inode.size() && !large.failed.load(Ordering::Relaxed) {
            // A file that ends too early must not look complete.
            if let Err(error) = self.image.budget().charge(1) {
                large.failed.store(true, Ordering::Release);
                self.stopped = Some(error.into());
                break;
            }
            match self.image.extents(inode, FileOffset::new(at)).map(|mut extents| extents.next()) {
                Ok(Some(Ok(extent))) if extent.data == ExtentData::Hole => at = extent.end(),
                _ => {
                    // What cannot be mapped is for the worker to find out, who reports it.
                    let end = (at / PIECE + 1).saturating_mul(PIECE).min(inode.size());
                    large.parts.fetch_add(1, Ordering::Relaxed);
                    self.send(Job::Piece(Arc::clone(&large), at..end));
                    at = end;
                }
            }
        }
        large.is_last().then_some(large)
    }

    fn put(&mut self, item: Item, weight: u64) {
        self.batch.push(item);
        self.weight = self.weight.saturating_add(weight);
        if self.weight >= BATCH_BYTES || self.batch.len() == BATCH_FILES {
            self.hand_out();
        }
    }

    fn hand_out(&mut self) {
        self.weight = 0;
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.send(Job::Batch(batch));
        }
    }

    fn hand_out_packed(&mut self) {
        self.hand_out();
        self.packed_paths = 0;
        let mut packed = std::mem::take(&mut self.packed);
        packed.sort_by_key(|(start, _)| *start);
        let mut cluster_end = 0;
        for (start, item) in packed {
            if start >= cluster_end {
                self.hand_out();
                // What cannot be mapped cannot be read either: the worker reports it.
                cluster_end = packed_cluster_end(self.image, start).unwrap_or(0);
            }
            // A cluster's files stay together, however many bytes they have: the batch is bounded by its cluster.
            self.batch.push(item);
        }
        self.hand_out();
    }

    fn send(&self, job: Job) {
        // The workers live as long as anybody can send.
        let _ = self.jobs.send(job);
    }
}

fn path_len(item: &Item) -> u64 {
    u64::try_from(item.dir.as_os_str().len()).unwrap_or(u64::MAX)
}

/// Where in the packed inode the fragment of `inode` starts, if it has one.
fn fragment(image: &Image, inode: &Inode) -> Option<u64> {
    if image.superblock().packed.is_none() || !inode.layout().is_compressed() || inode.size() == 0 {
        return None;
    }
    match image.extents(inode, FileOffset::new(inode.size() - 1)).ok()?.next()?.ok()?.data {
        ExtentData::Fragment { offset } => Some(offset.get()),
        _ => None,
    }
}

fn packed_cluster_end(image: &Image, offset: u64) -> Option<u64> {
    let packed = image.inode(image.superblock().packed?).ok()?;
    let extent = image.extents(&packed, FileOffset::new(offset)).ok()?.next()?.ok()?;
    Some(extent.end())
}

/// Where the first extent starts that starts at `offset` or later: work that begins there decodes nothing that
/// the work before it decodes, too.
pub(super) fn boundary(image: &Image, inode: &Inode, offset: u64) -> Result<u64> {
    if offset >= inode.size() {
        return Ok(inode.size());
    }
    let Some(extent) = image.extents(inode, FileOffset::new(offset))?.next().transpose()? else {
        return Ok(offset);
    };
    let end = match extent.data {
        ExtentData::Encoded { .. } if extent.start.get() < offset => extent.end(),
        // Where an extent starts, work may begin that nothing comes before: a file's first piece, or one after a hole.
        ExtentData::Fragment { offset: start } if extent.start.get() < offset => {
            let inside = start.get().saturating_add(offset - extent.start.get());
            let packed = image.superblock().packed.map(|nid| image.inode(nid)).transpose()?;
            let Some(packed) = packed.filter(|packed| packed.nid() != inode.nid()) else { return Ok(offset) };
            match image.extents(&packed, FileOffset::new(inside))?.next().transpose()? {
                Some(cluster) if cluster.start.get() < inside => offset + (cluster.end() - inside),
                _ => offset,
            }
        }
        _ => offset,
    };
    Ok(end.min(inode.size()))
}
