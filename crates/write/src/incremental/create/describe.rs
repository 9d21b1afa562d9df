//! Describes the appended bytes for the patch file: what they resemble, and how they are encoded
//! again. This file has where the builder's compressors started again within large files, old
//! content as it is stored, and the list of changed files.
//!
//! | module | job |
//! |---|---|
//! | [`units`] | finds appended extents, and checks that they can be encoded again |
//! | [`alignment`] | finds old content that lies beside new content, although some bytes differ |
//! | [`relocations`] | lists the old inode that each new one resembles, so that metadata can be predicted |
//! | [`pieces`] | divides and compresses content and metadata |

pub(crate) mod alignment;
pub(crate) mod pieces;
pub(crate) mod relocations;
pub(crate) mod units;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Image, Location};
use ferofs_update::format::change::{Change, ChangeKind, NewParents};

use crate::data::encode::SEGMENT;
use crate::error::Result;
use crate::incremental::create::context::{CreateContext, Inputs};
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata::WrittenMetadata;
use crate::tree::{Kind, NodeId};
use ferofs_host::stat::Ranges;

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

/// The positions of the extents of changed files in the old image. `kept` are the old inodes that
/// stay, by node.
pub(crate) fn changed_content(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
) -> Result<Vec<Range<u64>>> {
    let old = context.inputs.old;
    let mut found = Vec::new();
    for id in context.inputs.tree.ids().filter(|id| kept[id.index()].is_none()) {
        let ReuseDecision::ChangedContent(nid) = decisions.by_node[id.index()] else { continue };
        for extent in old.extents(&old.inode(nid)?, FileOffset::new(0))? {
            let extent = extent?;
            let (at, len) = match extent.data {
                ExtentData::Stored { at: Location::Device(_, at) } => (at.get(), extent.len),
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } => {
                    (at.get(), encoded_len)
                }
                _ => continue,
            };
            found.push(at..at + len);
        }
    }
    Ok(found)
}

/// Appended bytes of each node's content in the new `image`. Bytes that several files share count
/// for the first.
pub(crate) fn content_costs(
    context: &CreateContext<'_>,
    image: &Image,
    kept: &[Option<Nid>],
    written: &WrittenMetadata,
) -> Result<Vec<u64>> {
    let (tree, start) = (context.inputs.tree, context.area.size());
    let mut seen = HashSet::new();
    let mut costs = vec![0; tree.nodes.len()];
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        if !matches!(tree.node(id).kind, Kind::Regular { .. }) {
            continue;
        }
        let inode = image.inode(written.nid(id))?;
        for extent in image.extents(&inode, FileOffset::new(0))? {
            let extent = extent?;
            let (at, len) = match extent.data {
                ExtentData::Stored { at: Location::Device(_, at) } => (at, extent.len),
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } => {
                    (at, encoded_len)
                }
                _ => continue,
            };
            if at.get() >= start && seen.insert(at) {
                costs[id.index()] += len;
            }
        }
    }
    Ok(costs)
}

/// The changes by path, then the removed files; and the directories `with_new_parent`, in which
/// only `..` changes. `costs` are those of [`content_costs`].
pub(crate) fn list_changes(
    inputs: Inputs<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
    written: &WrittenMetadata,
    costs: &[u64],
    with_new_parent: &HashSet<NodeId>,
) -> Result<(Vec<Change>, NewParents)> {
    let Inputs { old, tree, .. } = inputs;
    let (mut changes, mut new_parents) = (Vec::new(), NewParents::default());
    for id in tree.ids() {
        if with_new_parent.contains(&id) {
            new_parents.directories += 1;
            new_parents.bytes += written.costs[id.index()];
            continue;
        }
        let counterpart = decisions.counterparts[id.index()];
        let kind = match (decisions.by_node[id.index()], counterpart, tree.node(id).kind) {
            (_, _, Kind::Directory(_)) if kept[id.index()].is_none() => ChangeKind::Directory,
            (_, _, Kind::Directory(_)) => continue,
            (ReuseDecision::KeepInode(nid), _, _) if counterpart == Some(nid) => continue,
            (ReuseDecision::KeepInode(_) | ReuseDecision::SameContent(_), None, _) => {
                ChangeKind::Moved
            }
            (ReuseDecision::SameContent(_), Some(_), _) => ChangeKind::Attributes,
            (ReuseDecision::ChangedContent(_) | ReuseDecision::KeepInode(_), Some(_), _) => {
                ChangeKind::Content
            }
            (ReuseDecision::New | ReuseDecision::ChangedContent(_), _, _) => ChangeKind::Added,
        };
        let bytes = written.costs[id.index()] + costs[id.index()];
        changes.push(Change { kind, path: tree.path_bytes(id), bytes });
    }
    for id in tree.ids() {
        let (Kind::Directory(dir), Some(nid)) =
            (tree.node(id).kind, decisions.counterparts[id.index()])
        else {
            continue;
        };
        let inode = old.inode(nid)?;
        if !inode.is_dir() {
            continue;
        }
        let entries = tree.entries_of(dir);
        for entry in old.read_dir(&inode)? {
            let name = entry?.name;
            let exists = entries.binary_search_by(|entry| tree.text(entry.name).cmp(&name)).is_ok();
            if !exists && name != b"." && name != b".." {
                let path = crate::paths::join(&tree.path_bytes(id), &name);
                changes.push(Change { kind: ChangeKind::Removed, path, bytes: 0 });
            }
        }
    }
    changes.sort_by(|a: &Change, b| {
        let is_removed = |change: &Change| change.kind == ChangeKind::Removed;
        is_removed(a).cmp(&is_removed(b)).then_with(|| a.path.cmp(&b.path))
    });
    Ok((changes, new_parents))
}
