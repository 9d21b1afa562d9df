//! Finds ranges of the base that resemble the appended bytes: the patch file compresses the appended bytes against them.

use std::collections::HashMap;
use std::ops::Range;

use ferofs_build::tree::NodeId;
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Location};

use super::context::{CreateContext, Inputs};
use super::decide::files::{ReuseDecision, ReuseDecisions};
use crate::error::Result;

/// Appended bytes, and the ranges of the base that resemble them.
#[derive(Clone, Debug)]
pub(crate) struct SimilarRanges {
    /// Positions in the new image.
    pub(crate) new: Range<u64>,
    /// Start and end positions in the base.
    pub(crate) old: Vec<(u64, u64)>,
}

/// Finds the old inodes and directories that resemble the new `metadata`, and the old files that resemble `content`.
/// `old_dirs` gives the old directory of each new one.
pub(crate) fn find(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
    old_dirs: &HashMap<NodeId, Nid>,
    metadata: Range<u64>,
    content: Range<u64>,
) -> Result<Vec<SimilarRanges>> {
    let Inputs { old, tree, .. } = context.inputs;
    let (mut old_metadata, mut old_content) = (Vec::new(), Vec::new());
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        let decision = decisions.by_node[id.index()];
        let nid = match decision {
            ReuseDecision::SameContent(nid) | ReuseDecision::ChangedContent(nid) => Some(nid),
            ReuseDecision::New | ReuseDecision::KeepInode(_) => old_dirs.get(&id).copied(),
        };
        let Some(nid) = nid else { continue };
        let inode = old.inode(nid)?;
        let extents = old.extents(&inode, FileOffset::new(0))?;
        let end = extents.metadata_end()?;
        if !end.in_metabox {
            old_metadata.push((inode.place().pos.get(), end.pos.get()));
        }
        if !inode.is_dir() && !matches!(decision, ReuseDecision::ChangedContent(_)) {
            continue;
        }
        for extent in extents {
            let extent = extent?;
            if let ExtentData::Stored { at: Location::Device(_, at) } = extent.data {
                let range = (at.get(), at.get() + extent.len);
                if inode.is_dir() { old_metadata.push(range) } else { old_content.push(range) }
            }
        }
    }
    Ok(vec![
        SimilarRanges { new: metadata, old: old_metadata },
        SimilarRanges { new: content, old: old_content },
    ])
}
