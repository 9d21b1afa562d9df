//! Decides which directories keep their old inode, and which large ones keep most of their blocks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::tree::{Entry, Kind, NodeId, Tree};
use ferofs_format::Nid;
use ferofs_format::dirent::{ChunkedDir, Dirent};
use ferofs_format::inode::Place;
use ferofs_read::{Image, Inode};

use super::{ReuseDecision, ReuseDecisions, compare};
use crate::error::Result;
use crate::incremental::create::context::Inputs;
use crate::incremental::create::metadata::root::RootPlace;
use ferofs_update::format::prediction;

/// Old directories with fewer blocks are written as a whole: a chunk table would save little.
const LARGE: u64 = 4;

/// The decisions for all nodes, directories included.
pub(crate) struct Directories {
    /// The old inode that stays, by node.
    pub(crate) kept: Vec<Option<Nid>>,
    /// The old directory that a new one resembles.
    pub(crate) old_dirs: HashMap<NodeId, Nid>,
    /// Directories that get a new inode only because `..` changes.
    pub(crate) with_new_parent: HashSet<NodeId>,
}

/// Decides which directories keep their inode: those with the same attributes whose entries all
/// keep theirs. Works from the leaves to the root. `loose_parents` allows a `..` that names the
/// parent's old inode.
pub(crate) fn decide(
    inputs: Inputs<'_>,
    decisions: &ReuseDecisions,
    loose_parents: bool,
) -> Result<Directories> {
    let Inputs { old, tree, .. } = inputs;
    let mut kept: Vec<Option<Nid>> = decisions
        .by_node
        .iter()
        .map(|decision| match decision {
            ReuseDecision::KeepInode(nid) => Some(*nid),
            _ => None,
        })
        .collect();
    let mut old_dirs: HashMap<NodeId, Nid> = HashMap::new();
    let mut taken: HashSet<Nid> = HashSet::new();
    for id in tree.ids().rev() {
        let Kind::Directory(dir) = tree.node(id).kind else { continue };
        let entries = tree.entries_of(dir);
        let Some(nid) = decisions.counterparts[id.index()] else { continue };
        let inode = old.inode(nid)?;
        if !inode.is_dir() {
            continue;
        }
        old_dirs.insert(id, nid);
        let mut expected = HashMap::new();
        for entry in old.read_dir(&inode)? {
            let entry = entry?;
            expected.insert(entry.name, entry.nid);
        }
        let stays = |entry: &Entry| {
            kept[entry.node.index()]
                .is_some_and(|nid| expected.get(tree.text(entry.name)) == Some(&nid))
        };
        let dots = usize::from(expected.contains_key(b".".as_slice()))
            + usize::from(expected.contains_key(b"..".as_slice()));
        let same = expected.len() == entries.len() + dots
            && entries.iter().all(stays)
            && compare::compare_attributes(inputs, id, &inode)?.same_attributes;
        if same && taken.insert(nid) {
            kept[id.index()] = Some(nid);
        }
    }
    let mut with_new_parent = HashSet::new();
    // The root gets a new inode, so its subdirectories need a new `..`, and theirs, too.
    if !loose_parents && kept[NodeId::ROOT.index()].is_none() {
        for id in tree.ids() {
            if matches!(tree.node(id).kind, Kind::Directory(_)) && kept[id.index()].take().is_some()
            {
                with_new_parent.insert(id);
            }
        }
    }
    Ok(Directories { kept, old_dirs, with_new_parent })
}

/// Lays out large directories that changed a little so that most of their old blocks stay. Sorted
/// by node.
pub(crate) fn in_old_blocks(
    inputs: Inputs<'_>,
    kept: &[Option<Nid>],
    old_dirs: &HashMap<NodeId, Nid>,
    root: RootPlace,
) -> Result<Vec<(NodeId, ChunkedDir)>> {
    let Inputs { old, tree, .. } = inputs;
    let mut found = Vec::new();
    // The addresses in such a directory have 32 bits.
    if old.superblock().blocks >= 1 << 31 {
        return Ok(found);
    }
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        // A root in a fixed number of slots has no space for a table of blocks.
        let in_slots = id == NodeId::ROOT && root != RootPlace::Anywhere;
        let Some(nid) = old_dirs.get(&id).filter(|_| !in_slots) else { continue };
        let inode = old.inode(*nid)?;
        let dir = in_blocks_of(old, &inode, tree, id, |node| kept[node.index()])?;
        found.extend(dir.map(|dir| (id, dir)));
    }
    Ok(found)
}

/// Lays out directory `id` in the blocks of the old directory `inode`; `None` when too few of these
/// can stay. `kept` gives the nid of a node that keeps its old inode.
fn in_blocks_of(
    old: &Image,
    inode: &Inode,
    tree: &Tree,
    id: NodeId,
    kept: impl Fn(NodeId) -> Option<Nid>,
) -> Result<Option<ChunkedDir>> {
    let is_plain = matches!(inode.on_disk().place, Place::Blocks(_) | Place::Chunked { .. });
    if !inode.is_dir() || !is_plain || inode.size() < LARGE * old.superblock().block_size.bytes64()
    {
        return Ok(None);
    }
    let nids: Vec<_> = tree.names(id, true).map(|(_, node)| kept(node)).collect();
    let names = tree.names(id, true).zip(&nids);
    let dirents: Vec<Dirent<'_>> =
        names.map(|((name, node), nid)| tree.dirent(name, node, nid.unwrap_or_default())).collect();
    // The number of a new inode is not known yet: a block that names one is new.
    let is_known = |entries: Range<usize>| nids[entries].iter().all(Option::is_some);
    let dir = prediction::in_old_blocks(old, inode, &dirents, is_known)?;
    Ok(dir.filter(|dir| dir.kept() as u64 >= LARGE / 2))
}
