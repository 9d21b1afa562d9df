//! LZ4's level 0: one probe of one hash table, a step that grows where nothing matches.
//!
//! What costs time here is mispredicted branches, about two for each sequence; so lengths are found sixteen bytes at a
//! time, and copies overrun. The table holds positions modulo 64 KiB: 16 KiB hold 8192 of them. It is cleared for each
//! cluster, as what earlier clusters left would be out of reach, but not out of sight.
#![allow(unsafe_code)]

use super::mem;
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH, Sink};
use crate::error::EncodeError;
use crate::fit::{self, Fit};

const HASH_LOG: u32 = 13;
/// Misses after which the step grows by one, as a power of two.
const SKIP_LOG: u32 = 6;

pub(super) struct Fast {
    /// By hash: the latest position, from the cluster's start, modulo 64 KiB.
    table: Box<[u16; 1 << HASH_LOG]>,
    max_distance: u16,
}

/// The hash of a word's first five bytes.
#[inline(always)]
fn hash(word: u64) -> usize {
    ((word << 24).wrapping_mul(889_523_592_379) >> (64 - HASH_LOG)) as usize
}

impl Fast {
    pub(super) fn new(max_distance: u16) -> Self {
        Self { table: Box::new([0; 1 << HASH_LOG]), max_distance }
    }

    pub(super) fn fit(
        &mut self,
        src: &[u8],
        start: usize,
        dst: &mut [u8],
        window: usize,
    ) -> Result<Fit, EncodeError> {
        let end = fit::check(src, start, dst, window)?;
        let mut sink = Sink::new(dst);
        let mut anchor = start;
        let match_end = end.saturating_sub(LAST_LITERALS);
        // The last position at which a match may start; eight bytes are readable from it.
        let last = end.saturating_sub(MATCH_LIMIT);
        self.table.fill(0);
        let table = &mut *self.table;
        // The first position is in the table: it is 0, as what is empty.
        let mut at = start + 1;
        while at <= last {
            let mut misses = 1usize << SKIP_LOG;
            let distance = loop {
                // SAFETY: `at <= last`, so `at + 8 <= end <= src.len()`.
                let here = unsafe { mem::load64(src, at) };
                let position = (at - start) as u16;
                let slot = &mut table[hash(here)];
                let distance = position.wrapping_sub(*slot);
                *slot = position;
                // SAFETY: every entry is a position before `at`, modulo 64 KiB. The distance is thus the true one, or
                // shorter by a multiple of 64 KiB, and leads to this cluster's start at most.
                let there = unsafe { mem::load32(src, at - usize::from(distance)) };
                // A distance of 0 wraps, and is beyond the most as well.
                if there == here as u32 && distance.wrapping_sub(1) < self.max_distance {
                    break distance;
                }
                at += misses >> SKIP_LOG;
                misses += 1;
                if at > last {
                    return Ok(sink.finish(src, start, anchor, end));
                }
            };
            let from = at - usize::from(distance);
            // SAFETY: `from < at`, and `at + 4 <= last + 4 < match_end <= src.len()`.
            let next =
                at + MIN_MATCH + unsafe { mem::common(src, at + MIN_MATCH, from + MIN_MATCH, match_end) };
            let mut back = 0;
            // SAFETY: both indexes are positive and at most `at`, which is below `end`.
            if at > anchor && from > start && unsafe { mem::same(src, at - 1, from - 1) } {
                let most = (at - anchor).min(from - start);
                // SAFETY: `most <= from <= at <= src.len()`.
                back = unsafe { mem::common_before(src, at, from, most) };
            }
            at -= back;
            let len = next - at;
            let written = sink.sequence(src, start, anchor, at, distance, len);
            if written < len {
                if written > 0 {
                    anchor = at + written;
                }
                break;
            }
            at = next;
            anchor = next;
            // SAFETY: `next - 3 > start`, and `next <= match_end`, so `next - 3 + 8 <= end`.
            let behind = unsafe { mem::load64(src, next - 3) } >> 8;
            table[hash(behind)] = (next - 2 - start) as u16;
        }
        Ok(sink.finish(src, start, anchor, end))
    }
}
