//! The order in which content is stored: files that are read together are stored together.
//!
//! The files of an access profile come first, if there is one. All others follow in the order of a
//! program that walks the whole tree depth-first, the entries of a directory sorted by name. With
//! fragments, nearby files of the same name become adjacent: they are often similar, for example a
//! program's messages in many languages, and then compress better. Inodes keep the order of
//! [`crate::tree`]. The order by [similarity](similar) replaces the walk if the options ask for it.

mod similar;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_format::BlockSize;
use regex::bytes::Regex;

use crate::options::compression::{Compression, Fragments};
use crate::options::data::{ContentOrder, DataOptions, Priorities};
use crate::paths::{as_path, join};
use crate::tree::{Kind, NodeId, Tree};
use ferofs_read::Profile;

/// Bytes. Files of the same name become adjacent within a group of fragments of this size: half of
/// the decoded fragments that a reader keeps in memory (see
/// [`EngineOptions::packed_cache`](ferofs_read::EngineOptions::packed_cache)). With larger groups,
/// a reader that walks the tree would decode fragments twice.
const GROUP_BYTES: u64 = 8 << 20;

/// The order of files.
#[derive(Debug)]
pub(crate) struct Order {
    nodes: Vec<NodeId>,
    /// By node: its index in `nodes`.
    ranks: Vec<u32>,
    stored: HashSet<NodeId>,
}

impl Order {
    /// Decides the order for `tree`, with or without `compression`.
    pub(crate) fn new(
        tree: &Tree,
        compression: Option<&Compression>,
        block: BlockSize,
        data: &DataOptions,
    ) -> Self {
        let with_fragments =
            compression.filter(|compression| compression.fragments != Fragments::None);
        let mut nodes = match (in_similar_order(tree, data.order, with_fragments), with_fragments) {
            (Some(nodes), _) => nodes,
            (None, None) => in_tree_walk_order(tree),
            (None, Some(compression)) => {
                let mut nodes = in_tree_walk_order(tree);
                group_equal_names(tree, &mut nodes, |size| compression.fragment_len(size, block));
                nodes
            }
        };
        if !data.priorities.0.is_empty() {
            let priorities = priorities(tree, &data.priorities);
            nodes.sort_by_key(|id| Reverse(priorities[id.index()]));
        }
        let mut stored = HashSet::new();
        if let Some(hot) = &data.hot_files {
            let reads = reads(tree, &hot.profile);
            nodes.sort_by_key(|id| !reads.contains_key(id));
            stored = hottest(tree, &reads, hot.stored);
        }
        let mut ranks = vec![0; nodes.len()];
        for (rank, id) in (0..).zip(nodes.iter()) {
            ranks[id.index()] = rank;
        }
        Self { nodes, ranks, stored }
    }

    /// All nodes, in order.
    pub(crate) fn ids(&self) -> std::iter::Copied<std::slice::Iter<'_, NodeId>> {
        self.nodes.iter().copied()
    }

    /// The node at a position of the order.
    pub(crate) fn id(&self, rank: u32) -> Option<NodeId> {
        self.nodes.get(rank as usize).copied()
    }

    /// The position of `id` in the order.
    pub(crate) fn rank(&self, id: NodeId) -> u32 {
        self.ranks[id.index()]
    }

    /// Whether the content of `id` is stored uncompressed because it is read often.
    pub(crate) fn is_stored(&self, id: NodeId) -> bool {
        self.stored.contains(&id)
    }
}

/// The order by similarity, if the options ask for it. `with_fragments` is the compression if it
/// stores fragments.
fn in_similar_order(
    tree: &Tree,
    order: ContentOrder,
    with_fragments: Option<&Compression>,
) -> Option<Vec<NodeId>> {
    match order {
        ContentOrder::Tree => None,
        ContentOrder::Similar => Some(similar::order(tree).nodes),
        // Files without fragments are compressed alone, in any order.
        ContentOrder::Auto => with_fragments.map(|_| similar::order(tree)).and_then(|similar| {
            (similar.bytes_with_versions >= similar.bytes.div_ceil(2)).then_some(similar.nodes)
        }),
    }
}

