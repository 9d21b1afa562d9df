//! The match finder of LZ4 levels 1 to 12: hash chains of four-byte strings over one cluster.
//!
//! Positions enter the chains in blocks of 64, without a branch. Each block also yields a word of
//! *hits*: a bit for each position whose newest candidate has the same four bytes. The parses
//! search only at hits, and finding the next hit is cheap. Most positions match nowhere; a
//! mispredicted branch at each would cost more than everything else.
//!
//! A match that is longer than a known one contains the four bytes at the known one's end. So the
//! finder follows the chain of these four bytes instead of the chain of the first four: it is
//! usually empty, which ends the search. Most candidates in it are no better than earlier
//! candidates; comparing four bytes at their ends shows that.
#![allow(unsafe_code)]

use std::hint::select_unpredictable;

use super::cluster::{Cluster, Match, Span};
use super::mem;
use super::sequence_writer::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH};

/// Positions that chains can hold: LZ4 distances have 16 bits.
const RING: usize = 1 << 16;
/// log2 of the larger hash table's entries, which take 256 KiB.
const MAX_LOG: u32 = 17;
/// For outputs of up to this many bytes the table has half the entries: it is cleared for each
/// cluster.
const SMALL: usize = 16 << 10;

/// If the newest candidate is another string with the same hash, this many older candidates are
/// compared, too.
const HIDDEN_CANDIDATES: u32 = 2;

/// The candidates for a position, from the newest on: an iterator over a chain.
struct Candidates {
    at: usize,
    /// The last returned candidate's position, modulo 64 KiB, and its distance.
    older: usize,
    distance: usize,
    /// The largest allowed distance, which does not lead before the cluster's start.
    most: usize,
}

impl Candidates {
    /// The candidates for `at`, at most `most` bytes before it.
    #[inline(always)]
    fn new(at: usize, most: usize) -> Self {
        Self { at, older: at % RING, distance: 0, most }
    }

    /// The next candidate's distance. At a chain's end the link is meaningless: it leads to a
    /// smaller distance, which ends the iteration, or to a larger one, where the comparison of the
    /// strings fails.
    #[inline(always)]
    fn next(&mut self, links: &[u16; RING]) -> Option<usize> {
        self.older = usize::from(links[self.older]);
        let distance = self.at.wrapping_sub(self.older) % RING;
        if distance <= self.distance || distance > self.most {
            return None;
        }
        self.distance = distance;
        Some(distance)
    }
}

/// Packs 64 bytes, each 0 or 1, into the bits of a word; the first byte becomes the lowest bit.
#[inline(always)]
fn pack(bytes: &[u8; 64]) -> u64 {
    let eights = bytes.as_chunks().0.iter().enumerate();
    // The multiplication moves the lowest bits of all eight bytes into the highest byte.
    eights.fold(0, |bits, (i, eight)| {
        bits | (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i)
    })
}

/// The hash chains of the positions entered so far.
pub(super) struct Finder {
    /// By hash: the newest position, modulo 64 KiB. Empty entries are 0, which is also the first
    /// position.
    heads: Box<[u16]>,
    /// By position: the next older position with the same hash, both modulo 64 KiB. The link at a
    /// chain's end is meaningless.
    links: Box<[u16; RING]>,
    /// A bit for each entered position: whether its newest candidate has the same four bytes or, if
    /// `exact`, one of the [`HIDDEN_CANDIDATES`] after that. It may be set although the candidate
    /// is 64 KiB away, too far for a match.
    hits: Vec<u64>,
    log: u32,
    /// Whether a position is a hit, too, if another string with the same hash is its newest
    /// candidate.
    exact: bool,
    max_distance: usize,
}

impl Finder {
    /// With `exact`, a position is a hit, too, if another string with the same hash is its newest
    /// candidate.
    pub(super) fn new(max_distance: u16, exact: bool) -> Self {
        Self {
            heads: vec![0; 1 << MAX_LOG].into_boxed_slice(),
            links: Box::new([0; RING]),
            hits: Vec::new(),
            log: MAX_LOG,
            exact,
            max_distance: max_distance.into(),
        }
    }

