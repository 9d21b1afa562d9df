//! What a patch says of each file that it changes, and what each costs.

use std::collections::HashSet;

use ferofs_format::{FileOffset, Nid};

use super::super::fate::{Fate, Fates, Pair};
use super::super::file::{Change, ChangeKind};
use super::super::metadata::Written;
use super::{Maker, Region};
use crate::Result;
use ferofs_build::tree::Kind;
use ferofs_read::{ExtentData, Image, Location};

impl Maker<'_> {
    /// Bytes that were appended for the content of each node; what several have in common counts for the first.
    pub(super) fn content_costs(
        &self,
        region: &mut Region,
        kept: &[Option<Nid>],
        written: &Written,
    ) -> Result<Vec<u64>> {
        let (tree, start) = (self.pair.tree, self.front.size());
        let image = Image::open(self.result(region)?)?;
        let mut seen = HashSet::new();
        let mut costs = vec![0; tree.nodes.len()];
        for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
            if !matches!(tree.node(id).kind, Kind::Regular { .. }) {
                continue;
            }
            let inode = image.inode(written.nids[id.index()])?;
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

    /// What a person wants to know of each file.
    pub(super) fn changes(
        &self,
        fates: &Fates,
        kept: &[Option<Nid>],
        written: &Written,
        costs: &[u64],
    ) -> Result<Vec<Change>> {
        let Pair { old, tree, .. } = self.pair;
        let mut changes = Vec::new();
        for id in tree.ids() {
            let kind = match (fates.fates[id.index()], fates.counterparts[id.index()], tree.node(id).kind) {
                (_, _, Kind::Directory(_)) if kept[id.index()].is_none() => ChangeKind::Directory,
                (_, _, Kind::Directory(_)) => continue,
                (Fate::Keep(nid), there, _) if there == Some(nid) => continue,
                (Fate::Keep(_) | Fate::Same(_), None, _) => ChangeKind::Moved,
                (Fate::Same(_), Some(_), _) => ChangeKind::Attributes,
                (Fate::From(_) | Fate::Keep(_), Some(_), _) => ChangeKind::Content,
                (Fate::New | Fate::From(_), _, _) => ChangeKind::Added,
            };
            let bytes = written.costs[id.index()] + costs[id.index()];
            changes.push(Change { kind, path: tree.path_bytes(id), bytes });
        }
        for id in tree.ids() {
            let (Kind::Directory(dir), Some(nid)) = (tree.node(id).kind, fates.counterparts[id.index()])
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
                let there = entries.binary_search_by(|entry| tree.text(entry.name).cmp(&name)).is_ok();
                if !there && name != b"." && name != b".." {
                    let path = ferofs_build::paths::join(&tree.path_bytes(id), &name);
                    changes.push(Change { kind: ChangeKind::Removed, path, bytes: 0 });
                }
            }
        }
        Ok(changes)
    }
}