/// All nodes in the order in which a program that walks the tree reaches them first.
fn in_tree_walk_order(tree: &Tree) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    nodes.reserve_exact(tree.nodes.len());
    let mut visited = vec![false; tree.nodes.len()];
    let mut open = vec![NodeId::ROOT];
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut visited[id.index()], true) {
            continue;
        }
        nodes.push(id);
        if let Kind::Directory(dir) = tree.node(id).kind {
            open.extend(tree.entries_of(dir).iter().rev().map(|entry| entry.node));
        }
    }
    nodes
}

/// Moves each file after the first file of its name in the same group. `fragment_len` returns how
/// many bytes of a file of a given size become a fragment.
fn group_equal_names(tree: &Tree, nodes: &mut [NodeId], fragment_len: impl Fn(u64) -> u64) {
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
        if bytes > GROUP_BYTES {
            bytes = 0;
            firsts.clear();
        }
        places[id.index()] = *firsts.entry(tree.text(node.name)).or_insert(rank);
    }
    nodes.sort_by_key(|id| places[id.index()]);
}

/// The priority of each node. Names that the tree does not have are left out.
fn priorities(tree: &Tree, listed: &Priorities) -> Vec<i16> {
    let by_path: HashMap<&[u8], i16> =
        listed.0.iter().map(|(path, priority)| (path.as_slice(), *priority)).collect();
    let mut priorities = vec![0; tree.nodes.len()];
    priorities[NodeId::ROOT.index()] = by_path.get(b"".as_slice()).copied().unwrap_or(0);
    // The number of a directory is lower than the numbers of its entries.
    for id in tree.ids() {
        let Kind::Directory(dir) = tree.node(id).kind else { continue };
        let path = tree.path_bytes(id);
        for entry in tree.entries_of(dir) {
            let below = by_path.get(join(&path, tree.text(entry.name)).as_slice());
            priorities[entry.node.index()] = below.copied().unwrap_or(priorities[id.index()]);
        }
    }
    priorities
}

/// The paths of priorities that the tree does not have.
pub(crate) fn unused_priorities(tree: &Tree, listed: &Priorities) -> Vec<PathBuf> {
    let mut unused: BTreeSet<&[u8]> = listed.0.iter().map(|(path, _)| path.as_slice()).collect();
    unused.remove(b"".as_slice());
    for id in tree.ids() {
        let Kind::Directory(dir) = tree.node(id).kind else { continue };
        if unused.is_empty() {
            break;
        }
        let path = tree.path_bytes(id);
        for entry in tree.entries_of(dir) {
            unused.remove(join(&path, tree.text(entry.name)).as_slice());
        }
    }
    unused.into_iter().map(|path| as_path(path).to_owned()).collect()
}

/// The expressions that match the path of no regular file.
pub(crate) fn unused_hints<'a>(
    tree: &Tree,
    hints: impl Iterator<Item = &'a Regex>,
) -> impl Iterator<Item = &'a Regex> {
    let mut unused: Vec<&Regex> = hints.collect();
    for id in tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. })) {
        if unused.is_empty() {
            break;
        }
        let path = tree.path_bytes(id);
        unused.retain(|hint| !hint.is_match(&path));
    }
    unused.into_iter()
}

/// How often each file of the profile was read.
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

/// The files with the most reads per byte that together have at most `most` bytes.
fn hottest(tree: &Tree, reads: &HashMap<NodeId, u64>, most: u64) -> HashSet<NodeId> {
    let mut files: Vec<(NodeId, u64, u64)> =
        reads.iter().map(|(id, reads)| (*id, *reads, tree.node(*id).size.max(1))).collect();
    // Compares a / b with c / d as a * d with c * b: exact, without rounding.
    let product = |reads: u64, size: u64| u128::from(reads) * u128::from(size);
    files.sort_unstable_by(|a, b| {
        product(b.1, a.2).cmp(&product(a.1, b.2)).then_with(|| a.0.cmp(&b.0))
    });
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
