//! Finds ranges of the base that resemble the appended bytes: the patch file compresses the appended bytes against them.

use std::collections::{HashMap, HashSet};

use ferofs_build::tree::NodeId;
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Location};

use crate::error::Result;
use crate::patch::create::context::{CreateContext, Inputs};
use crate::patch::create::decide::files::{ReuseDecision, ReuseDecisions};
use crate::patch::create::metadata::emit::WrittenMetadata;
use crate::patch::format::prediction::Prediction;

/// Positions in the base.
pub(crate) type OldRange = std::ops::Range<u64>;

/// Old ranges that resemble the appended bytes.
#[derive(Debug, Default)]
pub(crate) struct SimilarRanges {
    /// Old inodes and directories, by the position of the new inode that resembles them; sorted.
    pub(crate) metadata: Vec<(u64, OldRange)>,
    /// The extents of changed files, as they are stored.
    pub(crate) content: Vec<OldRange>,
}

impl SimilarRanges {
    /// The old metadata that is not part of what `apply` predicts.
    pub(crate) fn unpredicted(
        &self,
        prediction: &Prediction,
        written: &WrittenMetadata,
        context: &CreateContext<'_>,
    ) -> Result<Vec<(u64, OldRange)>> {
        let mut predicted = HashSet::new();
        for (number, size) in (0u32..).zip(&written.sizes) {
            if prediction.is_complete(number)? {
                predicted.insert(position(context, written.nids[size.node.index()]));
            }
        }
        Ok(self.metadata.iter().filter(|(new, _)| !predicted.contains(new)).cloned().collect())
    }
}

/// The position of a new inode.
fn position(context: &CreateContext<'_>, nid: Nid) -> u64 {
    let slots = context.area.superblock().inode_base().map_or(0, |base| base.get());
    slots.saturating_add(nid.get().saturating_mul(ferofs_format::units::SLOT_SIZE))
}

/// Finds the old inodes and directories that resemble the new ones, and the extents of changed files. `old_dirs` gives the old
/// directory of each new one.
pub(crate) fn find(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
    old_dirs: &HashMap<NodeId, Nid>,
    written: &WrittenMetadata,
) -> Result<SimilarRanges> {
    let Inputs { old, tree, .. } = context.inputs;
    let mut similar = SimilarRanges::default();
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        let decision = decisions.by_node[id.index()];
        let nid = match decision {
            ReuseDecision::SameContent(nid) | ReuseDecision::ChangedContent(nid) => Some(nid),
            ReuseDecision::New | ReuseDecision::KeepInode(_) => old_dirs.get(&id).copied(),
        };
        let Some(nid) = nid else { continue };
        let new = position(context, written.nids[id.index()]);
        let inode = old.inode(nid)?;
        let extents = old.extents(&inode, FileOffset::new(0))?;
        let end = extents.metadata_end()?;
        if !end.in_metabox {
            similar.metadata.push((new, inode.place().pos.get()..end.pos.get()));
        }
        if !inode.is_dir() && !matches!(decision, ReuseDecision::ChangedContent(_)) {
            continue;
        }
        for extent in extents {
            let extent = extent?;
            let range = match extent.data {
                ExtentData::Stored { at: Location::Device(_, at) } => at.get()..at.get() + extent.len,
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } => {
                    at.get()..at.get() + encoded_len
                }
                _ => continue,
            };
            if inode.is_dir() {
                similar.metadata.push((new, range));
            } else {
                similar.content.push(range);
            }
        }
    }
    similar.metadata.sort_unstable_by_key(|(at, _)| *at);
    Ok(similar)
}
