//! Splits the files of the tree into jobs for workers, in the order of reading: small files in batches, large ones in parts.

use crate::data::chunks::sparse::ChunkPlan;
use crate::data::encode::SEGMENT;
use crate::data::identical::large::Duplicates;
use crate::data::worker::Job;
use crate::data::worker::context::WorkerContext;
use crate::sources::data_ranges::Ranges;
use crate::tree::{Kind, NodeId};

/// A batch ends when its small files have this many bytes: enough work to make the cost of a job small, and little enough to
/// occupy all workers. A deduplicating image depends on it.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// A batch also ends with this many files, so that many tiny files do not make one long job. A deduplicating image depends on it.
pub(crate) const BATCH_FILES: usize = 256;

/// A large file whose parts follow.
pub(super) struct LargeFile {
    pub(super) node: NodeId,
    /// Bytes of all parts.
    pub(super) bytes: u64,
    pub(super) plan: Option<ChunkPlan>,
}

/// The next job, or the start of several.
pub(super) enum Scheduled {
    Job(Job),
    /// The next jobs are the parts of this file. There are none if it has no bytes.
    LargeFile(LargeFile),
}

/// The most bytes of a part for which space is only reserved.
const RESERVED_PART: u64 = 1 << 40;

/// Creates jobs, one at a time.
pub(super) struct Scheduler<'a> {
    context: WorkerContext<'a>,
    duplicates: &'a Duplicates,
    /// The most bytes of a part of a large file.
    segment: u64,
    nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
    batch: Vec<NodeId>,
    batch_bytes: u64,
    /// The large file that is being split, its remaining ranges with the next one last, and whether to store it uncompressed.
    splitting: Option<(NodeId, Ranges, bool)>,
}

impl<'a> Scheduler<'a> {
    /// Creates jobs for `nodes`, except for `duplicates`.
    pub(super) fn new(
        context: WorkerContext<'a>,
        nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
        duplicates: &'a Duplicates,
    ) -> Self {
        let segment = context.segment();
        Self { context, duplicates, segment, nodes, batch: Vec::new(), batch_bytes: 0, splitting: None }
    }

    pub(super) fn next(&mut self) -> Option<Scheduled> {
        loop {
            // The small files before a large one come first.
            if self.splitting.is_some() && !self.batch.is_empty() {
                return Some(self.flush());
            }
            if let Some(job) = self.next_part() {
                return Some(Scheduled::Job(job));
            }
            if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
                return Some(self.flush());
            }
            let Some(id) = self.nodes.next() else {
                return (!self.batch.is_empty()).then(|| self.flush());
            };
            let node = self.context.tree.node(id);
            let Kind::Regular { sparse } = node.kind else { continue };
            if self.duplicates.contains_key(&id) {
                continue;
            }
            let plan = if sparse { self.chunk_plan(id) } else { None };
            if node.size == 0 || self.context.base_image.is_some_and(|base| base.has_content(id)) {
                continue;
            } else if plan.is_none() && node.size <= SEGMENT {
                self.batch.push(id);
                self.batch_bytes += node.size;
                continue;
            }
            let ranges = match &plan {
                Some(plan) => plan.runs.clone(),
                None => self
                    .context
                    .base_image
                    .and_then(|base| base.split_ranges(id))
                    .unwrap_or_else(|| vec![(0, node.size)]),
            };
            let bytes = ranges.iter().map(|(start, end)| end - start).sum();
            self.splitting = Some((id, ranges.into_iter().rev().collect(), plan.is_some()));
            return Some(Scheduled::LargeFile(LargeFile { node: id, bytes, plan }));
        }
    }

    /// Skips the remaining parts of `node`. Returns how many bytes they have.
    pub(super) fn skip_rest(&mut self, node: NodeId) -> u64 {
        match self.splitting.take_if(|(splitting, ..)| *splitting == node) {
            Some((_, ranges, _)) => ranges.iter().map(|(start, end)| end - start).sum(),
            None => 0,
        }
    }

    fn flush(&mut self) -> Scheduled {
        self.batch_bytes = 0;
        Scheduled::Job(Job::Files(std::mem::take(&mut self.batch)))
    }

    fn next_part(&mut self) -> Option<Job> {
        let (node, ranges, store) = self.splitting.as_mut()?;
        let Some((start, end)) = ranges.last_mut() else {
            self.splitting = None;
            return None;
        };
        let (node, store) = (*node, *store);
        let limit = if self.context.is_reserved(node) { RESERVED_PART } else { self.segment };
        let (offset, len) = (*start, (*end - *start).min(limit));
        *start += len;
        if start == end {
            ranges.pop();
        }
        let last = ranges.is_empty();
        Some(Job::Part { node, offset, len: len as usize, store, last })
    }

    /// How to store a file with holes in chunks; `None`: like other files. A file that cannot be opened is `None`, too: the
    /// worker then reports the error.
    fn chunk_plan(&self, id: NodeId) -> Option<ChunkPlan> {
        let size = self.context.tree.node(id).size;
        let ranges = self.context.contents.data_ranges(self.context.tree, id)?;
        ChunkPlan::new(size, &ranges, self.context.block_size, self.context.compression.is_some())
    }
}
