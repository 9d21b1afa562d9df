//! The list of files that a patch changes, and what each adds to the image.

use std::collections::HashSet;

use crate::tree::{Kind, NodeId};
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Image, Location};

use super::context::{CreateContext, Inputs};
use super::decide::files::{ReuseDecision, ReuseDecisions};
use super::metadata::WrittenMetadata;
use crate::error::Result;
use ferofs_patch::format::change::{Change, ChangeKind, NewParents};

/// Appended bytes of each node's content in the new `image`. Bytes that several files share count for the first.
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
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } => (at, encoded_len),
                _ => continue,
            };
            if at.get() >= start && seen.insert(at) {
                costs[id.index()] += len;
            }
        }
    }
    Ok(costs)
}

/// The changes by path, then the removed files; and the directories `with_new_parent`, in which only `..` changes. `costs` are those of
/// [`content_costs`].
pub(crate) fn list(
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
            (ReuseDecision::KeepInode(_) | ReuseDecision::SameContent(_), None, _) => ChangeKind::Moved,
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
        let (Kind::Directory(dir), Some(nid)) = (tree.node(id).kind, decisions.counterparts[id.index()])
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
