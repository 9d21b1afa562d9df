//! The match finder of LZ4's levels 1 to 12: for a position the longest match within reach, from two hash chains. A
//! distance always costs two bytes, so the longest is all that a parse needs: every shorter one comes with it.
//!
//! The chain of eight-byte strings is walked first; only if it holds nothing is the one of four-byte strings walked, and
//! that stops at seven. Both live on over clusters and files.
#![allow(unsafe_code)]

use super::mem;
use crate::fit::MAX_INPUT;

const HASH_LOG: u32 = 15;
const RING: usize = 1 << 16;

/// How much a level searches.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Candidates tried in the chain of four-byte strings.
    pub(super) short: u32,
    /// Candidates tried in the chain of eight-byte strings.
    pub(super) long: u32,
    /// A match this long is not improved upon.
    pub(super) nice: usize,
}

/// A match: `len` bytes from `distance` back; none if `len` is 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) len: usize,
    pub(super) distance: usize,
}

/// One hash chain. Heads hold `base` + position; links hold the distance to the next older one, 0 at the end.
struct Chain {
    heads: Box<[u32; 1 << HASH_LOG]>,
    links: Box<[u16; RING]>,
}

impl Chain {
    fn new() -> Self {
        Self { heads: Box::new([0; 1 << HASH_LOG]), links: Box::new([0; RING]) }
    }

    #[inline(always)]
    fn insert(&mut self, hash: u64, position: u32) {
        let head = &mut self.heads[(hash >> (64 - HASH_LOG)) as usize];
        let distance = position.wrapping_sub(*head);
        self.links[position as usize % RING] = if distance < RING as u32 { distance as u16 } else { 0 };
        *head = position;
    }

    /// The distance from `position` to the next older string of its chain; 0 if there is none.
    #[inline(always)]
    fn link(&self, position: usize) -> usize {
        usize::from(self.links[position % RING])
    }
}

pub(super) struct Finder {
    short: Chain,
    long: Chain,
    effort: Effort,
    max_distance: usize,
    base: u32,
    /// The longest input since `begin`.
    seen: u32,
    /// The first position that is not in the chains.
    next: usize,
}

impl Finder {
    pub(super) fn new(effort: Effort, max_distance: u16) -> Self {
        Self {
            short: Chain::new(),
            long: Chain::new(),
            effort,
            max_distance: max_distance.into(),
            base: RING as u32,
            seen: 0,
            next: 0,
        }
    }

    pub(super) fn begin(&mut self) {
        self.base += self.seen;
        (self.seen, self.next) = (0, 0);
        if self.base as usize > u32::MAX as usize - MAX_INPUT {
            self.short.heads.fill(0);
            self.long.heads.fill(0);
            self.base = RING as u32;
        }
    }

    /// Announces a cluster at `start`: what lies before it is out of reach.
    pub(super) fn cluster(&mut self, src: &[u8], start: usize) {
        // `check` limited the input to 1 GiB. One more keeps the last position apart from the next file's first.
        self.seen = self.seen.max(src.len() as u32 + 1);
        self.next = self.next.max(start);
    }

    /// The longest match at `at` in the cluster from `start`, ending at `end` or before; `known` is one that is known
    /// to be there and is returned if there is no longer one.
    ///
    /// # Safety
    /// `start <= at`, `at + 8 <= end <= src.len()`, `known` is a match at `at` or none.
    #[inline(always)]
    pub(super) unsafe fn longest(
        &mut self,
        src: &[u8],
        start: usize,
        at: usize,
        end: usize,
        known: Match,
    ) -> Match {
        debug_assert!(start <= at && at + 8 <= end && end <= src.len());
        while self.next <= at {
            // SAFETY: `next <= at`, and `at + 8 <= src.len()`.
            let eight = unsafe { mem::load64(src, self.next) };
            let position = self.base + self.next as u32;
            self.short.insert((eight << 32).wrapping_mul(0x9E37_79B1_85EB_CA87), position);
            self.long.insert(eight.wrapping_mul(0xCF1B_BCDC_B7A5_6463), position);
            self.next += 1;
        }
        if known.len >= self.effort.nice {
            return known;
        }
        let reach = (at - start).min(self.max_distance);
        let limit = end - at;
        // SAFETY: `at + 8 <= src.len()`.
        let here = unsafe { mem::load64(src, at) };
        let mut best = known;
        let mut distance = 0;
        for _ in 0..self.effort.long {
            let link = self.long.link(self.base as usize + at - distance);
            distance += link;
            if link == 0 || distance > reach {
                break;
            }
            let from = at - distance;
            // SAFETY: `from < at`, and `best.len` is at most `limit - 1`, so both loads end within `at + limit`.
            if best.len >= 8 && !unsafe { same_end(src, at, from, best.len) } {
                continue;
            }
            // SAFETY: `from < at` and `at + 8 <= src.len()`.
            if unsafe { mem::load64(src, from) } != here {
                continue;
            }
            // SAFETY: `from < at`, `at + 8 <= end <= src.len()`.
            let len = 8 + unsafe { mem::common(src, at + 8, from + 8, end) };
            if len > best.len {
                best = Match { len, distance };
                if len >= self.effort.nice || len >= limit {
                    return best;
                }
            }
        }
        if best.len >= 7 {
            return best;
        }
        distance = 0;
        for _ in 0..self.effort.short {
            let link = self.short.link(self.base as usize + at - distance);
            distance += link;
            if link == 0 || distance > reach {
                break;
            }
            // SAFETY: `at - distance >= start` and lies below `at`, so its eight bytes are readable.
            let there = unsafe { mem::load64(src, at - distance) };
            let len = ((there ^ here).trailing_zeros() >> 3) as usize;
            if len >= 4 && len > best.len {
                best = Match { len: len.min(limit), distance };
                if len >= 7 {
                    break;
                }
            }
        }
        best
    }
}

/// Whether the candidate at `from` could be longer than `len`: its bytes up to and with number `len` end alike.
///
/// # Safety
/// `from < at`, `len >= 3`, `at + len < src.len()`.
#[inline(always)]
unsafe fn same_end(src: &[u8], at: usize, from: usize, len: usize) -> bool {
    // SAFETY: `at + len - 3 + 4 <= src.len()`.
    let x = unsafe { mem::load32(src, at + len - 3) };
    // SAFETY: `from < at`, so this ends earlier.
    let y = unsafe { mem::load32(src, from + len - 3) };
    x == y
}
