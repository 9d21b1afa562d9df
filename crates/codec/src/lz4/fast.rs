//! LZ4's level 0: one probe of one hash table, a step that grows where nothing matches. The table lives on over the
//! clusters and, by a base that moves on, over the files; only for small outputs is it cleared at each.
#![allow(unsafe_code)]

use super::mem;
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH, Sink};
use crate::error::EncodeError;
use crate::fit::{self, Fit, MAX_INPUT};

const HASH_LOG: u32 = 13;
/// Misses after which the step grows by one, as a power of two.
const SKIP_LOG: u32 = 6;

/// For outputs below this the table is cleared at each cluster after all: what earlier clusters left is out of reach but
/// often looks alike, and the branches mispredicted over it cost more (measured at 4 KiB: 0.5 of liblz4's speed, cleared
/// 0.85).
const CLEAR_BELOW: usize = 32 << 10;

pub(super) struct Fast {
    /// By hash: `base` + position of its latest occurrence. Anything below `base` is from an earlier file.
    table: Box<[u32; 1 << HASH_LOG]>,
    base: u32,
    seen: u32,
    max_distance: usize,
}

#[inline(always)]
fn hash(five: u64) -> usize {
    ((five << 24).wrapping_mul(889_523_592_379) >> (64 - HASH_LOG)) as usize
}

impl Fast {
    pub(super) fn new(max_distance: u16) -> Self {
        Self { table: Box::new([0; 1 << HASH_LOG]), base: 1, seen: 0, max_distance: max_distance.into() }
    }

    pub(super) fn begin(&mut self) {
        self.base += self.seen;
        self.seen = 0;
        if self.base as usize > u32::MAX as usize - MAX_INPUT {
            self.table.fill(0);
            self.base = 1;
        }
    }

    pub(super) fn fit(
        &mut self,
        src: &[u8],
        start: usize,
        dst: &mut [u8],
        window: usize,
    ) -> Result<Fit, EncodeError> {
        let end = fit::check(src, start, dst, window)?;
        self.seen = self.seen.max(src.len() as u32);
        let small = dst.len() < CLEAR_BELOW;
        let mut sink = Sink::new(dst);
        let mut anchor = start;
        if end - start > MATCH_LIMIT {
            // The last position at which a match may start; eight bytes are readable from it.
            let last = end - MATCH_LIMIT;
            let match_end = end - LAST_LITERALS;
            if small {
                self.table.fill(0);
            }
            let (table, base) = (&mut *self.table, self.base);
            // SAFETY: `start < last` and `last + 8 <= end <= src.len()`.
            let five = unsafe { mem::load64(src, start) };
            table[hash(five)] = base + start as u32;
            let mut at = start + 1;
            // SAFETY: `start + 1 <= last`.
            let mut here = unsafe { mem::load64(src, at) };
            'sequences: loop {
                let mut misses = 1usize << SKIP_LOG;
                let candidate = loop {
                    let slot = &mut table[hash(here)];
                    let candidate = (*slot).wrapping_sub(base) as usize;
                    *slot = base + at as u32;
                    let ahead = at + (misses >> SKIP_LOG);
                    misses += 1;
                    // What an earlier file or a later position left wraps round to beyond `at`, or lies there.
                    // One branch for all: the bytes are loaded before it is known whether the candidate is in reach.
                    let near = (candidate.wrapping_sub(start) < at - start)
                        & (at.wrapping_sub(candidate) <= self.max_distance);
                    // SAFETY: the index is at most `at + 1`, and `at + 8 <= end <= src.len()`.
                    let there = unsafe { mem::load32(src, candidate.min(at + 1)) };
                    if near & (there == here as u32) {
                        break candidate;
                    }
                    if ahead > last {
                        break 'sequences;
                    }
                    at = ahead;
                    // SAFETY: `at <= last`, so `at + 8 <= end`.
                    here = unsafe { mem::load64(src, at) };
                };
                let (mut at2, mut from) = (at, candidate);
                // SAFETY: both indexes are positive and at most `at`, which is below `end`.
                while at2 > anchor && from > start && unsafe { mem::same(src, at2 - 1, from - 1) } {
                    at2 -= 1;
                    from -= 1;
                }
                // SAFETY: `candidate < at`, and `at + 4 <= last + 4 < match_end <= src.len()`.
                let more = unsafe { mem::common(src, at + MIN_MATCH, candidate + MIN_MATCH, match_end) };
                let len = at - at2 + MIN_MATCH + more;
                let written = sink.sequence(src, start, anchor, at2, (at - candidate) as u16, len);
                if written < len {
                    if written > 0 {
                        anchor = at2 + written;
                    }
                    return Ok(sink.finish(src, start, anchor, end));
                }
                at = at2 + len;
                anchor = at;
                if at > last {
                    break;
                }
                // SAFETY: `at - 2 > start` is below `last`, so `at - 2 + 8 <= end`.
                let behind = unsafe { mem::load64(src, at - 2) };
                table[hash(behind)] = base + at as u32 - 2;
                // SAFETY: `at <= last`, so `at + 8 <= end`.
                here = unsafe { mem::load64(src, at) };
            }
        }
        Ok(sink.finish(src, start, anchor, end))
    }
}
