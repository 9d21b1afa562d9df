//! The match finder of LZ4's levels 1 to 12: hash chains of four-byte strings over one cluster.
//!
//! Positions go in by blocks of 64, without a branch; each block also yields a word of *hits*, the positions whose newest
//! candidate holds. Where there is no hit nothing is searched, and looking for the next hit costs next to nothing: most
//! positions match nowhere, and a mispredicted branch at each would cost more than all the rest.
//!
//! What is to be longer than `n` bytes also holds the four that end there. Once a match is known its end's chain is
//! walked instead of its start's: it is mostly empty, which ends the search. Most candidates on it are of no use beside
//! those before them, which the strings at their ends tell without a comparison of all.
#![allow(unsafe_code)]

use std::hint::select_unpredictable;

use super::cluster::{Cluster, Match, Span};
use super::mem;
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH};

const RING: usize = 1 << 16;
const MAX_LOG: u32 = 17;
/// Outputs up to this get a table half as large.
const SMALL: usize = 16 << 10;

/// Where the newest candidate is another string of the same hash, so many behind it are looked at.
const HIDDEN: u32 = 2;

/// A walk along a chain, from the newest candidate for a position on.
struct Walk {
    at: usize,
    /// The latest candidate modulo 64 KiB, and its distance.
    older: usize,
    distance: usize,
    /// The largest distance of use: not before the cluster.
    most: usize,
}

impl Walk {
    /// From `at` to candidates at most `most` before it.
    #[inline(always)]
    fn new(at: usize, most: usize) -> Self {
        Self { at, older: at % RING, distance: 0, most }
    }

    /// The next candidate's distance. Where a chain ends its link leads elsewhere: to a smaller distance, or a larger one at which
    /// there is another string.
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

/// A bit for each byte, which is 0 or 1; the first is the lowest.
#[inline(always)]
fn pack(bytes: &[u8; 64]) -> u64 {
    let eights = bytes.as_chunks().0.iter().enumerate();
    // The product's highest byte gathers the lowest bits of all eight.
    eights.fold(0, |bits, (i, eight)| {
        bits | (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i)
    })
}

/// The finder: hash chains of the positions so far.
pub(super) struct Finder {
    /// By hash: the newest position modulo 64 KiB. What is empty is 0, as the first position.
    heads: Box<[u16]>,
    /// By position, the next older one of the same hash, both modulo 64 KiB. At a chain's end they turn back.
    links: Box<[u16; RING]>,
    /// A bit for each position that is in the chains: whether the next older one begins the same string, or else one of the
    /// [`HIDDEN`] behind that. It may be set where the next older one is 64 KiB away, and no walk finds it.
    hits: Vec<u64>,
    log: u32,
    /// Whether what another string of the same hash hides is a hit.
    exact: bool,
    max_distance: usize,
}

impl Finder {
    /// `exact` if what another string of the same hash hides is a hit.
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

    /// Forgets all: another cluster begins, which fills `output` bytes.
    pub(super) fn begin(&mut self, output: usize) {
        self.log = if output <= SMALL { MAX_LOG - 1 } else { MAX_LOG };
        self.heads[..1 << self.log].fill(0);
        self.hits.clear();
    }

    /// Whether the string at `at` has occurred before, as far as its newest candidate tells.
    #[inline(always)]
    pub(super) fn is_hit(&mut self, cluster: Cluster<'_>, at: usize) -> bool {
        self.insert(cluster, at);
        self.hits[at / 64] >> (at % 64) & 1 != 0
    }

