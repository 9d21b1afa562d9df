//! Finds small files with identical content while workers read them. Only files of a size that
//! another file has are looked up.
//!
//! A worker looks up the fingerprint of each file. If a file that comes earlier in the order of
//! reading has the same one, the worker does not encode the file. The appending thread makes the
//! decision, in the order of reading: so the image does not depend on which worker was faster.

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::data::extents::ExtentLog;
use crate::error::Result;
use crate::tree::{Kind, NodeId, Tree};
use ferofs_host::random;

/// Tables of fingerprints. Each one grows for itself, so that little memory is needed twice at
/// once, and threads rarely wait for each other.
const TABLES: usize = 64;

/// Identifies the content of a file, and everything else that decides how it is stored: half of a
/// BLAKE3 digest with a random key, so that nobody can prepare files with equal fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 16]);

/// The result of [`IdenticalFiles::look_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// No other file can have this content.
    Unique,
    /// No earlier file with this content has been looked up yet.
    First(Fingerprint),
    /// An earlier file has this content.
    Duplicate(Fingerprint),
}

/// The ranks of first files, by fingerprint.
#[derive(Debug)]
struct Firsts {
    /// The places of fingerprints in `ranks`.
    places: HashTable<u32>,
    ranks: Vec<(Fingerprint, u32)>,
}

impl Firsts {
    fn get(&self, fingerprint: Fingerprint) -> Option<u32> {
        let is_equal = |place: &u32| self.ranks[*place as usize].0 == fingerprint;
        let place = self.places.find(fingerprint.hash(), is_equal)?;
        Some(self.ranks[*place as usize].1)
    }

    /// The rank of the first file with this fingerprint, which is `rank` if there is none yet.
    fn get_or_insert(&mut self, fingerprint: Fingerprint, rank: u32) -> &mut u32 {
        let Self { places, ranks } = self;
        let place = places
            .find(fingerprint.hash(), |place| ranks[*place as usize].0 == fingerprint)
            .copied();
        let place = place.unwrap_or_else(|| {
            // There are at most as many as nodes, whose numbers have 32 bits.
            let place = ranks.len() as u32;
            ranks.push((fingerprint, rank));
            places
                .insert_unique(fingerprint.hash(), place, |place| ranks[*place as usize].0.hash());
            place
        });
        &mut ranks[place as usize].1
    }
}

/// The small files of a tree that can have identical content.
#[derive(Debug)]
pub(crate) struct IdenticalFiles {
    /// Whether extents get fingerprints, too.
    fingerprints_extents: bool,
    /// The key of the fingerprints, other ones in each build.
    key: [u8; blake3::KEY_LEN],
    /// By node: whether another file has the same size, one bit for each.
    candidates: Vec<u64>,
    /// For each fingerprint, the rank of the first file in the order of reading that was looked up
    /// so far. The first byte of a fingerprint chooses the table.
    firsts: Vec<Mutex<Firsts>>,
}

