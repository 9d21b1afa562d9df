//! Parses an input once, and encodes any prefix of it: the matches that libzstd found are kept, and
//! only the entropy coding is repeated.
//!
//! libzstd documents `ZSTD_generateSequences` as a function for debugging, which may fail. So
//! nothing here trusts its result: each match is compared with the input, and the caller compresses
//! without it if it fails. See docs/decisions/0019-parse-once-for-zstd.md.
#![allow(unsafe_code)]

use std::ffi::c_int;

use zstd_safe::zstd_sys::{
    ZSTD_Sequence, ZSTD_SequenceFormat_e, ZSTD_cParameter, ZSTD_compressSequences,
    ZSTD_generateSequences, ZSTD_sequenceBound,
};

use super::ZstdParams;
use super::context::{Context, common, is_ok};

/// The shortest match of the format, in bytes.
const MIN_MATCH: usize = 3;
/// log2 of the entries in the tables of the context that only encodes: it searches nothing, so
/// these are the smallest that libzstd accepts.
const NO_TABLES: c_int = 6;

const END_OF_BLOCK: ZSTD_Sequence =
    ZSTD_Sequence { offset: 0, litLength: 0, matchLength: 0, rep: 0 };

/// The matches of one input.
pub(super) struct Sequences {
    finder: Context,
    encoder: Context,
    /// The end of a block has offset and length 0.
    sequences: Vec<ZSTD_Sequence>,
    /// Where each sequence ends in the input.
    ends: Vec<u32>,
}

