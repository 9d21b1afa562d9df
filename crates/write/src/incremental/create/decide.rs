//! Decides what the new tree reuses of the old image: files first, in this file, then the
//! directories above them ([`directories`]), and whether the metabox and the packed inode grow
//! ([`growth`]).
//!
//! A file is compared byte by byte with the old file of the same path. If there is none, or its
//! content differs, the file is looked up by digest among old files of the same size. An old inode
//! becomes at most one new inode: two would be hard links.
//!
//! Digests of files as attributes (`--inode-digests`) stay right: new inodes get new ones, and old
//! inodes that stay keep theirs.

mod compare;
pub(crate) mod directories;
pub(crate) mod growth;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use ferofs_format::Nid;
use ferofs_format::inode::FileType;
use ferofs_read::Image;

use crate::error::Result;
use crate::incremental::create::context::{Inputs, OldFile, name_hash};
use crate::incremental::create::decide::compare::visible_digest_name;
use crate::incremental::create::options::IgnoredAttributes;
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::digest;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Tree};

/// Old files with the same content among which one with the same attributes is searched. More are
/// rare, and comparing attributes reads their inodes.
const CANDIDATES_MAX: usize = 16;

/// The part of the old image that a new inode reuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReuseDecision {
    /// This old inode stays as it is.
    KeepInode(Nid),
    /// A new inode with the same content as this one.
    SameContent(Nid),
    /// A new inode whose content is a changed version of this one's.
    ChangedContent(Nid),
    /// Nothing.
    New,
}

/// The decisions for all nodes but directories, which [`directories`] decides afterwards.
#[derive(Debug)]
pub(crate) struct ReuseDecisions {
    pub(crate) by_node: Vec<ReuseDecision>,
    /// The old inode at each node's path.
    pub(crate) counterparts: Vec<Option<Nid>>,
    /// Old inodes that stay.
    pub(crate) kept: HashSet<Nid>,
}

impl ReuseDecisions {
    /// Compares the new tree with the old image.
    pub(crate) fn new(inputs: Inputs<'_>) -> Result<Self> {
        let count = inputs.tree.nodes.len();
        let counterparts = compare::counterparts(inputs)?;
        let mut decisions =
            Self { by_node: vec![ReuseDecision::New; count], counterparts, kept: HashSet::new() };
        let comparisons = compare::compare_attributes_of_all(inputs, &decisions.counterparts)?;
        let differ = compare::differences(inputs, &decisions.counterparts, &comparisons)?;
        let mut open = Vec::new();
        for node in inputs.tree.ids() {
            let (index, kind) = (node.index(), inputs.tree.node(node).kind);
            if matches!(kind, Kind::Directory(_)) {
                continue;
            }
            let Some(nid) = decisions.counterparts[index].filter(|_| comparisons[index].same_type)
            else {
                open.push(node);
                continue;
            };
            let same_content =
                comparisons[index].same_size && !differ[index].load(Ordering::Relaxed);
            decisions.by_node[index] = match (same_content, comparisons[index].same_attributes) {
                (true, true) if decisions.kept.insert(nid) => ReuseDecision::KeepInode(nid),
                (true, _) => ReuseDecision::SameContent(nid),
                (false, _) => {
                    open.push(node);
                    ReuseDecision::ChangedContent(nid)
                }
            };
        }
        decisions.look_up(inputs, &open)?;
        Ok(decisions)
    }

    /// Looks up the content of `open` nodes among all old files. No attribute is ignored: a file
    /// must not get the mode of one with another path.
    fn look_up(&mut self, inputs: Inputs<'_>, open: &[NodeId]) -> Result<()> {
        let inputs = Inputs { ignore: IgnoredAttributes::default(), ..inputs };
        let wanted: HashSet<(FileType, u64)> =
            open.iter().map(|node| compare::kind_and_size(inputs, *node)).collect();
        let size_of = |file: &OldFile| match file.file_type {
            FileType::Regular => (file.file_type, file.size),
            other => (other, 0),
        };
        let candidates: Vec<OldFile> = inputs
            .survey
            .files
            .iter()
            .filter(|file| wanted.contains(&size_of(file)))
            .copied()
            .collect();
        if candidates.is_empty() {
            return Ok(());
        }
        let available: HashSet<(FileType, u64)> = candidates.iter().map(size_of).collect();
        let open: Vec<NodeId> = open
            .iter()
            .filter(|node| available.contains(&compare::kind_and_size(inputs, **node)))
            .copied()
            .collect();
        let old = inputs.options.run.parallel(candidates.len(), Vec::new, |buffer, number| {
            compare::old_digest(inputs, &inputs.old.inode(candidates[number].nid)?, buffer)
        })?;
        let new = inputs.options.run.parallel(
            open.len(),
            || (Reader::new(inputs.contents, inputs.tree), Vec::new()),
            |(reader, buffer), number| compare::new_digest(inputs, open[number], reader, buffer),
        )?;
        let mut by_digest: HashMap<[u8; 32], Vec<OldFile>> = HashMap::new();
        for (digest, file) in old.into_iter().zip(candidates) {
            by_digest.entry(digest).or_default().push(file);
        }
        for (digest, node) in new.into_iter().zip(open) {
            let Some(equals) = by_digest.get(&digest) else { continue };
            let name = name_hash(inputs.tree.text(inputs.tree.node(node).name));
            let mut free: Vec<&OldFile> = equals
                .iter()
                .filter(|file| !self.kept.contains(&file.nid))
                .take(CANDIDATES_MAX)
                .collect();
            if let Some(named) =
                equals.iter().find(|file| file.names[1] == name && !self.kept.contains(&file.nid))
            {
                free.insert(0, named);
            }
            let mut found = None;
            for file in free {
                if compare::compare_attributes(inputs, node, &inputs.old.inode(file.nid)?)?
                    .same_attributes
                {
                    found = Some(file.nid);
                    break;
                }
            }
            self.by_node[node.index()] = match (found, equals.first()) {
                (Some(nid), _) => {
                    self.kept.insert(nid);
                    ReuseDecision::KeepInode(nid)
                }
                (None, Some(file)) => ReuseDecision::SameContent(file.nid),
                (None, None) => continue,
            };
        }
        Ok(())
    }
}

/// Gives the regular files of `tree` the digests that they will have in the image, if `old` has
/// any.
pub(crate) fn update_digests(
    tree: &mut Tree,
    decisions: &ReuseDecisions,
    old: &Image,
    options: &Options,
    contents: &Contents,
) -> Result<()> {
    let Some(name) = digest::name_in(old) else { return Ok(()) };
    let visible = visible_digest_name(old);
    let mut new = Vec::new();
    for id in tree
        .ids()
        .filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. }))
        .collect::<Vec<_>>()
    {
        let ReuseDecision::KeepInode(nid) = decisions.by_node[id.index()] else {
            new.push(id);
            continue;
        };
        // The new image is compared with the tree later, without attributes that listings do not
        // show.
        let Some(visible) = &visible else { continue };
        let stored = old.xattrs(&old.inode(nid)?)?.into_iter().find(|xattr| xattr.name == *visible);
        let set = tree.node(id).xattrs;
        let stored = stored.as_ref().map(|stored| stored.value.as_slice());
        tree.nodes[id.index()].xattrs =
            tree.xattrs.replace(set, visible, stored).map_err(|e| e.of(contents.path(tree, id)))?;
    }
    digest::add_digests(tree, new, name, options, contents)
}
