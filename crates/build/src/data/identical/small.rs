//! Finds small files with identical content while workers read them. Only files of a size that another file has are looked up.
//!
//! A worker looks up the fingerprint of each file. If a file that comes earlier in the order of reading has the same one, the
//! worker does not encode the file. The appending thread makes the decision, in the order of reading: so the image does not
//! depend on which worker was faster.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::data::extents::log::ExtentLog;
use crate::tree::{Kind, NodeId, Tree};

/// Identifies the content of a file, and everything else that decides how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// The result of [`IdenticalFiles::look_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// No other file can have this content.
    Unique,
    /// No earlier file with this content has been looked up yet.
    First(Fingerprint),
    /// An earlier file has this content.
    Duplicate(Fingerprint),
}

/// The small files of a tree that can have identical content.
#[derive(Debug)]
pub struct IdenticalFiles {
    /// Whether extents get fingerprints, too.
    fingerprints_extents: bool,
    /// By node: whether another file has the same size.
    candidates: Vec<bool>,
    /// For each fingerprint, the rank of the first file in the order of reading that was looked up so far.
    firsts: Mutex<HashMap<Fingerprint, u32>>,
}

impl IdenticalFiles {
    /// Finds identical files among all files of `tree`.
    pub fn new(tree: &Tree) -> Self {
        let mut candidates = vec![false; tree.nodes.len()];
        let mut sizes: Vec<(u64, NodeId)> = tree
            .ids()
            .map(|id| (id, tree.node(id)))
            .filter(|(_, node)| node.size > 0 && matches!(node.kind, Kind::Regular { sparse: false }))
            .map(|(id, node)| (node.size, id))
            .collect();
        sizes.sort_unstable();
        for same in sizes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
            for (_, id) in same {
                candidates[id.index()] = true;
            }
        }
        Self { fingerprints_extents: true, candidates, firsts: Mutex::default() }
    }

    /// Identifies the extents of a file without its tail; `None` if no other file may share them. Compressed files often differ
    /// only in where their tails are.
    pub fn fingerprint_extents(&self, log: &ExtentLog, method: usize, bytes: &[u8]) -> Option<Fingerprint> {
        if !self.fingerprints_extents || bytes.is_empty() || log.shares() {
            return None;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytes).update(&method.to_le_bytes());
        for extent in log.iter() {
            hasher
                .update(&extent.len.to_le_bytes())
                .update(&extent.size.to_le_bytes())
                .update(&[extent.encoded.into()]);
        }
        Some(Fingerprint(*hasher.finalize().as_bytes()))
    }

    /// Finds no identical files.
    pub fn none(tree: &Tree) -> Self {
        Self {
            fingerprints_extents: false,
            candidates: vec![false; tree.nodes.len()],
            firsts: Mutex::default(),
        }
    }

    /// Whether another file may have the content of `id`.
    pub fn is_candidate(&self, id: NodeId) -> bool {
        self.candidates[id.index()]
    }

    /// Looks up file `id` with this `rank` in the order of reading and this `content`. `encoding_key` returns everything else that
    /// decides how the file is stored.
    pub fn look_up(
        &self,
        id: NodeId,
        rank: u32,
        content: &[u8],
        encoding_key: impl FnOnce() -> Vec<u8>,
    ) -> Lookup {
        if !self.is_candidate(id) {
            return Lookup::Unique;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(content).update(&encoding_key());
        let fingerprint = Fingerprint(*hasher.finalize().as_bytes());
        // A thread that panicked while it held the lock left the map complete: each change is one insert.
        let mut firsts = self.firsts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = firsts.entry(fingerprint).or_insert(rank);
        match *first < rank {
            true => Lookup::Duplicate(fingerprint),
            false => {
                *first = rank;
                Lookup::First(fingerprint)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_reading_decides_not_the_order_of_lookups() {
        let identical_files = IdenticalFiles {
            fingerprints_extents: true,
            candidates: vec![true, true, true, false],
            firsts: Mutex::default(),
        };
        let look_up = |n, content: &[u8]| identical_files.look_up(NodeId(n), n, content, Vec::new);
        let Lookup::First(fingerprint) = look_up(1, b"a") else { panic!("the first file is no duplicate") };
        assert_eq!(look_up(2, b"a"), Lookup::Duplicate(fingerprint));
        assert_eq!(look_up(0, b"a"), Lookup::First(fingerprint));
        assert_eq!(look_up(1, b"a"), Lookup::Duplicate(fingerprint));
        assert!(matches!(look_up(1, b"b"), Lookup::First(other) if other != fingerprint));
        assert_eq!(look_up(3, b"a"), Lookup::Unique);
    }
}
