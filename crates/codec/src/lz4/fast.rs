//! LZ4 level 0: one hash table with one candidate for each position, and steps that grow where
//! nothing matches.
//!
//! Most of the time goes to mispredicted branches, about two for each sequence. So match lengths
//! are compared sixteen bytes at a time, and copies may overrun. The table stores positions modulo
//! 64 KiB, so that 16 KiB hold 8192 of them. It is cleared for each cluster: matches must not refer
//! to earlier clusters, and their entries could not be told apart.
#![allow(unsafe_code)]

use super::mem;
use super::sequence_writer::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH, SequenceWriter};
use crate::fit::Fit;

/// log2 of the larger table's entries, which take 32 KiB.
const MAX_LOG: u32 = 14;
/// For outputs of at least this many bytes the hash covers six bytes instead of five, and the table
/// is twice as large: that gives fewer and longer matches, of which a large cluster has enough.
const LARGE: usize = 16 << 10;
/// log2 of the misses after which the step grows by one byte.
const SKIP_LOG: u32 = 6;

/// If a large cluster saves at most an eighth of its size, it is encoded again with a hash of five
/// bytes. Clusters of programs save more, and random bytes are skipped quickly, so that this takes
/// little time.
const LOW_GAIN: usize = 8;

pub(super) struct Fast {
    /// By hash: the latest position, modulo 64 KiB.
    table: Box<[u16; 1 << MAX_LOG]>,
    max_distance: u16,
}

/// The hash of a word's first `BYTES` bytes, five or six, in `LOG` bits.
#[inline(always)]
fn hash<const BYTES: u32, const LOG: u32>(word: u64) -> usize {
    let factor: u64 = if BYTES == 5 { 889_523_592_379 } else { 227_718_039_650_203 };
    ((word << (64 - 8 * BYTES)).wrapping_mul(factor) >> (64 - LOG)) as usize
}

/// The bytes that a cluster saves.
fn gain(fit: &Fit) -> usize {
    match fit {
        Fit::Encoded { consumed, produced, .. } => consumed.saturating_sub(*produced),
        Fit::Incompressible => 0,
    }
}

impl Fast {
    pub(super) fn new(max_distance: u16) -> Self {
        Self { table: Box::new([0; 1 << MAX_LOG]), max_distance }
    }

    /// Encodes as much of `src[..end]` as fits.
    pub(super) fn fit(&mut self, src: &[u8], end: usize, dst: &mut [u8]) -> Fit {
        assert!(end <= src.len(), "a cluster lies within its input");
        if dst.len() < LARGE {
            return self.encode::<5, 13>(src, end, dst);
        }
        let long = self.encode::<6, MAX_LOG>(src, end, dst);
        if gain(&long) > end.min(dst.len()) / LOW_GAIN {
            return long;
        }
        // A list of numbers, for example, has only matches of five bytes.
        let short = self.encode::<5, MAX_LOG>(src, end, dst);
        if gain(&short) > gain(&long) {
            return short;
        }
        match long {
            Fit::Incompressible => long,
            // The output has the bytes of the other attempt.
            Fit::Encoded { .. } => self.encode::<6, MAX_LOG>(src, end, dst),
        }
    }

    #[inline(never)]
    fn encode<const BYTES: u32, const LOG: u32>(
        &mut self,
        src: &[u8],
        end: usize,
        dst: &mut [u8],
    ) -> Fit {
        let most = dst.len();
        let mut writer = SequenceWriter::new(dst);
        let mut anchor = 0;
        let match_end = end.saturating_sub(LAST_LITERALS);
        // The last position at which a match may start; eight bytes are readable from it.
        let last = end.saturating_sub(MATCH_LIMIT);
        let (table, max_distance) = (&mut *self.table, self.max_distance);
        table[..1 << LOG].fill(0);
        // Position 0 needs no entry: empty entries are 0, too.
        let mut at = 1;
        'sequences: while at <= last {
            let mut misses = 1usize << SKIP_LOG;
            // A match beyond this position is useless: the literals before it would not fit.
            let stop = last.min(at + most);
            // SAFETY: `at <= last`, so `at + 8 <= end <= src.len()`.
            let mut here = unsafe { mem::load64(src, at) };
            let distance = loop {
                let newest = std::mem::replace(&mut table[hash::<BYTES, LOG>(here)], at as u16);
                let distance = at.wrapping_sub(newest.into()) & 0xFFFF;
                // SAFETY: every entry is a position before `at`, modulo 64 KiB. The distance is
                // thus the true one, or shorter by a multiple of 64 KiB, and leads to this
                // cluster's start at most.
                let there = unsafe { mem::load32(src, at - distance) };
                // A distance of 0 wraps around, so that it exceeds the maximum, too.
                if there == here as u32 && distance.wrapping_sub(1) < usize::from(max_distance) {
                    break distance;
                }
                at += misses >> SKIP_LOG;
                misses += 1;
                if at > stop {
                    break 'sequences;
                }
                // SAFETY: `at <= stop <= last`.
                here = unsafe { mem::load64(src, at) };
            };
            let from = at - distance;
            // SAFETY: `from < at`, and `at + 4 <= last + 4 < match_end <= src.len()`.
            let more = unsafe { mem::common(src, at + MIN_MATCH, from + MIN_MATCH, match_end) };
            let next = at + MIN_MATCH + more;
            let mut back = 0;
            // SAFETY: both indexes are positive and at most `at`, which is below `end`.
            if at > anchor && from > 0 && unsafe { mem::same(src, at - 1, from - 1) } {
                let reach = (at - anchor).min(from);
                // SAFETY: `reach <= from <= at <= src.len()`.
                back = unsafe { mem::common_before(src, at, from, reach) };
            }
            let len = next - (at - back);
            let written = writer.sequence(src, anchor, at - back, distance as u16, len);
            if written < len {
                if written > 0 {
                    anchor = at - back + written;
                }
                break;
            }
            at = next;
            anchor = next;
            if at > last {
                break;
            }
            // Enter two positions of the match into the table; more of them gain little.
            for behind in [at - 4, at - 2] {
                // SAFETY: `4 <= at`, and `at <= last`.
                let word = unsafe { mem::load64(src, behind) };
                table[hash::<BYTES, LOG>(word)] = behind as u16;
            }
        }
        writer.finish(src, anchor, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_clusters_of_short_matches_are_encoded() {
        let numbers: Vec<u8> =
            (10_000..40_000).flat_map(|n: u32| format!("{n}\n").into_bytes()).collect();
        let mut fast = Fast::new(u16::MAX);
        for (end, size) in [(numbers.len(), LARGE), (numbers.len(), 64 << 10), (40_000, 64 << 10)] {
            let mut out = vec![0; size];
            let fit = fast.fit(&numbers[..end], end, &mut out);
            assert!(gain(&fit) > end.min(size) / LOW_GAIN, "{end} bytes into {size}: {fit:?}");
        }
    }
}
