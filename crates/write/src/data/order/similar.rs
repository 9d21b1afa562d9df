//! The order by similarity: several versions of one tree are walked at the same time, so that the
//! versions of each file are adjacent, and one cluster can refer from one version to the next.
//!
//! Versions are found by names alone, so that no content is read twice. Sibling directories
//! resemble each other if at least half of the names below them are the same; MinHash estimates
//! that. They form a group, and so do their subdirectories of the same name. Within a group all
//! files of one name are adjacent, in the order of the directories that they are in. The walk is
//! otherwise that of a program that reads the tree.

use std::collections::{BTreeMap, HashMap};

use crate::tree::{Kind, NodeId, Tree};

/// Minima of a signature. The estimate of the part of equal names has a standard deviation of at
/// most 1/8 with 16 of them, which is enough to tell versions of a tree from other trees. A
/// signature takes 64 bytes for each directory.
const MINIMA: usize = 16;

/// Equal minima from which two directories resemble each other: half of the names are the same.
const RESEMBLING: usize = MINIMA / 2;

/// For each of some hash functions, the least hash of all names below a directory.
type Signature = [u32; MINIMA];

/// The order of a tree, and what it is good for.
pub(super) struct SimilarOrder {
    pub(super) nodes: Vec<NodeId>,
    /// Bytes of files next to which a file of the same name from another directory comes.
    pub(super) bytes_with_versions: u64,
    /// Bytes of all files.
    pub(super) bytes: u64,
}

/// The next step of the walk.
enum Visit {
    /// Directories of one group.
    Group(Vec<NodeId>),
    /// Files and other nodes of one name.
    Named(Vec<NodeId>),
}

/// Walks the groups of directories of `tree`.
pub(super) fn order(tree: &Tree) -> SimilarOrder {
    let signatures = signatures(tree);
    let mut visited = vec![false; tree.nodes.len()];
    let mut nodes = Vec::new();
    nodes.reserve_exact(tree.nodes.len());
    let mut order = SimilarOrder { nodes, bytes_with_versions: 0, bytes: 0 };
    let mut open = vec![Visit::Group(vec![NodeId::ROOT])];
    while let Some(visit) = open.pop() {
        match visit {
            Visit::Named(nodes) => {
                let new = nodes
                    .into_iter()
                    .filter(|id| !std::mem::replace(&mut visited[id.index()], true));
                order.add(tree, new.collect());
            }
            Visit::Group(directories) => {
                visits_of(tree, &signatures, &directories, &mut open);
                for id in &directories {
                    visited[id.index()] = true;
                }
                order.nodes.extend_from_slice(&directories);
            }
        }
    }
    order
}

impl SimilarOrder {
    /// Adds nodes of one name.
    fn add(&mut self, tree: &Tree, nodes: Vec<NodeId>) {
        let sizes = nodes
            .iter()
            .map(|id| tree.node(*id))
            .filter(|node| matches!(node.kind, Kind::Regular { .. }));
        let bytes: u64 = sizes.map(|node| node.size).sum();
        self.bytes += bytes;
        if nodes.len() > 1 {
            self.bytes_with_versions += bytes;
        }
        self.nodes.extend_from_slice(&nodes);
    }
}

/// Adds the entries of a group of directories to `open`, the first one last.
fn visits_of(
    tree: &Tree,
    signatures: &HashMap<NodeId, Signature>,
    directories: &[NodeId],
    open: &mut Vec<Visit>,
) {
    let mut by_name: BTreeMap<&[u8], (Vec<NodeId>, Vec<NodeId>)> = BTreeMap::new();
    for directory in directories {
        let Kind::Directory(dir) = tree.node(*directory).kind else { continue };
        for entry in tree.entries_of(dir) {
            let (subdirectories, others) = by_name.entry(tree.text(entry.name)).or_default();
            match tree.node(entry.node).kind {
                Kind::Directory(_) => subdirectories.push(entry.node),
                _ => others.push(entry.node),
            }
        }
    }
    let mut visits = Vec::with_capacity(by_name.len());
    // By hash function and minimum, the first group with it.
    let mut groups: HashMap<(usize, u32), usize> = HashMap::new();
    for (subdirectories, others) in by_name.into_values() {
        if !others.is_empty() {
            visits.push(Visit::Named(others));
        }
        let Some(signature) = subdirectories.first().and_then(|first| signatures.get(first)) else {
            continue;
        };
        let resembling = resembling_group(signature, &groups);
        if let Some(Visit::Group(group)) = resembling.and_then(|place| visits.get_mut(place)) {
            group.extend(subdirectories);
            continue;
        }
        for (number, minimum) in signature.iter().enumerate() {
            groups.entry((number, *minimum)).or_insert(visits.len());
        }
        visits.push(Visit::Group(subdirectories));
    }
    open.extend(visits.into_iter().rev());
}

/// The place of the first of the groups that resemble a directory of this signature most.
fn resembling_group(signature: &Signature, groups: &HashMap<(usize, u32), usize>) -> Option<usize> {
    // An empty directory resembles nothing.
    if signature == &[u32::MAX; MINIMA] {
        return None;
    }
    let mut equal: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, minimum) in signature.iter().enumerate() {
        if let Some(place) = groups.get(&(number, *minimum)) {
            *equal.entry(*place).or_default() += 1;
        }
    }
    let (place, most) = equal.into_iter().rev().max_by_key(|(_, count)| *count)?;
    (most >= RESEMBLING).then_some(place)
}

/// The signatures of all directories.
fn signatures(tree: &Tree) -> HashMap<NodeId, Signature> {
    let mut signatures: HashMap<NodeId, Signature> = HashMap::new();
    // The number of a directory is lower than the numbers of its entries.
    for id in tree.ids().rev() {
        let Kind::Directory(dir) = tree.node(id).kind else { continue };
        let mut signature = [u32::MAX; MINIMA];
        for entry in tree.entries_of(dir) {
            add_name(&mut signature, tree.text(entry.name));
            if let Some(below) = signatures.get(&entry.node) {
                for (minimum, other) in signature.iter_mut().zip(below) {
                    *minimum = (*minimum).min(*other);
                }
            }
        }
        signatures.insert(id, signature);
    }
    signatures
}

fn add_name(signature: &mut Signature, name: &[u8]) {
    let hash = hash(name);
    for (number, minimum) in (1..).zip(signature) {
        *minimum = (*minimum).min(mix(hash.wrapping_mul(2 * number + 1).wrapping_add(number)));
    }
}

/// FNV-1a: the same in each build, because the image depends on it. An attacker who finds names
/// with equal hashes can only make the order worse.
fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Mixes all bits of `hash` into 32 (the finalizer of SplitMix64).
const fn mix(hash: u64) -> u32 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(names: &[&str]) -> Signature {
        let mut signature = [u32::MAX; MINIMA];
        names.iter().for_each(|name| add_name(&mut signature, name.as_bytes()));
        signature
    }

    #[test]
    fn directories_with_mostly_the_same_names_resemble_each_other() {
        let names: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut groups = HashMap::new();
        for (number, minimum) in signature(&names[..80]).iter().enumerate() {
            groups.insert((number, *minimum), 7);
        }
        assert_eq!(resembling_group(&signature(&names[5..85]), &groups), Some(7));
        assert_eq!(resembling_group(&signature(&names[75..]), &groups), None);
        assert_eq!(resembling_group(&signature(&[]), &groups), None);
    }
}
