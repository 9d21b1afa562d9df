//! Splits the files of the tree into jobs for workers, in the order of reading: small files in
//! batches, large ones in parts.

use crate::data::chunks::{ChunkPlan, ChunkPlans};
use crate::data::duplicates::Duplicates;
use crate::data::encode::SEGMENT;
use crate::data::encode::zero_runs::HOLE_MIN;
use crate::data::worker::context::WorkerContext;
use crate::data::worker::{Job, PartForm};
use crate::tree::{Kind, NodeId};
use ferofs_host::stat::Ranges;

/// A batch ends when its small files have this many bytes: enough work to make the cost of a job
/// small, and little enough to occupy all workers. A deduplicating image depends on it.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// A batch also ends with this many files, so that many tiny files do not make one long job. A
/// deduplicating image depends on it.
pub(crate) const BATCH_FILES: usize = 256;

/// The start and the end of a range, and what workers do with it.
type FormedRange = (u64, u64, PartForm);

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

/// The most bytes of a part that is not read: space is only reserved for it, or it is a hole.
const UNREAD_PART: u64 = 1 << 30;
/// Creates jobs, one at a time.
pub(super) struct Scheduler<'a> {
    context: WorkerContext<'a>,
    duplicates: &'a Duplicates,
    plans: &'a ChunkPlans,
    /// The most bytes of a part of a large file.
    segment: u64,
    nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
    batch: Vec<NodeId>,
    batch_bytes: u64,
    /// The large file that is being split, and its remaining ranges with the next one last.
    splitting: Option<(NodeId, Vec<FormedRange>)>,
}

