//! In which order content is laid out: what is read together stands together.
//!
//! Between [`crate::tree`], whose order inodes keep, and [`crate::data::schedule`]. What an access profile names comes first. Then, as
//! before among those, comes what programs read that go through the whole tree: they take a directory's entries by
//! name, and what is below a directory where it stands among them. Where there are fragments files of one name come together,
//! if they are near: they are often alike, as a program's messages in many languages are.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use ferofs_format::BlockSize;

use crate::options::compression::{Compression, Fragments};
use crate::options::data::Hot;
use crate::tree::{Kind, NodeId, Tree};
use ferofs_read::Profile;

/// Files are moved over so many bytes of fragments at most: half of what a reader of the whole tree keeps decoded of them,
/// see [`EngineOptions::packed_cache`](ferofs_read::EngineOptions::packed_cache).
const NEAR: u64 = 8 << 20;

/// The order.
#[derive(Debug)]
pub struct Order {
    nodes: Vec<NodeId>,
    /// By node: its place in `nodes`.
    ranks: Vec<u32>,
    stored: HashSet<NodeId>,
}

impl Order {
    /// The order of a `tree` whose content is encoded by `compression`, if at all.
    pub fn new(tree: &Tree, compression: Option<&Compression>, block: BlockSize, hot: Option<&Hot>) -> Self {
        let mut nodes = as_read(tree);
        if let Some(compression) = compression.filter(|compression| compression.fragments != Fragments::None)
        {
            gather(tree, &mut nodes, |size| compression.fragment_len(size, block));
        }
        let mut stored = HashSet::new();
        if let Some(hot) = hot {
            let reads = reads(tree, &hot.profile);
            nodes.sort_by_key(|id| !reads.contains_key(id));
            stored = hottest(tree, &reads, hot.stored);
        }
        let mut ranks = vec![0; nodes.len()];
        for (rank, id) in (0..).zip(&nodes) {
            ranks[id.index()] = rank;
        }
        Self { nodes, ranks, stored }
    }

    /// All nodes, in order.
    pub fn ids(&self) -> std::iter::Copied<std::slice::Iter<'_, NodeId>> {
        self.nodes.iter().copied()
    }

    /// Where `id` stands among them.
    pub fn rank(&self, id: NodeId) -> u32 {
        self.ranks[id.index()]
    }

    /// The content of `id` is to be stored as it is.
    pub fn is_stored(&self, id: NodeId) -> bool {
        self.stored.contains(&id)
    }
}

/// All nodes in the order in which a reader of the whole tree meets them first.
fn as_read(tree: &Tree) -> Vec<NodeId> {
    let mut nodes = Vec::with_capacity(tree.nodes.len());
    let mut met = vec![false; tree.nodes.len()];
    let mut open = vec![NodeId::ROOT];
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut met[id.index()], true) {
            continue;
        }
        nodes.push(id);
        if let Kind::Directory(dir) = tree.node(id).kind {
            open.extend(tree.entries_of(dir).iter().rev().map(|entry| entry.node));
        }
    }
    nodes
}

/// Moves files behind the first near one of their name. `fragment_len` says how many bytes of a file's size become a fragment.
fn gather(tree: &Tree, nodes: &mut [NodeId], fragment_len: impl Fn(u64) -> u64) {
    let mut firsts: HashMap<&[u8], u32> = HashMap::new();
    let mut bytes = 0;
    let mut places = vec![0u32; tree.nodes.len()];
    for (rank, id) in (0..).zip(nodes.iter()) {
        let node = tree.node(*id);
        places[id.index()] = rank;
        if !matches!(node.kind, Kind::Regular { .. }) {
            continue;
        }
        bytes += fragment_len(node.size);
        if bytes > NEAR {
            bytes = 0;
            firsts.clear();
        }
        places[id.index()] = *firsts.entry(tree.text(node.name)).or_insert(rank);
    }
    nodes.sort_by_key(|id| places[id.index()]);
}

/// How often files of the tree were read.
fn reads(tree: &Tree, profile: &Profile) -> HashMap<NodeId, u64> {
    let mut by_path: HashMap<&[u8], u64> = HashMap::new();
    for range in &profile.ranges {
        let path = range.path.as_os_str().as_bytes();
        let reads = by_path.entry(path.strip_prefix(b"/").unwrap_or(path)).or_default();
        *reads = reads.saturating_add(range.reads);
    }
    let files = tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. }));
    files.filter_map(|id| Some((id, *by_path.get(tree.path_bytes(id).as_slice())?))).collect()
}

/// The files with most reads for each byte, as long as they have no more than `most` bytes together.
fn hottest(tree: &Tree, reads: &HashMap<NodeId, u64>, most: u64) -> HashSet<NodeId> {
    let mut files: Vec<(NodeId, u64, u64)> =
        reads.iter().map(|(id, reads)| (*id, *reads, tree.node(*id).size.max(1))).collect();
    // a / b > c / d, without a division.
    let heat = |reads: u64, size: u64| u128::from(reads) * u128::from(size);
    files.sort_unstable_by(|a, b| heat(b.1, a.2).cmp(&heat(a.1, b.2)).then_with(|| a.0.cmp(&b.0)));
    let mut left = most;
    let mut stored = HashSet::new();
    for (id, _, size) in files {
        if let Some(rest) = left.checked_sub(size) {
            left = rest;
            stored.insert(id);
        }
    }
    stored
}
