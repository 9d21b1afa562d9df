//! Which directories stay where they are, whole or in part.

use std::collections::{HashMap, HashSet};

use ferofs_format::{Incompat, Nid};

use super::super::dirs::{self, BlockDir};
use super::super::fate::{Fate, Fates, Pair};
use super::super::root::RootPlace;
use super::Maker;
use crate::Result;
use ferofs_build::tree::{Kind, NodeId};

/// What is decided of directories.
pub(super) struct Directories {
    pub(super) kept: Vec<Option<Nid>>,
    /// The old directory that one resembles.
    pub(super) like: HashMap<NodeId, Nid>,
}

impl Maker<'_> {
    /// Decides which directories stay: those whose entries do, in order from the leaves.
    pub(super) fn directories(&self, fates: &Fates) -> Result<Directories> {
        let Pair { old, survey, tree, .. } = self.pair;
        let mut kept: Vec<Option<Nid>> = fates
            .fates
            .iter()
            .map(|fate| match fate {
                Fate::Keep(nid) => Some(*nid),
                _ => None,
            })
            .collect();
        let mut parents: HashMap<Nid, Nid> = HashMap::new();
        let mut like: HashMap<NodeId, Nid> = HashMap::new();
        let mut taken: HashSet<Nid> = HashSet::new();
        for id in tree.ids().rev() {
            let Kind::Directory(dir) = tree.node(id).kind else { continue };
            let entries = tree.entries_of(dir);
            let mut counterpart = fates.counterparts[id.index()];
            if counterpart.is_none() {
                // One that was moved or renamed is where its files are.
                if parents.is_empty() {
                    parents = survey.files.iter().map(|file| (file.nid, file.parent)).collect();
                }
                let inside = entries.iter().find_map(|entry| kept[entry.node.index()]);
                counterpart = inside.and_then(|nid| parents.get(&nid)).copied();
            }
            let Some(nid) = counterpart else { continue };
            let inode = old.inode(nid)?;
            if !inode.is_dir() {
                continue;
            }
            like.insert(id, nid);
            let mut expected = HashMap::new();
            for entry in old.read_dir(&inode)? {
                let entry = entry?;
                expected.insert(entry.name, entry.nid);
            }
            let stays = |entry: &ferofs_build::tree::Entry| {
                kept[entry.node.index()].is_some_and(|nid| expected.get(tree.text(entry.name)) == Some(&nid))
            };
            let dots = usize::from(expected.contains_key(b".".as_slice()))
                + usize::from(expected.contains_key(b"..".as_slice()));
            let same = expected.len() == entries.len() + dots
                && entries.iter().all(stays)
                && self.pair.likeness(id, &inode)?.same_attributes;
            if same && taken.insert(nid) {
                kept[id.index()] = Some(nid);
            }
        }
        // What points up to a directory that moved must be written anew, and the root moves in any case.
        if !self.options.loose_parents && kept[NodeId::ROOT.index()].is_none() {
            for id in tree.ids() {
                if matches!(tree.node(id).kind, Kind::Directory(_)) {
                    kept[id.index()] = None;
                }
            }
        }
        Ok(Directories { kept, like })
    }

    /// Large directories that keep most of their blocks.
    pub(super) fn block_dirs(
        &self,
        kept: &[Option<Nid>],
        like: &HashMap<NodeId, Nid>,
        root: RootPlace,
    ) -> Result<Vec<(NodeId, BlockDir)>> {
        let Pair { old, tree, .. } = self.pair;
        let mut found = Vec::new();
        if !self.allowed.contains(Incompat::CHUNKED_FILE) {
            return Ok(found);
        }
        for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
            let in_slots = id == NodeId::ROOT && root != RootPlace::Anywhere;
            let Some(nid) = like.get(&id).filter(|_| !in_slots) else { continue };
            let inode = old.inode(*nid)?;
            let dir = dirs::on_old_blocks(old, &inode, tree, id, |node| kept[node.index()])?;
            found.extend(dir.map(|dir| (id, dir)));
        }
        Ok(found)
    }
}
