//! Turns a [`LayeredTree`] into a [`Tree`]: numbers the remaining files as reading a directory
//! does.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use super::whiteouts::{OPAQUE, ORIGIN};
use super::{Body, FileId, LayeredTree, Link};
use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::options::source::SourceOptions;
use crate::paths::{as_path, join};
use crate::tree::compact::CompactTime;
use crate::tree::xattr::{Attributes, encode_set};
use crate::tree::{Entry, Kind, Node, NodeId, Origin, Text, Tree};

impl LayeredTree {
    /// Numbers the remaining files breadth-first, in the order of names.
    pub(crate) fn finish(mut self, options: &Options, warnings: &mut Vec<Warning>) -> Result<Tree> {
        let mut tree = Tree::with_texts(self.texts.take_arena());
        let mut numbers: HashMap<FileId, NodeId> = HashMap::new();
        let mut queue = VecDeque::from([(NodeId::ROOT, FileId::ROOT)]);
        self.number(options, &mut tree, Text::default(), FileId::ROOT, NodeId::ROOT, warnings)?;
        while let Some((dir, file)) = queue.pop_front() {
            let names =
                self.names_mut(file).map(|(names, _)| std::mem::take(names)).unwrap_or_default();
            let mut links = names.into_links();
            // Archives are often in order, which this sort uses.
            links.sort_by(|a, b| tree.text(a.name).cmp(tree.text(b.name)));
            let path = tree.path_bytes(dir);
            let first = tree.entries.len();
            for Link { name, file, .. } in links {
                let layered_file = &self.files[file.index()];
                let SourceOptions { overlay_whiteouts, strip_overlay, .. } = options.source;
                if overlay_whiteouts && strip_overlay && layered_file.is_whiteout() {
                    continue;
                }
                if !layered_file.ignores_options
                    && options.is_excluded(&join(&path, tree.text(name)), || layered_file.is_dir())
                {
                    continue;
                }
                if let Some(&node) = numbers.get(&file) {
                    tree.nodes[node.index()].nlink += 1;
                    tree.entries.push(Entry { name, node });
                    continue;
                }
                let is_dir = matches!(layered_file.body, Body::Directory(_));
                let one_name = options.source.hard_dereference && !layered_file.ignores_options;
                let node = self.number(options, &mut tree, name, file, dir, warnings)?;
                if !one_name && self.linked.contains(&file) {
                    numbers.insert(file, node);
                }
                if is_dir {
                    tree.nodes[dir.index()].nlink += 1;
                    queue.push_back((node, file));
                }
                tree.entries.push(Entry { name, node });
            }
            tree.end_directory(dir, first);
        }
        Ok(tree)
    }

    fn number(
        &self,
        options: &Options,
        tree: &mut Tree,
        name: Text,
        file: FileId,
        parent: NodeId,
        warnings: &mut Vec<Warning>,
    ) -> Result<NodeId> {
        let layered_file = &self.files[file.index()];
        // This cannot truncate: the tree has at most as many nodes as the layers have files, and
        // their ids have 32 bits.
        let id = NodeId(tree.nodes.len() as u32);
        let (mut size, mut origin) = (0, Origin::None);
        let kind = match &layered_file.body {
            Body::Regular { size: bytes, origin: from, sparse } => {
                (size, origin) = (*bytes, *from);
                Kind::Regular { sparse: *sparse }
            }
            Body::Directory(_) => tree.new_directory(),
            Body::Symlink(target) => Kind::Symlink(tree.intern(target)),
            Body::Device(kind, rdev) => Kind::Device(*kind, *rdev),
            Body::Fifo => Kind::Fifo,
            Body::Socket => Kind::Socket,
        };
        let path = || PathBuf::from(as_path(&join(&tree.path_bytes(parent), tree.text(name))));
        let keeps = options.xattrs.keep || layered_file.ignores_options;
        let set = if keeps {
            encode(options, &layered_file.xattrs, layered_file.ignores_options, path, warnings)?
        } else {
            Vec::new()
        };
        let (uid, gid, mtime) = match layered_file.ignores_options {
            true => (layered_file.uid, layered_file.gid, layered_file.mtime),
            false => {
                let owner = options.attributes.owner(layered_file.uid, layered_file.gid);
                let of_file =
                    |fault| Error::Entry { path: options.source.path.join(path()), fault };
                let (uid, gid) = owner.map_err(of_file)?;
                (
                    uid,
                    gid,
                    options.attributes.all_time.map_or(layered_file.mtime, CompactTime::from),
                )
            }
        };
        let xattrs = tree.xattrs.intern(&set);
        tree.nodes.push(Node {
            kind,
            permissions: layered_file.permissions,
            uid,
            gid,
            nlink: if matches!(kind, Kind::Directory(_)) { 2 } else { 1 },
            mtime,
            xattrs,
            size,
            origin,
            parent,
            name,
        });
        Ok(id)
    }
}

/// Encodes the attributes that EROFS can hold, and adds a warning for each other one.
fn encode(
    options: &Options,
    attributes: &Attributes,
    ignores_options: bool,
    path: impl Fn() -> PathBuf,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<u8>> {
    use ferofs_format::xattr::NamePrefix;
    if attributes.is_empty() {
        return Ok(Vec::new());
    }
    let mut kept = attributes.clone();
    if options.source.strip_overlay {
        kept.retain(|(name, _)| name != OPAQUE && name != ORIGIN);
    }
    if !ignores_options {
        let changed = options.attributes.change_acls(&mut kept);
        changed.map_err(|fault| Error::Entry { path: options.source.path.join(path()), fault })?;
    }
    for (name, _) in kept.iter().filter(|(name, _)| NamePrefix::split(name).is_none()) {
        let name = ferofs_read::escape::Escaped(name).to_string();
        warnings.push(Warning::UnsupportedXattr { path: path(), name });
    }
    encode_set(kept).map_err(|too_large| too_large.of(path()))
}
