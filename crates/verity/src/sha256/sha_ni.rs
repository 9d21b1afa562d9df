//! Two blocks in turn by the processor's SHA instructions. One message takes half of their speed,
//! because each instruction waits for the one before.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "indexes follow from the sizes of arrays, and all messages have the same length; a test compares all lengths with `sha2`"
)]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_set_epi64x, _mm_sha256msg1_epu32,
    _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
};

use super::{CHUNK, INITIAL, K};

/// Blocks that are hashed in turn. Three are not faster: their state does not fit the registers.
const LANES: usize = 2;

/// The state of one block, in the order that the instructions take: words A, B, E, F, and C, D, G,
/// H.
#[derive(Clone, Copy)]
struct State {
    abef: __m128i,
    cdgh: __m128i,
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
pub(super) fn hash_blocks(data: &[u8], block_len: usize, digests: &mut Vec<[u8; 32]>) {
    let mut pairs = data.chunks_exact(block_len * LANES);
    for pair in &mut pairs {
        let (first, second) = pair.split_at(block_len);
        digests.extend(hash([first, second]));
    }
    let rest = pairs.remainder();
    if !rest.is_empty() {
        digests.extend(hash([rest]));
    }
}

/// The digests of messages of the same length.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn hash<const N: usize>(messages: [&[u8]; N]) -> [[u8; 32]; N] {
    let mut states = [initial(); N];
    let len = messages.first().map_or(0, |message| message.len());
    let chunks = messages.map(|message| message.as_chunks::<CHUNK>());
    for number in 0..len / CHUNK {
        compress(&mut states, chunks.map(|(whole, _)| &whole[number]));
    }
    // The end of the message, a bit, zeroes, and the length in bits: in the last 8 bytes of one
    // more chunk, or of two.
    let is_two = len % CHUNK + 1 + 8 > CHUNK;
    let end = if is_two { 2 * CHUNK } else { CHUNK };
    let padded = chunks.map(|(_, rest)| {
        let mut padded = [0; 2 * CHUNK];
        padded[..rest.len()].copy_from_slice(rest);
        padded[rest.len()] = 0x80;
        padded[end - 8..end].copy_from_slice(&(len as u64 * 8).to_be_bytes());
        padded
    });
    for number in 0..end / CHUNK {
        compress(
            &mut states,
            padded.each_ref().map(|padded| &padded.as_chunks::<CHUNK>().0[number]),
        );
    }
    states.map(|state| digest(state))
}

/// Compresses one chunk of each message.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn compress<const N: usize>(states: &mut [State; N], chunks: [&[u8; CHUNK]; N]) {
    let before = *states;
    let mut words = chunks.map(|chunk| load(chunk));
    for group in 0..16 {
        let round = four_words(&K, group);
        for lane in 0..N {
            let State { abef, cdgh } = &mut states[lane];
            let words = &mut words[lane];
            let sum = _mm_add_epi32(words[group % 4], round);
            *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
            *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if group < 12 {
                let [oldest, older, newer, newest] = [0, 1, 2, 3].map(|n| words[(group + n) % 4]);
                let sum = _mm_add_epi32(
                    _mm_sha256msg1_epu32(oldest, older),
                    _mm_alignr_epi8(newest, newer, 4),
                );
                words[group % 4] = _mm_sha256msg2_epu32(sum, newest);
            }
        }
    }
    for (state, before) in states.iter_mut().zip(before) {
        state.abef = _mm_add_epi32(state.abef, before.abef);
        state.cdgh = _mm_add_epi32(state.cdgh, before.cdgh);
    }
}

/// The 16 words of a chunk, whose bytes are big-endian.
#[inline]
#[target_feature(enable = "sse2,ssse3")]
fn load(chunk: &[u8; CHUNK]) -> [__m128i; 4] {
    let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let (quarters, _) = chunk.as_chunks::<16>();
    let quarter = |number: usize| _mm_shuffle_epi8(zerocopy::transmute!(quarters[number]), swap);
    [quarter(0), quarter(1), quarter(2), quarter(3)]
}

/// Words `4 * group` to `4 * group + 3`.
#[inline]
fn four_words(words: &[u32], group: usize) -> __m128i {
    let (groups, _) = words.as_chunks::<4>();
    zerocopy::transmute!(groups[group])
}

#[inline]
#[target_feature(enable = "sse2,ssse3,sse4.1")]
fn initial() -> State {
    let (dcba, hgfe) = (four_words(&INITIAL, 0), four_words(&INITIAL, 1));
    let (cdab, efgh) = (_mm_shuffle_epi32(dcba, 0xb1), _mm_shuffle_epi32(hgfe, 0x1b));
    State { abef: _mm_alignr_epi8(cdab, efgh, 8), cdgh: _mm_blend_epi16(efgh, cdab, 0xf0) }
}

#[inline]
#[target_feature(enable = "sse2,ssse3,sse4.1")]
fn digest(state: State) -> [u8; 32] {
    let (feba, dchg) = (_mm_shuffle_epi32(state.abef, 0x1b), _mm_shuffle_epi32(state.cdgh, 0xb1));
    let words: [[u32; 4]; 2] = [
        zerocopy::transmute!(_mm_blend_epi16(feba, dchg, 0xf0)),
        zerocopy::transmute!(_mm_alignr_epi8(dchg, feba, 8)),
    ];
    let mut bytes = [0; 32];
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words.as_flattened()) {
        *to = word.to_be_bytes();
    }
    bytes
}
