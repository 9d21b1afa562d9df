//! 16 blocks at a time by AVX-512: each register has one word of each block. Source of the
//! algorithm: FIPS 180-4, section 6.2.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "indexes follow from the sizes of arrays, and `data` has whole blocks; a test compares all lengths with `sha2`"
)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set4_epi32,
    _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_ternarylogic_epi32,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::{CHUNK, INITIAL, K};

/// Blocks that are hashed at a time: a register has 16 words.
pub(super) const LANES: usize = 16;
/// The number of blocks from which on this is faster than SHA instructions, although lanes are
/// empty: 16 lanes of 4 KiB take 14 us, two blocks by SHA instructions 3.2 us (Zen 5).
pub(super) const PAYS: usize = 9;

/// The bits of a function of three bits, for `_mm512_ternarylogic_epi32`: `a ^ b ^ c`.
const XOR: i32 = 0x96;
/// `if a then b else c`.
const CHOOSE: i32 = 0xca;
/// The value that two of `a`, `b` and `c` have.
const MAJORITY: i32 = 0xe8;

/// The digests of the blocks of `block_len` bytes, a multiple of [`CHUNK`], in `data`, which has 1
/// to 16 of them.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn hash(data: &[u8], block_len: usize) -> [[u8; 32]; LANES] {
    let (chunks, _) = data.as_chunks::<CHUNK>();
    let per_block = block_len / CHUNK;
    let last = (data.len() / block_len).saturating_sub(1);
    let mut state = INITIAL.map(|word| broadcast(word));
    for number in 0..per_block {
        let mut rows = [broadcast(0); LANES];
        for (lane, row) in rows.iter_mut().enumerate() {
            // Lanes without a block of their own hash the last one.
            *row = zerocopy::transmute!(chunks[lane.min(last) * per_block + number]);
        }
        compress(&mut state, words(rows));
    }
    // A chunk of padding: a bit, zeroes, and the length in bits.
    let bits = (block_len as u64 * 8).to_be_bytes();
    let mut padding = [0_u8; CHUNK];
    padding[0] = 0x80;
    padding[CHUNK - bits.len()..].copy_from_slice(&bits);
    let (padding, _) = padding.as_chunks::<4>();
    compress(&mut state, std::array::from_fn(|word| broadcast(u32::from_be_bytes(padding[word]))));
    let state: [[u32; LANES]; 8] = state.map(|words| zerocopy::transmute!(words));
    std::array::from_fn(|lane| {
        let mut digest = [0; 32];
        for (to, words) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *to = words[lane].to_be_bytes();
        }
        digest
    })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(word: u32) -> __m512i {
    _mm512_set1_epi32(word.cast_signed())
}

/// Compresses one chunk of each block, whose words are `words`.
#[inline]
#[target_feature(enable = "avx512f")]
fn compress(state: &mut [__m512i; 8], mut words: [__m512i; 16]) {
    let before = *state;
    let (constants, _) = K.as_chunks::<16>();
    for (group, constants) in constants.iter().enumerate() {
        // Repeated by a macro, because all words stay in registers only if their numbers are
        // constants.
        macro_rules! rounds {
            ($($round:literal)*) => {$(
                round::<$round>(state, words[$round], constants[$round]);
                if group < 3 {
                    words[$round] = next_word::<$round>(&words);
                }
            )*};
        }
        rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
    for (word, before) in state.iter_mut().zip(before) {
        *word = _mm512_add_epi32(*word, before);
    }
}

/// One round. The variables a to h move by one place in each round; they are back in theirs after 8
/// rounds.
#[inline]
#[target_feature(enable = "avx512f")]
fn round<const ROUND: usize>(state: &mut [__m512i; 8], word: __m512i, constant: u32) {
    const fn place(variable: usize, round: usize) -> usize {
        (variable + 16 - round) % 8
    }
    let (a, b, c) = (state[place(0, ROUND)], state[place(1, ROUND)], state[place(2, ROUND)]);
    let (e, f, g) = (state[place(4, ROUND)], state[place(5, ROUND)], state[place(6, ROUND)]);
    let sum_e = xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
    let sum_a = xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
    let input =
        _mm512_add_epi32(_mm512_add_epi32(state[place(7, ROUND)], broadcast(constant)), word);
    let chosen = _mm512_add_epi32(sum_e, _mm512_ternarylogic_epi32::<CHOOSE>(e, f, g));
    let first = _mm512_add_epi32(input, chosen);
    let second = _mm512_add_epi32(sum_a, _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c));
    state[place(3, ROUND)] = _mm512_add_epi32(state[place(3, ROUND)], first);
    state[place(7, ROUND)] = _mm512_add_epi32(first, second);
}

