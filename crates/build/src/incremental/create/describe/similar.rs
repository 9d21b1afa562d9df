//! Finds ranges of the base that resemble the appended bytes: the patch file compresses the appended bytes against them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::tree::NodeId;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Inode, Location, MetadataPlace};

use crate::error::Result;
use crate::incremental::create::context::{CreateContext, Inputs};
use crate::incremental::create::decide::files::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata::WrittenMetadata;
use ferofs_patch::format::prediction::Prediction;

/// Old metadata: positions in the base, or in its metabox.
#[derive(Clone, Debug)]
pub(crate) struct OldRange {
    pub(crate) in_metabox: bool,
    pub(crate) range: Range<u64>,
}

/// Old inodes and directories, by the position of the new inode that resembles them; sorted.
#[derive(Debug, Default)]
pub(crate) struct OldMetadata {
    /// By positions in the image. New blocks of an inode in the metabox are at the first one.
    pub(crate) by_pos: Vec<(u64, OldRange)>,
    /// By positions in the metabox.
    pub(crate) by_metabox: Vec<(u64, OldRange)>,
}

/// Old ranges that resemble the appended bytes.
#[derive(Debug, Default)]
pub(crate) struct SimilarRanges {
    metadata: OldMetadata,
    /// The extents of changed files, as they are stored.
    pub(crate) content: Vec<Range<u64>>,
}

impl SimilarRanges {
    /// The old metadata that is not part of what `apply` predicts.
    pub(crate) fn unpredicted(
        &self,
        prediction: &Prediction,
        written: &WrittenMetadata,
        context: &CreateContext<'_>,
    ) -> Result<OldMetadata> {
        let mut predicted = OldPlaces::default();
        for (number, inode) in (0u32..).zip(&written.inodes) {
            if prediction.is_complete(number)? {
                let (pos, metabox) = places(context, written, inode.node);
                predicted.by_pos.extend(pos);
                predicted.by_metabox.extend(metabox);
            }
        }
        let without = |all: &[(u64, OldRange)], predicted: &HashSet<u64>| {
            all.iter().filter(|(new, _)| !predicted.contains(new)).cloned().collect()
        };
        Ok(OldMetadata {
            by_pos: without(&self.metadata.by_pos, &predicted.by_pos),
            by_metabox: without(&self.metadata.by_metabox, &predicted.by_metabox),
        })
    }
}

/// Places of new inodes, as in [`OldMetadata`].
#[derive(Default)]
struct OldPlaces {
    by_pos: HashSet<u64>,
    by_metabox: HashSet<u64>,
}

/// The position of the new inode of `node` in the image, and in the metabox.
fn places(
    context: &CreateContext<'_>,
    written: &WrittenMetadata,
    node: NodeId,
) -> (Option<u64>, Option<u64>) {
    let nid = written.nid(node);
    if !nid.in_metabox() {
        return (Some(position(context, nid)), None);
    }
    let block = Some(written.places.first_block(node).get()).filter(|block| *block > 0);
    let pos = block.map(|block| block << context.inputs.old.superblock().block_size.bits());
    (pos, Some(nid.slot().saturating_mul(SLOT_SIZE)))
}

/// The position of an inode that is not in the metabox.
fn position(context: &CreateContext<'_>, nid: Nid) -> u64 {
    let slots = context.area.superblock().inode_base().map_or(0, |base| base.get());
    slots.saturating_add(nid.get().saturating_mul(SLOT_SIZE))
}

/// Finds the old inodes and directories that resemble the new ones, and the extents of changed files. `old_dirs` gives the old
/// directory of each new one, `metabox` is the new metabox.
pub(crate) fn find(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
    old_dirs: &HashMap<NodeId, Nid>,
    written: &WrittenMetadata,
    metabox: Option<Nid>,
) -> Result<SimilarRanges> {
    let Inputs { old, tree, .. } = context.inputs;
    let mut similar = SimilarRanges::default();
    let OldMetadata { by_pos, by_metabox } = &mut similar.metadata;
    let of_inode = |inode: &Inode, end: MetadataPlace| {
        let place = inode.place();
        OldRange { in_metabox: place.in_metabox, range: place.pos.get()..end.pos.get() }
    };
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        let decision = decisions.by_node[id.index()];
        let nid = match decision {
            ReuseDecision::SameContent(nid) | ReuseDecision::ChangedContent(nid) => Some(nid),
            ReuseDecision::New | ReuseDecision::KeepInode(_) => old_dirs.get(&id).copied(),
        };
        let Some(nid) = nid else { continue };
        let (pos, metabox_pos) = places(context, written, id);
        let inode = old.inode(nid)?;
        let extents = old.extents(&inode, FileOffset::new(0))?;
        let range = of_inode(&inode, extents.metadata_end()?);
        match metabox_pos {
            Some(new) => by_metabox.push((new, range)),
            None => by_pos.extend(pos.map(|new| (new, range))),
        }
        if !inode.is_dir() && !matches!(decision, ReuseDecision::ChangedContent(_)) {
            continue;
        }
        for extent in extents {
            let extent = extent?;
            let range = match extent.data {
                ExtentData::Stored { at: Location::Device(_, at) } => at.get()..at.get() + extent.len,
                // Encoded entries resemble no others.
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } if !inode.is_dir() => {
                    at.get()..at.get() + encoded_len
                }
                _ => continue,
            };
            if inode.is_dir() {
                by_pos.extend(pos.map(|new| (new, OldRange { in_metabox: false, range })));
            } else {
                similar.content.push(range);
            }
        }
    }
    if let (Some(_), Some(new), Some(nid)) = (&written.metabox, metabox, old.superblock().metabox) {
        let inode = old.inode(nid)?;
        let end = old.extents(&inode, FileOffset::new(0))?.metadata_end()?;
        by_pos.push((position(context, new), of_inode(&inode, end)));
    }
    by_pos.sort_unstable_by_key(|(at, _)| *at);
    by_metabox.sort_unstable_by_key(|(at, _)| *at);
    Ok(similar)
}
