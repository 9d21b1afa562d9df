//! The fingerprint of an extent's content, and the place of the extent. Content is found again by
//! its anchors: positions that depend on the bytes around them, and not on their offset.

use std::sync::LazyLock;

use ferofs_format::BytePos;

use ferofs_host::random;

/// Identifies the content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentFingerprint {
    /// The hash of its first anchor.
    pub(super) anchor: u64,
    /// Bytes before the end of that anchor.
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) digest: [u8; 16],
}

/// An extent in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredExtent {
    pub at: BytePos,
    pub size: u64,
    pub encoded: bool,
    pub method: usize,
    /// It decodes to more bytes than are used of it.
    pub partial: bool,
}

impl ExtentFingerprint {
    /// The fingerprint of an extent with this content; `None` when it has no anchor.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (at, anchor) = anchors(bytes).next()?;
        let (offset, len) = (u32::try_from(at).ok()?, u32::try_from(bytes.len()).ok()?);
        Some(Self { anchor, offset, len, digest: digest(bytes) })
    }
}

/// Half of a BLAKE3 digest with a random key, so that nobody can prepare different content with the
/// same digest.
pub(super) fn digest(bytes: &[u8]) -> [u8; 16] {
    /// Another one in each process; zeroes if the system has no random bytes.
    static KEY: LazyLock<[u8; blake3::KEY_LEN]> = LazyLock::new(|| {
        let mut key = [0; blake3::KEY_LEN];
        // Without random bytes the digest is weaker against content that was made for it, and still
        // right for all other content.
        let _ = random(&mut key);
        key
    });
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::keyed_hash(&KEY, bytes).as_bytes()[..16]);
    digest
}

/// The bits of the hash that are zero at an anchor: ten bits, so that one of 1024 positions is an
/// anchor. With fewer anchors short extents have none and are not found; more anchors take more
/// time.
const MASK: u64 = 0x3ff << 40;
/// Bytes that a hash depends on: as many as it has bits, since each step shifts it by one bit.
const WINDOW: usize = 64;

/// The anchors of `bytes`: the position after each one's last byte, and its hash.
pub(super) fn anchors(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
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
pub(super) mod tests {
    use super::*;

    pub(in crate::data::encode::dedupe) fn noise(len: usize, mut state: u64) -> Vec<u8> {
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(len)
        .collect()
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
        assert_eq!(anchors(&[0; 5000]).count(), 0, "zeroes are not anchors");
        // Images depend on these positions.
        let first: Vec<_> = anchors(&tail).map(|(at, _)| at).take(4).collect();
        assert_eq!(first, [1361, 2709, 2757, 3097]);
    }
}
