//! Extents that are in the image already: how to find them again, at any offset, in what comes later.
//!
//! Content is seen through anchors: places whose last bytes give a hash that is zero in some bits, about one a
//! kilobyte, the same wherever the content stands. Each extent is known by its first anchor and by a digest of
//! all of it. Where an anchor of new content is an extent's first one, and the digest of what stands around
//! it is the extent's, its bytes need not be stored again.
//!
//! A work sees what was stored up to [`DISTANCE`] works before it, no more and no less, whoever is how fast:
//! that keeps images the same for any number of threads. Equal extents that are nearer are found when they
//! are appended.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use ferofs_format::BytePos;

/// Works that do not see each other's extents; so many can be under way. It shows in the image.
pub const DISTANCE: usize = 32;

/// Bits of an anchor's hash that are zero.
const MASK: u64 = 0x3ff << 40;
/// Bytes that a hash depends on.
const WINDOW: usize = 64;

/// What an extent is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The hash of its first anchor.
    anchor: u64,
    /// Bytes before that.
    offset: u32,
    len: u32,
    digest: [u8; 16],
}

/// An extent in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub at: BytePos,
    pub size: u64,
    pub encoded: bool,
    pub method: usize,
    /// It decodes to more.
    pub partial: bool,
}

/// Bytes of some content that are an extent in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub start: usize,
    pub len: usize,
    pub stored: Stored,
    /// It stood at the same offset of the file before.
    pub kept: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None`: it was there before all works.
    work: Option<usize>,
    stamp: Stamp,
    stored: Stored,
}

/// Extents by the hash of their first anchor; of two with the same, the first.
#[derive(Debug, Default)]
pub struct Known(RwLock<HashMap<u64, Entry>>);

impl Known {
    /// Extents of the image that stand in `src`, ascending and apart; for work number `work`, whose content
    /// is encoded by `method`.
    pub fn find(&self, src: &[u8], work: usize, method: usize) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        // A thread that panicked left the map whole.
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if entries.is_empty() {
            return matches;
        }
        let mut end = 0;
        for (at, hash) in anchors(src) {
            let Some(entry) = entries.get(&hash) else { continue };
            let Entry { stamp, stored, .. } = entry;
            let Some(start) = at.checked_sub(stamp.offset as usize).filter(|start| *start >= end) else {
                continue;
            };
            let seen = entry.work.is_none_or(|before| before + DISTANCE <= work) && stored.method == method;
            if !seen {
                continue;
            }
            let Some(bytes) = src.get(start..start + stamp.len as usize) else { continue };
            if digest(bytes) == stamp.digest {
                end = start + bytes.len();
                matches.push(Match { start, len: bytes.len(), stored: *stored, kept: false });
            }
        }
        matches
    }

    /// Where an extent with this stamp is.
    pub fn get(&self, stamp: &Stamp) -> Option<Stored> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&stamp.anchor).filter(|entry| entry.stamp == *stamp).map(|entry| entry.stored)
    }

    /// Work number `work` stored an extent.
    pub fn insert(&self, work: usize, stamp: Stamp, stored: Stored) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(stamp.anchor).or_insert(Entry { work: Some(work), stamp, stored });
    }

    /// An extent was stored before any work.
    pub fn insert_before(&self, stamp: Stamp, stored: Stored) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(stamp.anchor).or_insert(Entry { work: None, stamp, stored });
    }
}

/// What an extent of these bytes is known by; `None` when it has no anchor.
pub fn stamp(bytes: &[u8]) -> Option<Stamp> {
    let (at, anchor) = anchors(bytes).next()?;
    let (offset, len) = (u32::try_from(at).ok()?, u32::try_from(bytes.len()).ok()?);
    Some(Stamp { anchor, offset, len, digest: digest(bytes) })
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    digest
}

/// The anchors of `bytes`, each with its hash: where the byte after it is.
fn anchors(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let mut hash = 0u64;
    bytes.iter().enumerate().filter_map(move |(at, byte)| {
        // A byte's part is shifted out after WINDOW steps.
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        (hash & MASK == 0 && at >= WINDOW).then_some((at + 1, hash))
    })
}

/// A random number for each byte. It shows in the image.
const GEAR: [u64; 256] = {
    let mut table = [0; 256];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut n = 0;
    while n < 256 {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[n] = z ^ (z >> 31);
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(len)
        .collect()
    }

    fn stored(at: u64) -> Stored {
        Stored { at: BytePos::new(at), size: 4096, encoded: true, method: 0, partial: false }
    }

    #[test]
    fn finds_extents_wherever_they_stand() {
        let (a, b) = (noise(20_000, 1), noise(9000, 2));
        let known = Known::default();
        known.insert(0, stamp(&a).unwrap(), stored(1));
        known.insert(0, stamp(&b).unwrap(), stored(2));
        let src = [noise(77, 3), b.clone(), a.clone(), b[..8000].to_vec(), a].concat();
        let found = known.find(&src, DISTANCE, 0);
        let at = |found: &[Match]| found.iter().map(|m| (m.start, m.stored.at.get())).collect::<Vec<_>>();
        assert_eq!(at(&found), [(77, 2), (9077, 1), (37_077, 1)]);
        assert!(known.find(&src, DISTANCE - 1, 0).is_empty());
        assert!(known.find(&src, DISTANCE, 1).is_empty());
    }

    #[test]
    fn anchors_depend_on_a_window_alone_and_are_as_rare_as_wanted() {
        let tail = noise(1 << 20, 5);
        let seen = |head: Vec<u8>| {
            let start = head.len();
            let all = [head, tail.clone()].concat();
            anchors(&all)
                .filter(|(at, _)| *at > start + WINDOW)
                .map(|(at, hash)| (at - start, hash))
                .collect::<Vec<_>>()
        };
        let (one, other) = (seen(noise(999, 6)), seen(noise(12, 7)));
        assert_eq!(one, other);
        assert!((700..1400).contains(&one.len()), "{}", one.len());
        assert_eq!(anchors(&[0; 5000]).count(), 0, "zeroes are no anchors");
    }
}