impl<'a> Scheduler<'a> {
    /// Creates jobs for `nodes`, except for `duplicates`. `plans`: those of files in chunks.
    pub(super) fn new(
        context: WorkerContext<'a>,
        nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
        duplicates: &'a Duplicates,
        plans: &'a ChunkPlans,
    ) -> Self {
        let segment = context.segment();
        Self {
            context,
            duplicates,
            plans,
            segment,
            nodes,
            batch: Vec::new(),
            batch_bytes: 0,
            splitting: None,
        }
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
            let plan = self.plans.get(&id).cloned();
            if node.size == 0 || self.context.base_image.is_some_and(|base| base.has_content(id)) {
                continue;
            } else if plan.is_none() && node.size <= SEGMENT {
                self.batch.push(id);
                self.batch_bytes += node.size;
                continue;
            }
            let mut ranges: Vec<FormedRange> = match &plan {
                Some(plan) => {
                    plan.runs.iter().map(|(start, end)| (*start, *end, PartForm::Stored)).collect()
                }
                None => {
                    let base = self.context.base_image;
                    let ranges =
                        base.and_then(|base| base.split_ranges(id)).unwrap_or(vec![(0, node.size)]);
                    let holes = if sparse { self.holes(id) } else { Ranges::new() };
                    with_holes(&ranges, &holes)
                }
            };
            let bytes = ranges.iter().map(|(start, end, _)| end - start).sum();
            self.leave_out_of_progress(id, &ranges);
            ranges.reverse();
            self.splitting = Some((id, ranges));
            return Some(Scheduled::LargeFile(LargeFile { node: id, bytes, plan }));
        }
    }

    /// The time that is left follows from the bytes that remain, so bytes that nobody reads do not
    /// count.
    fn leave_out_of_progress(&self, id: NodeId, ranges: &[FormedRange]) {
        let is_read = |form: PartForm| form != PartForm::Hole && !self.context.is_reserved(id);
        let read =
            ranges.iter().filter(|(_, _, form)| is_read(*form)).map(|(start, end, _)| end - start);
        let unread = self.context.tree.node(id).size.saturating_sub(read.sum());
        let total = &self.context.options.run.progress.bytes_total;
        // Only this thread changes it. A change of an image does not set it.
        total.set(total.get().saturating_sub(unread));
    }

    /// Skips the remaining parts of `node`. Returns how many bytes they have.
    pub(super) fn skip_rest(&mut self, node: NodeId) -> u64 {
        match self.splitting.take_if(|(splitting, _)| *splitting == node) {
            Some((_, ranges)) => ranges.iter().map(|(start, end, _)| end - start).sum(),
            None => 0,
        }
    }

    fn flush(&mut self) -> Scheduled {
        self.batch_bytes = 0;
        Scheduled::Job(Job::Files(std::mem::take(&mut self.batch)))
    }

    fn next_part(&mut self) -> Option<Job> {
        let (node, ranges) = self.splitting.as_mut()?;
        let Some((start, end, form)) = ranges.last_mut() else {
            self.splitting = None;
            return None;
        };
        let (node, form) = (*node, *form);
        // With deduplication, the image depends on the number of jobs: it must not depend on
        // whether the source reports its holes.
        let is_hole = form == PartForm::Hole && self.context.extent_index.is_none();
        let limit =
            if is_hole || self.context.is_reserved(node) { UNREAD_PART } else { self.segment };
        let (offset, len) = (*start, (*end - *start).min(limit));
        *start += len;
        if start == end {
            ranges.pop();
        }
        let last = ranges.is_empty();
        Some(Job::Part { node, offset, len: len as usize, form, last })
    }

    /// Whether the file is indexed by extents, whose holes take a record each.
    fn has_extents(&self, id: NodeId) -> bool {
        self.context
            .file_compression(id)
            .is_some_and(|(compression, _)| compression.has_long_holes())
    }

    /// The holes of the source that cover whole segments, so that reading their zeroes would give
    /// the same holes.
    fn holes(&self, id: NodeId) -> Ranges {
        let size = self.context.tree.node(id).size;
        let data = match self.has_extents(id) {
            true => self.context.contents.data_ranges(self.context.tree, id),
            false => None,
        };
        let Some(data) = data else { return Ranges::new() };
        let mut holes = Ranges::new();
        let mut start = 0;
        // Fewer zeroes at the end are not a hole.
        let last =
            if size % self.segment < HOLE_MIN as u64 { size - size % self.segment } else { size };
        for (data_start, data_end) in data.into_iter().chain([(size, size)]) {
            let end =
                if data_start == size { last } else { data_start / self.segment * self.segment };
            if start < end {
                holes.push((start, end));
            }
            start = data_end.next_multiple_of(self.segment);
        }
        holes
    }
}

/// Parts of `ranges` that are in `holes`, and the rest. Both ascend.
fn with_holes(ranges: &[(u64, u64)], holes: &[(u64, u64)]) -> Vec<FormedRange> {
    let mut parts = Vec::new();
    let mut holes = holes.iter().peekable();
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            while holes.next_if(|(_, hole_end)| *hole_end <= at).is_some() {}
            let (next, form) = match holes.peek() {
                Some((start, hole_end)) if *start <= at => (*hole_end, PartForm::Hole),
                Some((start, _)) => (*start, PartForm::Encoded),
                None => (*end, PartForm::Encoded),
            };
            parts.push((at, next.min(*end), form));
            at = next.min(*end);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_divided_at_holes() {
        use PartForm::{Encoded, Hole};
        let divided = |ranges: &[(u64, u64)]| with_holes(ranges, &[(0, 8), (12, 16), (20, 40)]);
        let parts =
            [(0, 8, Hole), (8, 12, Encoded), (12, 16, Hole), (16, 20, Encoded), (20, 30, Hole)];
        assert_eq!(divided(&[(0, 30)]), parts);
        assert_eq!(
            divided(&[(9, 13), (13, 18)]),
            [(9, 12, Encoded), (12, 13, Hole), (13, 16, Hole), (16, 18, Encoded)]
        );
        assert_eq!(divided(&[(40, 50)]), [(40, 50, Encoded)]);
    }
}
