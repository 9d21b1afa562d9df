//! Finds large directories that changed a little: they keep their old blocks, and only changed ones are written. Source: FORMAT.md 3, 5.

use std::ops::Range;

use ferofs_format::Nid;
use ferofs_format::dirent::{ChunkedDir, Dirent};
use ferofs_format::inode::Place;

use crate::error::Result;
use crate::patch::format::prediction::in_old_blocks as all_in_old_blocks;
use ferofs_build::tree::{NodeId, Tree};
use ferofs_read::{Image, Inode};

/// Old directories with fewer blocks are written as a whole: a chunk table would save little.
const LARGE: u64 = 4;

/// Lays out directory `id` in the blocks of the old directory `inode`; `None` when too few of these can stay. `kept` gives the
/// nid of a node that keeps its old inode.
pub(crate) fn in_old_blocks(
    old: &Image,
    inode: &Inode,
    tree: &Tree,
    id: NodeId,
    kept: impl Fn(NodeId) -> Option<Nid>,
) -> Result<Option<ChunkedDir>> {
    let is_plain = matches!(inode.on_disk().place, Place::Blocks(_) | Place::Chunked { .. });
    if !inode.is_dir() || !is_plain || inode.size() < LARGE * old.superblock().block_size.bytes64() {
        return Ok(None);
    }
    let nids: Vec<_> = tree.names(id, true).map(|(_, node)| kept(node)).collect();
    let names = tree.names(id, true).zip(&nids);
    let dirents: Vec<Dirent<'_>> =
        names.map(|((name, node), nid)| tree.dirent(name, node, nid.unwrap_or_default())).collect();
    // The number of a new inode is not known yet: a block that names one is new.
    let is_known = |entries: Range<usize>| nids[entries].iter().all(Option::is_some);
    let dir = all_in_old_blocks(old, inode, &dirents, is_known)?;
    Ok(dir.filter(|dir| dir.kept() as u64 >= LARGE / 2))
}