impl Sequences {
    /// `None` if libzstd gives no contexts.
    pub(super) fn new(params: ZstdParams) -> Option<Self> {
        let common = common(params);
        // Blocks end where the sequences say so, and repeated offsets are found at each level.
        let blocks = ZSTD_SequenceFormat_e::ZSTD_sf_explicitBlockDelimiters as c_int;
        let only_encode = [
            (ZSTD_cParameter::ZSTD_c_experimentalParam11, blocks),
            (ZSTD_cParameter::ZSTD_c_experimentalParam19, 1),
            (ZSTD_cParameter::ZSTD_c_minMatch, MIN_MATCH as c_int),
            (ZSTD_cParameter::ZSTD_c_hashLog, NO_TABLES),
            (ZSTD_cParameter::ZSTD_c_chainLog, NO_TABLES),
        ];
        Some(Self {
            finder: Context::new(&common)?,
            encoder: Context::new(&[&common[..], &only_encode[..]].concat())?,
            sequences: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// Finds the matches in `src`: less than 4 GiB. Returns whether that succeeded.
    pub(super) fn parse(&mut self, src: &[u8]) -> bool {
        self.sequences.clear();
        // SAFETY: the function has no conditions.
        let most = unsafe { ZSTD_sequenceBound(src.len()) };
        // One more: a prefix may end within a match.
        self.sequences.reserve(most + 1);
        let (to, from) = (self.sequences.as_mut_ptr(), src.as_ptr().cast());
        // SAFETY: there is room for `most` sequences, and `src` is readable; the context is valid.
        let count =
            unsafe { ZSTD_generateSequences(self.finder.as_ptr(), to, most, from, src.len()) };
        if !is_ok(count) || count > most {
            return false;
        }
        // SAFETY: libzstd wrote `count` sequences, which is at most the capacity.
        unsafe { self.sequences.set_len(count) };
        self.check(src)
    }

    /// Notes where each sequence ends. Returns whether the sequences are exactly `src`.
    fn check(&mut self, src: &[u8]) -> bool {
        self.ends.clear();
        let mut at = 0usize;
        for sequence in &self.sequences {
            let (offset, len) = (sequence.offset as usize, sequence.matchLength as usize);
            let start = at.saturating_add(sequence.litLength as usize);
            let end = start.saturating_add(len);
            let is_match = len >= MIN_MATCH
                && (1..=start).contains(&offset)
                && end <= src.len()
                && is_repeated(src, start, end, offset);
            if end > src.len() || !is_match && (len, offset) != (0, 0) {
                return false;
            }
            at = end;
            self.ends.push(end as u32);
        }
        let ends_block = self.sequences.last().is_some_and(|last| last.matchLength == 0);
        at == src.len() && ends_block
    }

    /// Encodes the first `len` bytes of `src`, which was parsed, or more bytes that start with it.
    /// `None` if that fails or `dst` is too small.
    pub(super) fn encode(&mut self, src: &[u8], len: usize, dst: &mut [u8]) -> Option<usize> {
        let src = src.get(..len).filter(|src| !src.is_empty())?;
        // The sequence that holds the last byte.
        let last = self.ends.partition_point(|end| (*end as usize) < len);
        let cut = *self.sequences.get(last)?;
        let start = last.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let literals = (len - start).min(cut.litLength as usize);
        let matched = len - start - literals;
        let mut end = last;
        let saved = (cut, self.sequences.get(last + 1).copied());
        if matched >= MIN_MATCH {
            self.sequences[last] =
                ZSTD_Sequence { litLength: literals as u32, matchLength: matched as u32, ..cut };
            self.put(last + 1, END_OF_BLOCK);
            end += 1;
        } else {
            let literals = (literals + matched) as u32;
            self.sequences[last] = ZSTD_Sequence { litLength: literals, ..END_OF_BLOCK };
        }
        let sequences = &self.sequences[..=end];
        let (to, from) = (dst.as_mut_ptr().cast(), src.as_ptr().cast());
        let encoder = self.encoder.as_ptr();
        // SAFETY: the pointers are of slices with these lengths, the context is valid, and the
        // sequences are exactly `src`: `check` compared all of them with the input, and the last
        // one was cut to end with `src`.
        let size = unsafe {
            ZSTD_compressSequences(
                encoder,
                to,
                dst.len(),
                sequences.as_ptr(),
                sequences.len(),
                from,
                src.len(),
            )
        };
        self.sequences[last] = saved.0;
        match saved.1 {
            Some(next) => self.sequences[last + 1] = next,
            None => self.sequences.truncate(last + 1),
        }
        is_ok(size).then_some(size)
    }

    fn put(&mut self, at: usize, sequence: ZSTD_Sequence) {
        match self.sequences.get_mut(at) {
            Some(place) => *place = sequence,
            None => self.sequences.push(sequence),
        }
    }
}

/// Whether the bytes from `start` to `end` are those `offset` bytes before them.
fn is_repeated(src: &[u8], start: usize, end: usize, offset: usize) -> bool {
    src[start..end] == src[start - offset..end - offset]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Portion;
    use crate::zstd::Decoder;
    use proptest::prelude::*;

    #[test]
    fn false_matches_are_found() {
        let text = b"one two three one two three and one two three and four ".repeat(40);
        let mut sequences = Sequences::new(ZstdParams { level: 5, window_log: 20 }).unwrap();
        assert!(sequences.parse(&text) && sequences.check(&text));
        let good = sequences.sequences.clone();
        for change in [
            |s: &mut ZSTD_Sequence| s.offset += 1,
            |s: &mut ZSTD_Sequence| s.offset = u32::MAX,
            |s: &mut ZSTD_Sequence| s.matchLength += 1,
            |s: &mut ZSTD_Sequence| s.litLength = u32::MAX,
            |s: &mut ZSTD_Sequence| s.offset = 0,
        ] {
            sequences.sequences.clone_from(&good);
            change(&mut sequences.sequences[0]);
            assert!(!sequences.check(&text));
        }
    }

    proptest! {
        #[test]
        fn each_prefix_is_encoded(
            pieces in proptest::collection::vec((proptest::collection::vec(0u8..9, 1..40), 1usize..400), 1..20),
            lens in proptest::collection::vec(1usize..100_000, 1..8),
            level in 1u8..=22,
        ) {
            let input = pieces.into_iter().map(|(text, n)| text.repeat(n)).collect::<Vec<_>>().concat();
            let mut sequences = Sequences::new(ZstdParams { level, window_log: 20 }).unwrap();
            prop_assume!(sequences.parse(&input));
            for len in lens.into_iter().map(|len| len.min(input.len())).chain([input.len()]) {
                let mut dst = vec![0; zstd_safe::compress_bound(len) + 64];
                let size = sequences.encode(&input, len, &mut dst);
                let mut out = vec![0; len];
                Decoder::default().decode(&dst[..size.unwrap()], &mut out, Portion::Whole).unwrap();
                prop_assert!(out == input[..len]);
            }
        }
    }
}
