//! Keeps the digests of files as attributes (`--inode-digests`) right: new inodes get new ones, and old inodes that stay keep theirs.

use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::digest;
use crate::tree::{Kind, Tree};
use ferofs_read::Image;

use super::compare::visible_digest_name;
use super::files::{ReuseDecision, ReuseDecisions};
use crate::error::Result;

/// Gives the regular files of `tree` the digests that they will have in the image, if `old` has any.
pub(crate) fn update(
    tree: &mut Tree,
    decisions: &ReuseDecisions,
    old: &Image,
    options: &Options,
    contents: &Contents,
) -> Result<()> {
    let Some(name) = digest::name_in(old) else { return Ok(()) };
    let visible = visible_digest_name(old);
    let mut new = Vec::new();
    for id in tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. })).collect::<Vec<_>>()
    {
        let ReuseDecision::KeepInode(nid) = decisions.by_node[id.index()] else {
            new.push(id);
            continue;
        };
        // The new image is compared with the tree later, without attributes that listings do not show.
        let Some(visible) = &visible else { continue };
        let stored = old.xattrs(&old.inode(nid)?)?.into_iter().find(|xattr| xattr.name == *visible);
        let set = tree.node(id).xattrs;
        let stored = stored.as_ref().map(|stored| stored.value.as_slice());
        tree.nodes[id.index()].xattrs =
            tree.xattrs.replace(set, visible, stored).map_err(|e| e.of(contents.path(tree, id)))?;
    }
    digest::add_digests(tree, new, name, options, contents)
}
