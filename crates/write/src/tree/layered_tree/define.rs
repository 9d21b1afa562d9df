//! Applies [`Definition`]s, or a directory's tree as a layer, to a [`LayeredTree`].

use std::path::PathBuf;
use std::rc::Rc;

use ferofs_format::inode::Timestamp;
use ferofs_format::xattr::acl;

use crate::options::source::definition::{Change, DefinedBody, Definition, Owner};
use crate::paths::join;
use crate::tree::layered_tree::{Body, EntryFault, FileId, LayeredFile, LayeredTree};
use crate::tree::{Kind, Node, NodeId, Origin, Tree};

impl LayeredTree {
    /// Applies one definition. A new file without a time of its own gets `time`; with `all_time`,
    /// each gets that.
    pub(crate) fn define(
        &mut self,
        definition: &Definition,
        time: Timestamp,
        all_time: Option<Timestamp>,
    ) -> Result<(), EntryFault> {
        let Definition { path, change } = definition;
        let mtime = |owner: &Owner, otherwise| {
            all_time.unwrap_or_else(|| {
                owner.mtime.map_or(otherwise, |secs| Timestamp { secs, nanos: 0 })
            })
        };
        match change {
            Change::Put { body, owner } => {
                let body = match body {
                    DefinedBody::Directory => Body::Directory(Box::default()),
                    DefinedBody::Symlink(target) => Body::Symlink(target.clone().into()),
                    DefinedBody::Device(kind, device) => Body::Device(*kind, *device),
                    DefinedBody::Fifo => Body::Fifo,
                    DefinedBody::Socket => Body::Socket,
                };
                let existing = self.file_at(path)?;
                if !matches!(body, Body::Directory(_))
                    && existing.is_some_and(|file| self.has_names(file))
                {
                    return Err(EntryFault::DirectoryNotEmpty);
                }
                let Owner { permissions, uid, gid, .. } = *owner;
                // A directory that exists keeps its attributes as it keeps its entries.
                let kept = existing.filter(|file| self.names(*file).is_some());
                let xattrs = match kept {
                    Some(file) => Rc::clone(&self.files[file.index()].xattrs),
                    None => self.attributes(Vec::new()),
                };
                let mtime = mtime(owner, time).into();
                self.put(
                    path,
                    LayeredFile {
                        body,
                        permissions,
                        uid,
                        gid,
                        mtime,
                        xattrs,
                        ignores_options: true,
                    },
                )
            }
            Change::Modify(owner) => {
                let file = self.defined_file(path)?;
                let file = &mut self.files[file.index()];
                file.mtime = mtime(owner, file.mtime.into()).into();
                (file.permissions, file.uid, file.gid) = (owner.permissions, owner.uid, owner.gid);
                file.ignores_options = true;
                Ok(())
            }
            Change::Link { target } => self.link(path, target),
            Change::Xattr { name, value } => {
                if acl::is_malformed(name, value) {
                    return Err(EntryFault::Acl);
                }
                let file = self.defined_file(path)?;
                let mut set = (*self.files[file.index()].xattrs).clone();
                set.retain(|(known, _)| known != name);
                set.push((name.clone(), value.clone()));
                self.files[file.index()].xattrs = self.attributes(set);
                Ok(())
            }
        }
    }

    fn has_names(&self, file: FileId) -> bool {
        self.names(file).is_some_and(|names| !names.is_empty())
    }

    /// The file at `path`, which must exist.
    fn defined_file(&mut self, path: &[u8]) -> Result<FileId, EntryFault> {
        self.file_at(path)?.ok_or(EntryFault::Missing)
    }
}

impl LayeredTree {
    /// Adds all files of `tree` to the current layer, below the directory `top`, which is empty for
    /// the root. `origin` gives the origin of a node, whose own origin it gets. On failure, returns
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
                        let layered_file =
                            self.layered_file(tree, node, origin(entry.node, node.origin));
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