    /// Has the blocks up to that of `at` in the chains. A string must lie there.
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
        let lap = first - ring;
        let mut hits = [0; 64];
        if count == 64 {
            // Four in a turn, which spares a fifth of the instructions: the counting.
            for (i, four) in hits.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                for (k, hit) in four.iter_mut().enumerate() {
                    // SAFETY: `first + 64 + 3 <= total`, and all before is in.
                    *hit = unsafe { self.enter(cluster.src(), lap, ring + 4 * i + k) }.into();
                }
            }
        } else {
            for (i, hit) in hits.iter_mut().enumerate().take(count) {
                // SAFETY: `first + count + 3 <= total`, and all before is in.
                *hit = unsafe { self.enter(cluster.src(), lap, ring + i) }.into();
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

    /// Enters the position `at` of the ring's lap that begins at `lap`. Whether the newest candidate holds; of no meaning if it is 64 KiB
    /// away.
    ///
    /// # Safety
    /// `lap + at + 4 <= src.len()`, `lap` is a multiple of 64 KiB, and all positions before, but none behind, are in.
    #[inline(always)]
    unsafe fn enter(&mut self, src: &[u8], lap: usize, at: usize) -> bool {
        // SAFETY: the caller keeps `lap + at + 4` within `src`.
        let string = unsafe { mem::load32(src, lap + at) };
        let hash = (string.wrapping_mul(0x9E37_79B1) >> (32 - self.log)) as usize;
        // SAFETY: a hash has `log` bits, and there are as many heads or more.
        let head = unsafe { self.heads.get_unchecked_mut(hash) };
        let older = std::mem::replace(head, at as u16);
        self.links[at % RING] = older;
        let distance = at.wrapping_sub(older.into()) % RING;
        // SAFETY: heads are earlier positions modulo 64 KiB, or 0: the distance leads to the cluster's start at most.
        string == unsafe { mem::load32(src, lap + at - distance) }
    }

    /// Which of the ring's 64 positions from `ring` on have a link to another than the first.
    #[inline(always)]
    fn linked(&self, ring: usize) -> u64 {
        let mut linked = [0; 64];
        for (linked, link) in linked.iter_mut().zip(&self.links[ring..ring + 64]) {
            *linked = (*link != 0).into();
        }
        pack(&linked)
    }

    /// Whether one of the candidates behind the newest one holds.
    #[inline(always)]
    fn is_hidden(&self, cluster: Cluster<'_>, at: usize) -> bool {
        let probe = cluster.probe(at);
        let mut older = usize::from(self.links[at % RING]);
        let mut distance = at.wrapping_sub(older) % RING;
        let (mut is_linked, mut is_hidden) = (true, false);
        // Without a branch: what they find is as good as random.
        for _ in 0..HIDDEN {
            older = usize::from(self.links[older]);
            let next = at.wrapping_sub(older) % RING;
            is_linked &= (next > distance) & (next <= at);
            is_hidden |= is_linked & (probe.differs(cluster, next) == 0);
            distance = next;
        }
        is_hidden
    }

    /// The first position from `from` to `limit` that has a hit; `limit` if there is none.
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

    /// The largest distance of use at `at`.
    #[inline(always)]
    fn most(&self, at: usize) -> usize {
        at.min(self.max_distance)
    }

    /// The longest match at `at` among `attempts` candidates; none if there is none.
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
        // What is walked is the chain of the string `offset` behind `at`.
        let (mut offset, mut there) = (0, here);
        self.insert(cluster, at);
        let mut walk = Walk::new(at, self.most(at));
        for _ in 0..attempts {
            let Some(distance) = walk.next(&self.links) else { break };
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`.
            let begins = unsafe { mem::load32(src, from) } == here;
            // SAFETY: this lies before where `there` was loaded from.
            let ends = unsafe { mem::load32(src, from + offset) } == there;
            if !(begins & ends) {
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
                walk = Walk::new(at + offset, self.most(at));
                // SAFETY: `at + len < end`, so that `at + offset + 4 <= end`.
                there = unsafe { mem::load32(src, at + offset) };
            }
        }
        if best.distance == 0 { Match::default() } else { best }
    }

    /// The longest match at `at` among the `attempts` newest candidates; none if there is none.
    ///
    /// # Panics
    /// If no match may start at `at`.
    #[inline(always)]
    pub(super) fn longest_of_newest(&mut self, cluster: Cluster<'_>, at: usize, attempts: u32) -> Match {
        assert!(at + MATCH_LIMIT <= cluster.total(), "a match's start");
        let end = cluster.total() - LAST_LITERALS;
        let src = cluster.src();
        let mut best = Match { len: MIN_MATCH - 1, distance: 0 };
        self.insert(cluster, at);
        let mut walk = Walk::new(at, self.most(at));
        for _ in 0..attempts {
            let Some(distance) = walk.next(&self.links) else { break };
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`, and `at + 12 <= total`.
            let len = unsafe { mem::common(src, at, from, end) };
            let is_longer = len > best.len;
            best.len = select_unpredictable(is_longer, len, best.len);
            best.distance = select_unpredictable(is_longer, distance, best.distance);
        }
        if best.distance == 0 { Match::default() } else { best }
    }

    /// Tells `found` of the matches that begin at `floor` or later and go on beyond `end`, where a known one ends, among
    /// `attempts` candidates. Of those that begin no earlier than the first so far only what ends later: than the first if it
    /// begins before the last, than the last otherwise.
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
        // Where the last string starts that all of them hold.
        let at = end - 3;
        let most = cluster.total() - LAST_LITERALS;
        self.insert(cluster, at);
        let here = cluster.probe(at);
        // Of the candidates so far: where the first begins and how far it reaches, where the last begins and ends.
        let (mut first, mut reach, mut latest, mut last) = (at + 1, 0, 0, 0);
        // What another must hold to begin before the first, to begin before the last and go on beyond the first's reach, or to
        // end after the last.
        let (mut earlier, mut between, mut further, mut later) = (here, here, here, here);
        let mut walk = Walk::new(at, self.most(at));
        for _ in 0..attempts {
            let Some(distance) = walk.next(&self.links) else { break };
            // Most candidates are of no use, for one reason or the other: these are not to be branched on.
            let mut is_useful = later.differs(cluster, distance) == 0;
            // What of this is needed changes with the best candidates only.
            if first > floor {
                is_useful |= earlier.differs(cluster, distance) == 0;
            }
            if reach < last {
                is_useful |= between.differs(cluster, distance) | further.differs(cluster, distance) == 0;
            }
            if !(is_useful & (here.differs(cluster, distance) == 0)) {
                continue;
            }
            let from = at - distance;
            // SAFETY: distances are positive, so `from < at`; and `at + 4 = end + 1 <= most`.
            let more = unsafe { mem::common(cluster.src(), at + 4, from + 4, most) };
            let span =
                Span { first: at - cluster.before(at, distance, at - floor), end: at + 4 + more, distance };
            let before = |start: usize| cluster.probe(start.max(1) - 1);
            // A match never goes on beyond `most`.
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
