//! SHA-256 of several blocks at a time.
//!
//! An x86 processor with SHA instructions works on one message with half of its speed, because each instruction waits for the one before.
//! So this module takes two blocks in turn. No crate does: `sha2` hashes one message.
#![allow(unsafe_code, reason = "functions for processors with certain features are called after a test")]

/// Appends the digests of the blocks of `block_len` bytes in `data` to `digests`, if the processor has the instructions. Returns whether.
/// `data` has only whole blocks.
pub(crate) fn hash_blocks(data: &[u8], block_len: usize, digests: &mut Vec<[u8; 32]>) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sha") && std::arch::is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has these features.
        unsafe { x86::hash_blocks(data, block_len, digests) };
        return true;
    }
    let _ = (data, block_len, digests);
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_set_epi64x, _mm_sha256msg1_epu32,
        _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    };

    /// Bytes that are compressed at a time.
    const CHUNK: usize = 64;
    /// Blocks that are hashed in turn. Three are not faster: their state does not fit the registers.
    const LANES: usize = 2;

    /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes. Source: FIPS 180-4, section 4.2.2.
    const K: [u32; 64] = [
        0x428a_2f98,
        0x7137_4491,
        0xb5c0_fbcf,
        0xe9b5_dba5,
        0x3956_c25b,
        0x59f1_11f1,
        0x923f_82a4,
        0xab1c_5ed5,
        0xd807_aa98,
        0x1283_5b01,
        0x2431_85be,
        0x550c_7dc3,
        0x72be_5d74,
        0x80de_b1fe,
        0x9bdc_06a7,
        0xc19b_f174,
        0xe49b_69c1,
        0xefbe_4786,
        0x0fc1_9dc6,
        0x240c_a1cc,
        0x2de9_2c6f,
        0x4a74_84aa,
        0x5cb0_a9dc,
        0x76f9_88da,
        0x983e_5152,
        0xa831_c66d,
        0xb003_27c8,
        0xbf59_7fc7,
        0xc6e0_0bf3,
        0xd5a7_9147,
        0x06ca_6351,
        0x1429_2967,
        0x27b7_0a85,
        0x2e1b_2138,
        0x4d2c_6dfc,
        0x5338_0d13,
        0x650a_7354,
        0x766a_0abb,
        0x81c2_c92e,
        0x9272_2c85,
        0xa2bf_e8a1,
        0xa81a_664b,
        0xc24b_8b70,
        0xc76c_51a3,
        0xd192_e819,
        0xd699_0624,
        0xf40e_3585,
        0x106a_a070,
        0x19a4_c116,
        0x1e37_6c08,
        0x2748_774c,
        0x34b0_bcb5,
        0x391c_0cb3,
        0x4ed8_aa4a,
        0x5b9c_ca4f,
        0x682e_6ff3,
        0x748f_82ee,
        0x78a5_636f,
        0x84c8_7814,
        0x8cc7_0208,
        0x90be_fffa,
        0xa450_6ceb,
        0xbef9_a3f7,
        0xc671_78f2,
    ];
    /// The first 32 bits of the fractional parts of the square roots of the first 8 primes. Source: FIPS 180-4, section 5.3.3.
    const INITIAL: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];

    /// The state of one block, in the order that the instructions take: words A, B, E, F, and C, D, G, H.
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
        // The end of the message, a bit, zeroes, and the length in bits: in the last 8 bytes of one more chunk, or of two.
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
            compress(&mut states, padded.each_ref().map(|padded| &padded.as_chunks::<CHUNK>().0[number]));
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
                    let sum =
                        _mm_add_epi32(_mm_sha256msg1_epu32(oldest, older), _mm_alignr_epi8(newest, newer, 4));
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;

    proptest! {
        #[test]
        fn digests_are_those_of_one_block_at_a_time(len in 1..300_usize, blocks in 0..9_usize, seed: u64) {
            let mut state = seed;
            let data: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .take(len * blocks)
            .collect();
            let mut digests = Vec::new();
            if hash_blocks(&data, len, &mut digests) {
                let expected: Vec<[u8; 32]> = data.chunks(len).map(|block| Sha256::digest(block).into()).collect();
                prop_assert_eq!(digests, expected);
            }
        }
    }
}