/// The word that is used 16 rounds after word `ROUND`.
#[inline]
#[target_feature(enable = "avx512f")]
fn next_word<const ROUND: usize>(words: &[__m512i; 16]) -> __m512i {
    let (next, ninth, last) =
        (words[(ROUND + 1) % 16], words[(ROUND + 9) % 16], words[(ROUND + 14) % 16]);
    let low = xor(
        _mm512_ror_epi32::<7>(next),
        _mm512_ror_epi32::<18>(next),
        _mm512_srli_epi32::<3>(next),
    );
    let high = xor(
        _mm512_ror_epi32::<17>(last),
        _mm512_ror_epi32::<19>(last),
        _mm512_srli_epi32::<10>(last),
    );
    _mm512_add_epi32(_mm512_add_epi32(words[ROUND], low), _mm512_add_epi32(ninth, high))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(a, b, c)
}

/// The big-endian words of 16 chunks: a register for each of their 16 words, from a register for
/// each chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words(rows: [__m512i; 16]) -> [__m512i; 16] {
    let swap = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    // Registers of four rows: quarter q of number n has word `4 * q + n` of each of the rows.
    macro_rules! quarters {
        ($first:literal $second:literal $third:literal $fourth:literal) => {{
            let (first, second) =
                (_mm512_shuffle_epi8(rows[$first], swap), _mm512_shuffle_epi8(rows[$second], swap));
            let (third, fourth) =
                (_mm512_shuffle_epi8(rows[$third], swap), _mm512_shuffle_epi8(rows[$fourth], swap));
            let (low, high) =
                (_mm512_unpacklo_epi32(first, second), _mm512_unpackhi_epi32(first, second));
            let (low_2, high_2) =
                (_mm512_unpacklo_epi32(third, fourth), _mm512_unpackhi_epi32(third, fourth));
            [
                _mm512_unpacklo_epi64(low, low_2),
                _mm512_unpackhi_epi64(low, low_2),
                _mm512_unpacklo_epi64(high, high_2),
                _mm512_unpackhi_epi64(high, high_2),
            ]
        }};
    }
    let (first, second) = (quarters!(0 1 2 3), quarters!(4 5 6 7));
    let (third, fourth) = (quarters!(8 9 10 11), quarters!(12 13 14 15));
    // Words `n`, `n + 4`, `n + 8` and `n + 12`. 0x88 takes the even quarters of both arguments,
    // 0xdd the odd ones.
    macro_rules! columns {
        ($number:literal) => {{
            let even = _mm512_shuffle_i32x4::<0x88>(first[$number], second[$number]);
            let even_2 = _mm512_shuffle_i32x4::<0x88>(third[$number], fourth[$number]);
            let odd = _mm512_shuffle_i32x4::<0xdd>(first[$number], second[$number]);
            let odd_2 = _mm512_shuffle_i32x4::<0xdd>(third[$number], fourth[$number]);
            (
                _mm512_shuffle_i32x4::<0x88>(even, even_2),
                _mm512_shuffle_i32x4::<0x88>(odd, odd_2),
                _mm512_shuffle_i32x4::<0xdd>(even, even_2),
                _mm512_shuffle_i32x4::<0xdd>(odd, odd_2),
            )
        }};
    }
    let (w0, w4, w8, w12) = columns!(0);
    let (w1, w5, w9, w13) = columns!(1);
    let (w2, w6, w10, w14) = columns!(2);
    let (w3, w7, w11, w15) = columns!(3);
    [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15]
}