    /// Clears the chains for another cluster, whose output has `output` bytes.
    pub(super) fn begin(&mut self, output: usize) {
        self.log = if output <= SMALL { MAX_LOG - 1 } else { MAX_LOG };
        self.heads[..1 << self.log].fill(0);
        self.hits.clear();
    }

    /// Whether `at` is a hit: whether its newest candidate has the same four bytes.
    #[inline(always)]
    pub(super) fn is_hit(&mut self, cluster: Cluster<'_>, at: usize) -> bool {
        self.insert(cluster, at);
        self.hits[at / 64] >> (at % 64) & 1 != 0
    }

    /// Enters the positions up to the block of `at` into the chains. At least four bytes must
    /// follow `at`.
    #[inline(always)]
    pub(super) fn insert(&mut self, cluster: Cluster<'_>, at: usize) {
        while self.hits.len() * 64 <= at {
            match self.exact {
                true => self.insert_block::<true>(cluster),
                false => self.insert_block::<false>(cluster),
            }
        }
    }

    #[inline(never)]
    fn insert_block<const EXACT: bool>(&mut self, cluster: Cluster<'_>) {
        let first = self.hits.len() * 64;
        let count = (cluster.total() + 1).saturating_sub(first + MIN_MATCH).min(64);
        let ring = first % RING;
        let base = first - ring;
        let mut hits = [0; 64];
        if count == 64 {
            // Four positions in each iteration: a fifth of the instructions would otherwise be
            // spent on counting.
            for (i, four) in hits.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                for (k, hit) in four.iter_mut().enumerate() {
                    // SAFETY: `first + 64 + 3 <= total`, and all earlier positions are entered.
                    *hit = unsafe { self.enter(cluster.src(), base, ring + 4 * i + k) }.into();
                }
            }
        } else {
            for (i, hit) in hits.iter_mut().enumerate().take(count) {
                // SAFETY: `first + count + 3 <= total`, and all earlier positions are entered.
                *hit = unsafe { self.enter(cluster.src(), base, ring + i) }.into();
            }
        }
        let mut bits = pack(&hits);
        if EXACT {
            let all = u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
            let mut hidden = self.linked(ring) & all & !bits;
            while hidden != 0 {
                let i = hidden.trailing_zeros();
                hidden &= hidden - 1;
                bits |= u64::from(self.is_hidden(cluster, first + i as usize)) << i;
            }
        }
        self.hits.push(bits);
    }

    /// Enters the position `base + at`. Returns whether its newest candidate has the same four
    /// bytes; the result is meaningless if the candidate is 64 KiB away.
    ///
    /// # Safety
    /// `base + at + 4 <= src.len()`, `base` is a multiple of 64 KiB, and all earlier positions, but
    /// no later ones, are entered.
    #[inline(always)]
    unsafe fn enter(&mut self, src: &[u8], base: usize, at: usize) -> bool {
        // SAFETY: the caller keeps `base + at + 4` within `src`.
        let string = unsafe { mem::load32(src, base + at) };
        let hash = (string.wrapping_mul(0x9E37_79B1) >> (32 - self.log)) as usize;
        // SAFETY: a hash has `log` bits, and `heads` has at least `1 << log` entries.
        let head = unsafe { self.heads.get_unchecked_mut(hash) };
        let older = std::mem::replace(head, at as u16);
        self.links[at % RING] = older;
        let distance = at.wrapping_sub(older.into()) % RING;
        // SAFETY: heads are earlier positions modulo 64 KiB, or 0: the distance leads no further
        // than to the cluster's start.
        string == unsafe { mem::load32(src, base + at - distance) }
    }

    /// A bit for each of the 64 positions from `ring` on: whether its link leads to a position
    /// other than the first.
    #[inline(always)]
    fn linked(&self, ring: usize) -> u64 {
        let mut linked = [0; 64];
        for (linked, link) in linked.iter_mut().zip(&self.links[ring..ring + 64]) {
            *linked = (*link != 0).into();
        }
        pack(&linked)
    }

    /// Whether one of the candidates after the newest one has the same four bytes.
    #[inline(always)]
    fn is_hidden(&self, cluster: Cluster<'_>, at: usize) -> bool {
        let probe = cluster.probe(at);
        let mut older = usize::from(self.links[at % RING]);
        let mut distance = at.wrapping_sub(older) % RING;
        let (mut is_linked, mut is_hidden) = (true, false);
        // Without a branch: the results are unpredictable.
        for _ in 0..HIDDEN_CANDIDATES {
            older = usize::from(self.links[older]);
            let next = at.wrapping_sub(older) % RING;
            is_linked &= (next > distance) & (next <= at);
            is_hidden |= is_linked & (probe.differs(cluster, next) == 0);
            distance = next;
        }
        is_hidden
    }

    /// The first hit from `from` on; `limit` if there is none before it.
    ///
    /// # Panics
    /// If `limit` is more than one beyond the last position for a match.
    #[inline(always)]
    pub(super) fn next_hit(&mut self, cluster: Cluster<'_>, from: usize, limit: usize) -> usize {
        assert!(limit <= cluster.last() + 1, "matches start before");
        let mut word = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while word * 64 < limit {
            self.insert(cluster, word * 64);
            let bits = self.hits[word] & mask;
            if bits != 0 {
                return limit.min(word * 64 + bits.trailing_zeros() as usize);
            }
            mask = u64::MAX;
            word += 1;
        }
        limit
    }

    /// The largest distance of a match at `at`.
    #[inline(always)]
    fn max_distance_at(&self, at: usize) -> usize {
        at.min(self.max_distance)
    }

    /// The longest match at `at` among `attempts` candidates; of length 0 if there is none. After
    /// each longer match it continues with the candidates of the match's end.
    ///
    /// # Panics
    /// If no match may start at `at`.
    #[inline(always)]
    pub(super) fn longest(&mut self, cluster: Cluster<'_>, at: usize, attempts: u32) -> Match {
        assert!(at + MATCH_LIMIT <= cluster.total(), "a match's start");
        let end = cluster.total() - LAST_LITERALS;
        let src = cluster.src();
        let mut best = Match { len: MIN_MATCH - 1, distance: 0 };
        // SAFETY: `at + 12 <= total`.
        let here = unsafe { mem::load32(src, at) };
        // The candidates are those of the four bytes at `at + offset`, which are `there`.
        let (mut offset, mut there) = (0, here);
        self.insert(cluster, at);
        let mut candidates = Candidates::new(at, self.max_distance_at(at));
        for _ in 0..attempts {
            let Some(distance) = candidates.next(&self.links) else { break };
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`.
            let same_start = unsafe { mem::load32(src, from) } == here;
            // SAFETY: this lies before where `there` was loaded from.
            let same_end = unsafe { mem::load32(src, from + offset) } == there;
            if !(same_start & same_end) {
                continue;
            }
            // SAFETY: `from < at`, and `at + 4 <= end`.
            let len = 4 + unsafe { mem::common(src, at + 4, from + 4, end) };
            if len > best.len {
                best = Match { len, distance };
                if at + len >= end {
                    break;
                }
                offset = len - 3;
                self.insert(cluster, at + offset);
                candidates = Candidates::new(at + offset, self.max_distance_at(at));
                // SAFETY: `at + len < end`, so that `at + offset + 4 <= end`.
                there = unsafe { mem::load32(src, at + offset) };
            }
        }
        if best.distance == 0 { Match::default() } else { best }
    }

    /// The longest match at `at` among the `attempts` newest candidates; of length 0 if there is
    /// none.
    ///
    /// # Panics
    /// If no match may start at `at`.
    #[inline(always)]
    pub(super) fn longest_of_newest(
        &mut self,
        cluster: Cluster<'_>,
        at: usize,
        attempts: u32,
    ) -> Match {
        assert!(at + MATCH_LIMIT <= cluster.total(), "a match's start");
        let end = cluster.total() - LAST_LITERALS;
        let src = cluster.src();
        let mut best = Match { len: MIN_MATCH - 1, distance: 0 };
        self.insert(cluster, at);
        let mut candidates = Candidates::new(at, self.max_distance_at(at));
        for _ in 0..attempts {
            let Some(distance) = candidates.next(&self.links) else { break };
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`, and `at + 12 <= total`.
            let len = unsafe { mem::common(src, at, from, end) };
            let is_longer = len > best.len;
            best.len = select_unpredictable(is_longer, len, best.len);
            best.distance = select_unpredictable(is_longer, distance, best.distance);
        }
        if best.distance == 0 { Match::default() } else { best }
    }

    /// Finds, among `attempts` candidates, the matches that start at or after `floor` and end after
    /// `end`, the end of a known match, and calls `found` for each useful one. A match is useful if
    /// it starts before the earliest-starting match so far; if it starts before the last-ending
    /// match and ends after the earliest-starting one; or if it ends last.
    ///
    /// # Panics
    /// If no match may end at `end`.
    #[inline(always)]
    pub(super) fn all_beyond(
        &mut self,
        cluster: Cluster<'_>,
        floor: usize,
        end: usize,
        attempts: u32,
        mut found: impl FnMut(Span),
    ) {
        assert!(floor + 3 <= end && end + LAST_LITERALS < cluster.total(), "a match's end");
        // The last four bytes that all these matches contain start here.
        let at = end - 3;
        let most = cluster.total() - LAST_LITERALS;
        self.insert(cluster, at);
        let here = cluster.probe(at);
        // The start and the end of the earliest-starting match so far; the start and the end of the
        // last-ending one.
        let (mut first, mut reach, mut latest, mut last) = (at + 1, 0, 0, 0);
        // The four bytes that a match must contain to start before the earliest-starting match; to
        // start before the last-ending match, and to end after the earliest-starting one; to end
        // after the last-ending one.
        let (mut earlier, mut between, mut further, mut later) = (here, here, here, here);
        let mut candidates = Candidates::new(at, self.max_distance_at(at));
        for _ in 0..attempts {
            let Some(distance) = candidates.next(&self.links) else { break };
            // Most candidates are useless, for unpredictable reasons: one branch on all of them.
            let mut is_useful = later.differs(cluster, distance) == 0;
            // These two branches are predictable: they change only with the matches found.
            if first > floor {
                is_useful |= earlier.differs(cluster, distance) == 0;
            }
            if reach < last {
                is_useful |=
                    between.differs(cluster, distance) | further.differs(cluster, distance) == 0;
            }
            if !(is_useful & (here.differs(cluster, distance) == 0)) {
                continue;
            }
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`; and `at + 4 = end + 1 <= most`.
            let more = unsafe { mem::common(cluster.src(), at + 4, from + 4, most) };
            let span = Span {
                first: at - cluster.before(at, distance, at - floor),
                end: at + 4 + more,
                distance,
            };
            let before = |start: usize| cluster.probe(start.max(1) - 1);
            // No match ends after `most`.
            let beyond = |end: usize| cluster.probe(end.min(most - 1) - 3);
            let is_between = span.first < latest && span.end > reach;
            let is_first = span.first < first || span.first == first && span.end > reach;
            if is_first {
                (first, reach) = (span.first, span.end);
                (earlier, further) = (before(first), beyond(reach));
            }
            let is_last = span.end > last || span.end == last && span.first < latest;
            if is_last {
                (latest, last) = (span.first, span.end);
                (between, later) = (before(latest), beyond(last));
            }
            if is_first | is_between | is_last {
                found(span);
            }
        }
    }
}
