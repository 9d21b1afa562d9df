//! Deduplication: finds extents that the image has already, at any offset of later content.
//!
//! Content has anchors: positions where a rolling hash of the last [`WINDOW`] bytes is zero in ten bits, on average once
//! per KiB. An anchor depends on these bytes only, not on the position. The index finds an extent by its first anchor
//! and confirms it by a digest of all its bytes. When an anchor of new content is the first anchor of an indexed extent
//! and the digest of the bytes around it is the same, the new content refers to that extent.
//!
//! Job n finds the extents of the jobs up to n - [`DISTANCE`], and no later ones, however fast the threads are: so images do
//! not depend on the number of threads. The appending thread finds equal extents that are nearer.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use ferofs_format::BytePos;

/// In jobs: each job finds the extents of the jobs at least this far before it. More jobs than this must not be under way at
/// the same time. A larger value allows more parallel jobs but finds fewer extents. The image depends on it.
pub const DISTANCE: usize = 32;

/// The bits of the hash that are zero at an anchor: ten bits, so that one of 1024 positions is an anchor. With fewer anchors
/// short extents have none and are not found; more anchors take more time.
const MASK: u64 = 0x3ff << 40;
/// Bytes that a hash depends on: as many as it has bits, since each step shifts it by one bit.
const WINDOW: usize = 64;

/// Identifies the content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentFingerprint {
    /// The hash of its first anchor.
    anchor: u64,
    /// Bytes before the end of that anchor.
    offset: u32,
    len: u32,
    digest: [u8; 16],
}

/// An extent in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredExtent {
    pub at: BytePos,
    pub size: u64,
    pub encoded: bool,
    pub method: usize,
    /// It decodes to more bytes than are used of it.
    pub partial: bool,
}

/// A part of new content that equals an extent of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub start: usize,
    pub len: usize,
    pub stored: StoredExtent,
    /// The base image has the extent at the same offset of the same file: see [`ExtentLog::push_without_dedupe`].
    ///
    /// [`ExtentLog::push_without_dedupe`]: crate::data::extents::log::ExtentLog::push_without_dedupe
    pub same_offset: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The job that stored it; `None`: it was in the base image before all jobs.
    job: Option<usize>,
    fingerprint: ExtentFingerprint,
    stored: StoredExtent,
}

/// The extents that the image has, by the hash of their first anchor. Of two extents with the same hash, the first stays.
#[derive(Debug, Default)]
pub struct ExtentIndex(RwLock<HashMap<u64, Entry>>);

impl ExtentIndex {
    /// Finds extents in `src` for job number `job`, which encodes with `method`. The matches ascend and do not overlap.
    pub fn find(&self, src: &[u8], job: usize, method: usize) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        // A thread that panicked while it held the lock left the map complete: each change is one insert.
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if entries.is_empty() {
            return matches;
        }
        let mut end = 0;
        for (at, hash) in anchors(src) {
            let Some(entry) = entries.get(&hash) else { continue };
            let Entry { fingerprint, stored, .. } = entry;
            let Some(start) = at.checked_sub(fingerprint.offset as usize).filter(|start| *start >= end)
            else {
                continue;
            };
            let visible = entry.job.is_none_or(|before| before + DISTANCE <= job) && stored.method == method;
            if !visible {
                continue;
            }
            let Some(bytes) = src.get(start..start + fingerprint.len as usize) else { continue };
            if digest(bytes) == fingerprint.digest {
                end = start + bytes.len();
                matches.push(Match { start, len: bytes.len(), stored: *stored, same_offset: false });
            }
        }
        matches
    }

    /// Finds an extent with this content.
    pub fn get(&self, fingerprint: &ExtentFingerprint) -> Option<StoredExtent> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(&fingerprint.anchor)
            .filter(|entry| entry.fingerprint == *fingerprint)
            .map(|entry| entry.stored)
    }

    /// Job number `job` stored an extent.
    pub fn insert(&self, job: usize, fingerprint: ExtentFingerprint, stored: StoredExtent) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(fingerprint.anchor).or_insert(Entry { job: Some(job), fingerprint, stored });
    }

    /// Adds an extent of the base image: all jobs find it.
    pub fn insert_before(&self, fingerprint: ExtentFingerprint, stored: StoredExtent) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(fingerprint.anchor).or_insert(Entry { job: None, fingerprint, stored });
    }
}

impl ExtentFingerprint {
    /// The fingerprint of an extent with this content; `None` when it has no anchor.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (at, anchor) = anchors(bytes).next()?;
        let (offset, len) = (u32::try_from(at).ok()?, u32::try_from(bytes.len()).ok()?);
        Some(Self { anchor, offset, len, digest: digest(bytes) })
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    digest
}

/// The anchors of `bytes`: the position after each one's last byte, and its hash.
fn anchors(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    // After WINDOW steps the influence of a byte is shifted out of the hash.
    let step = |hash: u64, byte: &u8| (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
    let (first, rest) = bytes.split_at(bytes.len().min(WINDOW));
    let mut hash = first.iter().fold(0, step);
    rest.iter().enumerate().filter_map(move |(at, byte)| {
        hash = step(hash, byte);
        (hash & MASK == 0).then_some((at + WINDOW + 1, hash))
    })
}

/// A random number for each byte value. The image depends on them.
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

    fn stored(at: u64) -> StoredExtent {
        StoredExtent { at: BytePos::new(at), size: 4096, encoded: true, method: 0, partial: false }
    }

    #[test]
    fn finds_extents_at_any_offset() {
        let (a, b) = (noise(20_000, 1), noise(9000, 2));
        let index = ExtentIndex::default();
        index.insert(0, ExtentFingerprint::of(&a).unwrap(), stored(1));
        index.insert(0, ExtentFingerprint::of(&b).unwrap(), stored(2));
        let src = [noise(77, 3), b.clone(), a.clone(), b[..8000].to_vec(), a].concat();
        let found = index.find(&src, DISTANCE, 0);
        let at = |found: &[Match]| found.iter().map(|m| (m.start, m.stored.at.get())).collect::<Vec<_>>();
        assert_eq!(at(&found), [(77, 2), (9077, 1), (37_077, 1)]);
        assert!(index.find(&src, DISTANCE - 1, 0).is_empty());
        assert!(index.find(&src, DISTANCE, 1).is_empty());
    }

    #[test]
    fn anchors_depend_on_the_window_only_and_there_is_one_per_kib() {
        let tail = noise(1 << 20, 5);
        let anchors_of = |head: Vec<u8>| {
            let start = head.len();
            let all = [head, tail.clone()].concat();
            anchors(&all)
                .filter(|(at, _)| *at > start + WINDOW)
                .map(|(at, hash)| (at - start, hash))
                .collect::<Vec<_>>()
        };
        let (one, other) = (anchors_of(noise(999, 6)), anchors_of(noise(12, 7)));
        assert_eq!(one, other);
        assert!((700..1400).contains(&one.len()), "{}", one.len());
        assert_eq!(anchors(&[0; 5000]).count(), 0, "zeroes are no anchors");
    }
}
