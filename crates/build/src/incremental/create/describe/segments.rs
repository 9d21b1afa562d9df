//! Where the builder's compressors started again within large files.

use std::collections::{HashMap, HashSet};

use crate::data::encode::SEGMENT;
use crate::sources::data_ranges::Ranges;
use crate::tree::NodeId;

/// The offsets at which segments of large files start.
#[derive(Debug, Default)]
pub(crate) struct Segments(HashMap<NodeId, HashSet<u64>>);

impl Segments {
    /// Adds the segments of `node`, whose content the builder divided into `ranges` first.
    pub(crate) fn add(&mut self, node: NodeId, ranges: &Ranges) {
        let starts = self.0.entry(node).or_default();
        for (start, end) in ranges {
            starts.extend((*start..*end).step_by(SEGMENT as usize));
        }
    }

    /// Whether a segment of `node` starts at `offset`.
    pub(crate) fn starts_at(&self, node: NodeId, offset: u64) -> bool {
        self.0.get(&node).is_some_and(|starts| starts.contains(&offset))
    }
}
