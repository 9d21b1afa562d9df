//! What the data stage works on: cuts the tree's files into works, in the order of reading.

use crate::data::chunked::sparse::ChunkPlan;
use crate::data::identical::large::Clones;
use crate::data::worker::{SEGMENT, Shop, Work};
use crate::sources::data_ranges::Ranges;
use crate::tree::{Kind, NodeId};

/// Small files go to a worker in batches of about this many bytes...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or of this many files.
const BATCH_FILES: usize = 256;

/// A large file that is about to be cut.
pub(super) struct Cut {
    pub(super) node: NodeId,
    /// Bytes of all its parts.
    pub(super) bytes: u64,
    pub(super) plan: Option<ChunkPlan>,
}

/// What is fed next.
pub(super) enum Feed {
    Work(Work),
    /// Parts of this file follow, unless it has no bytes.
    Large(Cut),
}

/// Cuts the tree's files into works, one at a time.
pub(super) struct Feeder<'a> {
    shop: Shop<'a>,
    clones: &'a Clones,
    nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
    batch: Vec<NodeId>,
    batch_bytes: u64,
    /// Ranges of the large file that is being cut, from its last one on.
    cutting: Option<(NodeId, Ranges, bool)>,
}

impl<'a> Feeder<'a> {
    /// Cuts `nodes`, but for `clones`.
    pub(super) fn new(
        shop: Shop<'a>,
        nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
        clones: &'a Clones,
    ) -> Self {
        Self { shop, clones, nodes, batch: Vec::new(), batch_bytes: 0, cutting: None }
    }

    pub(super) fn next(&mut self) -> Option<Feed> {
        loop {
            // A large file waits until the small ones before it are on their way.
            if self.cutting.is_some() && !self.batch.is_empty() {
                return Some(self.flush());
            }
            if let Some(work) = self.cut() {
                return Some(Feed::Work(work));
            }
            if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
                return Some(self.flush());
            }
            let Some(id) = self.nodes.next() else {
                return (!self.batch.is_empty()).then(|| self.flush());
            };
            let node = self.shop.tree.node(id);
            let Kind::Regular { sparse } = node.kind else { continue };
            if self.clones.contains_key(&id) {
                continue;
            }
            let plan = if sparse { self.chunk_plan(id) } else { None };
            if node.size == 0 || self.shop.base.is_some_and(|base| base.has(id)) {
                continue;
            } else if plan.is_none() && node.size <= SEGMENT {
                self.batch.push(id);
                self.batch_bytes += node.size;
                continue;
            }
            let ranges = match &plan {
                Some(plan) => plan.runs.clone(),
                None => self.shop.base.and_then(|base| base.cuts(id)).unwrap_or_else(|| vec![(0, node.size)]),
            };
            let bytes = ranges.iter().map(|(start, end)| end - start).sum();
            self.cutting = Some((id, ranges.into_iter().rev().collect(), plan.is_some()));
            return Some(Feed::Large(Cut { node: id, bytes, plan }));
        }
    }

    /// No more parts of `node` are wanted. Returns how many bytes they would have had.
    pub(super) fn drop_rest(&mut self, node: NodeId) -> u64 {
        match self.cutting.take_if(|(cutting, ..)| *cutting == node) {
            Some((_, ranges, _)) => ranges.iter().map(|(start, end)| end - start).sum(),
            None => 0,
        }
    }

    fn flush(&mut self) -> Feed {
        self.batch_bytes = 0;
        Feed::Work(Work::Files(std::mem::take(&mut self.batch)))
    }

    fn cut(&mut self) -> Option<Work> {
        let (node, ranges, store) = self.cutting.as_mut()?;
        let Some((start, end)) = ranges.last_mut() else {
            self.cutting = None;
            return None;
        };
        let (node, store) = (*node, *store);
        let (offset, len) = (*start, (*end - *start).min(SEGMENT));
        *start += len;
        if start == end {
            ranges.pop();
        }
        let last = ranges.is_empty();
        Some(Work::Part { node, offset, len: len as usize, store, last })
    }

    /// How to store a file with holes; `None` as if it had none, also if it cannot be opened: the worker
    /// says why.
    fn chunk_plan(&self, id: NodeId) -> Option<ChunkPlan> {
        let size = self.shop.tree.node(id).size;
        let ranges = self.shop.contents.data_ranges(self.shop.tree, id)?;
        ChunkPlan::new(size, &ranges, self.shop.block, self.shop.compression.is_some())
    }
}