impl IdenticalFiles {
    /// Finds identical files among all files of `tree`.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the system has no random bytes.
    pub(crate) fn new(tree: &Tree) -> Result<Self> {
        let mut key = [0; blake3::KEY_LEN];
        random(&mut key)?;
        let sizes = tree
            .ids()
            .map(|id| (id, tree.node(id)))
            .filter(|(_, node)| node.size > 0 && matches!(node.kind, Kind::Regular { .. }))
            .map(|(id, node)| (node.size, id));
        let mut all: Vec<_> = sizes.collect();
        all.sort_unstable();
        let same = all.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1);
        let candidates = same.flatten().map(|(_, id)| *id);
        Ok(Self { fingerprints_extents: true, ..Self::with(tree.nodes.len(), key, candidates) })
    }

    /// Finds no identical files.
    pub(crate) fn none(tree: &Tree) -> Self {
        Self::with(tree.nodes.len(), [0; blake3::KEY_LEN], [])
    }

    fn with(
        nodes: usize,
        key: [u8; blake3::KEY_LEN],
        with_equal_size: impl IntoIterator<Item = NodeId>,
    ) -> Self {
        let mut candidates = vec![0; nodes.div_ceil(64)];
        for id in with_equal_size {
            candidates[id.index() / 64] |= 1 << (id.index() % 64);
        }
        let table = || Mutex::new(Firsts { places: HashTable::new(), ranks: Vec::new() });
        let firsts = std::iter::repeat_with(table).take(TABLES).collect();
        Self { fingerprints_extents: false, key, candidates, firsts }
    }

    /// Identifies the extents of a file without its tail; `None` if no other file may share them.
    /// Compressed files often differ only in where their tails are.
    pub(crate) fn fingerprint_extents(
        &self,
        log: &ExtentLog,
        method: usize,
        bytes: &[u8],
    ) -> Option<Fingerprint> {
        if !self.fingerprints_extents || bytes.is_empty() || log.shares() {
            return None;
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(bytes).update(&method.to_le_bytes());
        for extent in log.iter() {
            hasher
                .update(&extent.len.to_le_bytes())
                .update(&extent.size.to_le_bytes())
                .update(&[extent.encoded.into()]);
        }
        Some(Fingerprint::of(&hasher))
    }

    /// Whether another file may have the content of `id`.
    pub(crate) fn is_candidate(&self, id: NodeId) -> bool {
        self.candidates[id.index() / 64] >> (id.index() % 64) & 1 != 0
    }

    /// Looks up file `id` with this `rank` in the order of reading and this `content`.
    /// `encoding_key` returns everything else that decides how the file is stored.
    pub(crate) fn look_up(
        &self,
        id: NodeId,
        rank: u32,
        content: &[u8],
        encoding_key: impl FnOnce() -> Vec<u8>,
    ) -> Lookup {
        if !self.is_candidate(id) {
            return Lookup::Unique;
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(content).update(&encoding_key());
        let fingerprint = Fingerprint::of(&hasher);
        let mut firsts = self.table(fingerprint);
        let first = firsts.get_or_insert(fingerprint, rank);
        match *first < rank {
            true => Lookup::Duplicate(fingerprint),
            false => {
                *first = rank;
                Lookup::First(fingerprint)
            }
        }
    }

    /// The rank of the first file with this fingerprint among those that were looked up.
    pub(crate) fn first(&self, fingerprint: Fingerprint) -> Option<u32> {
        self.table(fingerprint).get(fingerprint)
    }

    fn table(&self, fingerprint: Fingerprint) -> MutexGuard<'_, Firsts> {
        let number = usize::from(fingerprint.0[0]) % self.firsts.len();
        self.firsts[number].lock()
    }
}

impl Fingerprint {
    /// Its bytes are random, and the first one chooses the table.
    fn hash(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[8..]);
        u64::from_le_bytes(bytes)
    }

    fn of(hasher: &blake3::Hasher) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_reading_decides_not_the_order_of_lookups() {
        let identical_files = IdenticalFiles::with(4, [1; blake3::KEY_LEN], [0, 1, 2].map(NodeId));
        let look_up = |n, content: &[u8]| identical_files.look_up(NodeId(n), n, content, Vec::new);
        let Lookup::First(fingerprint) = look_up(1, b"a") else {
            panic!("the first file is not a duplicate")
        };
        assert_eq!(look_up(2, b"a"), Lookup::Duplicate(fingerprint));
        assert_eq!(look_up(0, b"a"), Lookup::First(fingerprint));
        assert_eq!(look_up(1, b"a"), Lookup::Duplicate(fingerprint));
        assert_eq!(identical_files.first(fingerprint), Some(0));
        assert!(matches!(look_up(1, b"b"), Lookup::First(other) if other != fingerprint));
        assert_eq!(look_up(3, b"a"), Lookup::Unique);
    }
}
