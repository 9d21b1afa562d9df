//! Pairs each new inode with the old one that it resembles, so that `apply` can predict the new
//! metadata.

use std::collections::{HashMap, HashSet};

use crate::tree::{Kind, NodeId};
use ferofs_format::Nid;
use ferofs_format::area::MetadataSize;
use ferofs_read::Image;

use crate::error::Result;
use crate::incremental::create::context::CreateContext;
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata::{NewInode as WrittenInode, WrittenMetadata};
use crate::incremental::relocations::{MovedContent, NewInode, relocations};
use ferofs_update::format::header::Header;
use ferofs_update::format::prediction::{
    Area, INODES_MAX, Prediction, Relocations, Rules, inline_of,
};

/// What the list is made from.
pub(crate) struct Inputs<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    /// The new image.
    pub(crate) image: &'a Image,
    pub(crate) decisions: &'a ReuseDecisions,
    /// Inodes of the old image that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// The old directory that a new one resembles.
    pub(crate) old_dirs: &'a HashMap<NodeId, Nid>,
    pub(crate) written: &'a WrittenMetadata,
    pub(crate) header: &'a Header,
}

/// The list as stored, and what `apply` makes of it.
pub(crate) struct Relocated {
    pub(crate) prediction: Prediction,
    pub(crate) encoded: Vec<u8>,
}

/// Lists all new inodes that resemble old ones; none if they are too many.
pub(crate) fn list(inputs: &Inputs<'_>) -> Result<Relocated> {
    // A patch that carries the encoded metabox needs no prediction of its content.
    let is_carried = inputs.context.options.portable && inputs.written.metabox.is_some();
    let mut encoded = None;
    if inputs.written.inodes.len() <= INODES_MAX && !is_carried {
        let (old, inodes) = (inputs.context.inputs.old, new_inodes(inputs)?);
        let rules = rules(inputs)?;
        // Content that stays does not move.
        let list = relocations(old, inputs.image, &inodes, rules, MovedContent::default())?;
        encoded = list.encode()?;
    }
    let encoded = match encoded {
        Some(encoded) => encoded,
        None => Relocations::default().encode()?.unwrap_or_default(),
    };
    let (old, base) = (inputs.context.inputs.old, &**inputs.context.base);
    let prediction = inputs.header.predict(Relocations::decode(&encoded)?, old, base)?;
    Ok(Relocated { prediction, encoded })
}

/// How the metadata was placed.
fn rules(inputs: &Inputs<'_>) -> Result<Rules> {
    let Inputs { context, image, written, .. } = *inputs;
    let old = context.inputs.old;
    let metabox = match (&written.metabox, old.superblock().metabox) {
        (Some(_), Some(nid)) => {
            Some(old.inode(nid)?.size().next_multiple_of(old.superblock().block_size.bytes64()))
        }
        _ => None,
    };
    let root = image.inode(image.superblock().root)?.place();
    let first_is_apart = metabox.is_none() && root.pos.get() < written.base;
    let area = Some(Area { start: written.base, metabox, first_is_apart });
    Ok(Rules { area, consecutive: true })
}

/// All new inodes, in the order of the tree, and the old ones that they resemble.
fn new_inodes(inputs: &Inputs<'_>) -> Result<Vec<NewInode>> {
    // A new inode never takes the place of one that stays.
    let mut taken: HashSet<Nid> = inputs.kept.iter().copied().flatten().collect();
    let mut inodes = Vec::with_capacity(inputs.written.inodes.len());
    let block = inputs.image.superblock().block_size;
    for WrittenInode { node, size } in &inputs.written.inodes {
        inputs.context.inputs.options.run.cancel.check()?;
        let is_dir = matches!(inputs.context.inputs.tree.node(*node).kind, Kind::Directory(_));
        // A directory resembles one new directory.
        let is_free = |old: &Nid| if is_dir { taken.insert(*old) } else { !taken.contains(old) };
        let old = source(inputs, *node).filter(is_free);
        let size = MetadataSize { inline: inline_of(size.len, size.inline, block), ..*size };
        inodes.push(NewInode { old, nid: inputs.written.nid(*node), size });
    }
    Ok(inodes)
}

/// The old inode that the new inode of `node` resembles.
fn source(inputs: &Inputs<'_>, node: NodeId) -> Option<Nid> {
    if matches!(inputs.context.inputs.tree.node(node).kind, Kind::Directory(_)) {
        return inputs.old_dirs.get(&node).copied();
    }
    match inputs.decisions.by_node[node.index()] {
        ReuseDecision::SameContent(nid) | ReuseDecision::ChangedContent(nid) => Some(nid),
        ReuseDecision::New | ReuseDecision::KeepInode(_) => None,
    }
}
