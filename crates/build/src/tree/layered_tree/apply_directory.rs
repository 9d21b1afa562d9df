//! Applies a directory's tree as a layer of a [`LayeredTree`].

use std::path::PathBuf;

use super::{Body, EntryFault, LayeredFile, LayeredTree};
use crate::paths::join;
use crate::tree::origin::Origin;
use crate::tree::{Kind, Node, NodeId, Tree};

impl LayeredTree {
    /// Adds all files of `tree` to the current layer, below the directory `top`, which is empty for the root. `origin` gives the origin of a node, whose own origin it gets. On failure, returns
    /// the path and the reason.
    pub(crate) fn apply_directory(
        &mut self,
        top: &[u8],
        tree: &Tree,
        origin: impl Fn(NodeId, Origin) -> Origin,
    ) -> Result<(), (PathBuf, EntryFault)> {
        // The first path of each file that was added, for hard links.
        let mut firsts: Vec<Option<Vec<u8>>> = vec![None; tree.nodes.len()];
        let wrong = |id, fault| (tree.path(id), fault);
        let root = self.layered_file(tree, tree.node(NodeId::ROOT), Origin::None);
        self.put(top, root).map_err(|fault| wrong(NodeId::ROOT, fault))?;
        // The number of a directory is lower than the numbers of its entries.
        for id in tree.ids() {
            let Kind::Directory(dir) = tree.node(id).kind else { continue };
            let base = match id {
                NodeId::ROOT => top.to_vec(),
                _ => join(top, &tree.path_bytes(id)),
            };
            for entry in tree.entries_of(dir) {
                let path = join(&base, tree.text(entry.name));
                let first = &mut firsts[entry.node.index()];
                let put = match first {
                    Some(first) => self.link(&path, first),
                    None => {
                        let node = tree.node(entry.node);
                        let layered_file = self.layered_file(tree, node, origin(entry.node, node.origin));
                        let put = self.put(&path, layered_file);
                        *first = Some(path);
                        put
                    }
                };
                put.map_err(|fault| wrong(entry.node, fault))?;
            }
        }
        Ok(())
    }

    fn layered_file(&mut self, tree: &Tree, node: &Node, origin: Origin) -> LayeredFile {
        let body = match node.kind {
            Kind::Regular { sparse } => Body::Regular { size: node.size, origin, sparse },
            Kind::Directory(_) => Body::Directory(Box::default()),
            Kind::Symlink(target) => Body::Symlink(tree.text(target).into()),
            Kind::Device(kind, rdev) => Body::Device(kind, rdev),
            Kind::Fifo => Body::Fifo,
            Kind::Socket => Body::Socket,
        };
        let xattrs = self.attributes(tree.xattrs.attributes(node.xattrs, &[]));
        let Node { permissions, uid, gid, mtime, .. } = *node;
        // Reading the directory has applied the options.
        LayeredFile { body, permissions, uid, gid, mtime, xattrs, ignores_options: true }
    }
}
