//! SHA-256 of several blocks at a time, which is two to five times as fast as one after the other.
//! No crate does it: `sha2` hashes one message.
//!
//! `avx512` hashes 16 blocks, `sha_ni` two. On processors without these instructions, and on those
//! that are not x86-64, `sha2` hashes all blocks; it uses the instructions of AArch64.
#![allow(
    unsafe_code,
    reason = "functions for processors with certain features are called after a test"
)]

mod avx512;
mod sha_ni;

use std::arch::is_x86_feature_detected as has;

/// Bytes that are compressed at a time.
const CHUNK: usize = 64;

/// Appends the digests of blocks of `block_len` bytes in `data` to `digests`: of all blocks, or, if
/// the processor does not have all the instructions, of the first ones. Returns the number of
/// blocks. `data` has only whole blocks.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "`data` has whole blocks, of which a call gets at most `LANES`; `digests` only grows"
)]
pub(crate) fn hash_blocks(data: &[u8], block_len: usize, digests: &mut Vec<[u8; 32]>) -> usize {
    let before = digests.len();
    let mut rest = data;
    if block_len.is_multiple_of(CHUNK) && has!("avx512f") && has!("avx512bw") {
        let group = block_len * avx512::LANES;
        while rest.len() >= avx512::PAYS * block_len {
            let (blocks, after) = rest.split_at(group.min(rest.len()));
            // SAFETY: the processor has these features.
            let hashed = unsafe { avx512::hash(blocks, block_len) };
            digests.extend(&hashed[..blocks.len() / block_len]);
            rest = after;
        }
    }
    #[cfg(test)]
    let by_avx512 = digests.len() - before;
    if has!("sha") && has!("sse4.1") {
        // SAFETY: the processor has these features; all with SHA have SSSE3.
        unsafe { sha_ni::hash_blocks(rest, block_len, digests) };
    }
    #[cfg(test)]
    tests::HASHED.set([by_avx512, digests.len() - before - by_avx512]);
    digests.len() - before
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes. Source: FIPS
/// 180-4, section 4.2.2.
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
/// The first 32 bits of the fractional parts of the square roots of the first 8 primes. Source:
/// FIPS 180-4, section 5.3.3.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::params::BlockHasher;

    thread_local! {
        /// The blocks that AVX-512 and SHA instructions hashed in the last call.
        pub(super) static HASHED: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    }

    /// The gate does not see it: valgrind has neither of these instructions.
    #[test]
    fn blocks_are_hashed_by_the_fastest_instructions() {
        let hasher = BlockHasher::Sha256 { salted: Sha256::new(), is_salted: false };
        assert_eq!(hasher.hash_blocks(&[7; 40 * 4096], 4096), vec![hasher.hash(&[7; 4096]); 40]);
        // The last 8 blocks are too few for AVX-512.
        let by_avx512 = if has!("avx512f") && has!("avx512bw") { 32 } else { 0 };
        let by_sha = if has!("sha") { 40 - by_avx512 } else { 0 };
        assert_eq!(HASHED.get(), [by_avx512, by_sha]);
    }

    proptest! {
        #[test]
        fn digests_are_those_of_one_block_at_a_time(
            len in prop_oneof![1..300_usize, Just(64), Just(512), Just(4096)],
            blocks in 0..40_usize,
            seed: u64,
        ) {
            let mut state = seed;
            let data: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .take(len * blocks)
            .collect();
            let mut digests = Vec::new();
            let hashed = hash_blocks(&data, len, &mut digests);
            let expected: Vec<[u8; 32]> = data.chunks(len).map(|block| Sha256::digest(block).into()).collect();
            prop_assert_eq!(&digests, &expected[..hashed]);
            if std::arch::is_x86_feature_detected!("sha") {
                digests.clear();
                // SAFETY: the processor has SHA, and with it SSE4.1.
                unsafe { sha_ni::hash_blocks(&data, len, &mut digests) };
                prop_assert_eq!(&digests, &expected);
            }
        }
    }
}
