//! Files with the same bytes share them: who is the first of its kind.
//!
//! Only files whose size another one has are looked at. A worker that meets content which a file before it in
//! the order of reading has, by its hash, need not encode it; the thread that appends decides, so that the image does not
//! depend on who was faster.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::data::extents::list::ExtentLog;
use crate::tree::{Kind, NodeId, Tree};

/// Content, and all that decides what is stored of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Print([u8; 32]);

/// What a worker is to do with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No other file can have it.
    Only,
    /// No file before this one is known to have it.
    First(Print),
    /// A file before this one has it.
    Twin(Print),
}

#[derive(Debug)]
pub struct Twins {
    looks: bool,
    /// By node: another file has its size.
    candidates: Vec<bool>,
    /// Where the first file known to have a content stands in the order of reading.
    firsts: Mutex<HashMap<Print, u32>>,
}

impl Twins {
    /// Looks at all files of `tree`.
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
        Self { looks: true, candidates, firsts: Mutex::default() }
    }

    /// What tells a file's extents from others', if they may be shared although its end is its own: files that only
    /// differ there are common among compressed ones.
    pub fn print_extents(&self, log: &ExtentLog, method: usize, bytes: &[u8]) -> Option<Print> {
        if !self.looks || bytes.is_empty() || log.shares() {
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
        Some(Print(*hasher.finalize().as_bytes()))
    }

    /// Looks at none.
    pub fn none(tree: &Tree) -> Self {
        Self { looks: false, candidates: vec![false; tree.nodes.len()], firsts: Mutex::default() }
    }

    /// Whether another file can have the content of `id`.
    pub fn is_candidate(&self, id: NodeId) -> bool {
        self.candidates[id.index()]
    }

    /// What to do with `content` of file `id`, the `rank`th; `form` is whatever else decides what is stored of it.
    pub fn claim(&self, id: NodeId, rank: u32, content: &[u8], form: impl FnOnce() -> Vec<u8>) -> Claim {
        if !self.is_candidate(id) {
            return Claim::Only;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(content).update(&form());
        let print = Print(*hasher.finalize().as_bytes());
        // A thread that panicked left the map whole.
        let mut firsts = self.firsts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = firsts.entry(print).or_insert(rank);
        match *first < rank {
            true => Claim::Twin(print),
            false => {
                *first = rank;
                Claim::First(print)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_in_order_is_the_first_whoever_comes_first() {
        let twins =
            Twins { looks: true, candidates: vec![true, true, true, false], firsts: Mutex::default() };
        let claim = |n, content: &[u8]| twins.claim(NodeId(n), n, content, Vec::new);
        let Claim::First(print) = claim(1, b"a") else { panic!("the first claim is no twin's") };
        assert_eq!(claim(2, b"a"), Claim::Twin(print));
        assert_eq!(claim(0, b"a"), Claim::First(print));
        assert_eq!(claim(1, b"a"), Claim::Twin(print));
        assert!(matches!(claim(1, b"b"), Claim::First(other) if other != print));
        assert_eq!(claim(3, b"a"), Claim::Only);
    }
}
