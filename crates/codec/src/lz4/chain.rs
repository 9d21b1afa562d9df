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

use super::mem;
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH};

const RING: usize = 1 << 16;
const MAX_LOG: u32 = 17;
/// Outputs up to this get a table half as large.
const SMALL: usize = 16 << 10;

/// Where the newest candidate is another string of the same hash, so many behind it are looked at.
const HIDDEN: u32 = 2;

/// A match: `len` bytes from `distance` back; none if `len` is 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) len: usize,
    pub(super) distance: usize,
}

/// Where a cluster lies in the input. All other positions count from its start.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'a> {
    src: &'a [u8],
    start: usize,
    /// The cluster's end, at most; a match starts at `total - 12` and ends at `total - 5` at most.
    total: usize,
}

impl<'a> Cluster<'a> {
    /// `src[start..end]`.
    pub(super) fn new(src: &'a [u8], start: usize, end: usize) -> Self {
        assert!(start <= end && end <= src.len(), "a cluster lies within its input");
        Self { src, start, total: end - start }
    }

    pub(super) const fn total(self) -> usize {
        self.total
    }

    /// The last position at which a match may start; 0 if none may.
    pub(super) const fn last(self) -> usize {
        self.total.saturating_sub(MATCH_LIMIT)
    }

    /// How many bytes before `at` and before `distance` further back are alike, at most `most`.
    pub(super) fn before(self, at: usize, distance: usize, most: usize) -> usize {
        assert!(at <= self.total && distance <= at, "a match within the cluster");
        // SAFETY: `most <= at - distance`, both counted from the cluster's start.
        unsafe {
            mem::common_before(self.src, self.start + at, self.start + at - distance, most.min(at - distance))
        }
    }
}

/// A string of a cluster, which candidates are held against.
#[derive(Clone, Copy)]
struct Probe {
    at: usize,
    string: u32,
}

impl Cluster<'_> {
    fn probe(self, at: usize) -> Probe {
        assert!(at + 4 <= self.total, "a string within the cluster");
        // SAFETY: `at + 4 <= total`, counted from the cluster's start.
        Probe { at, string: unsafe { mem::load32(self.src, self.start + at) } }
    }
}

impl Probe {
    /// 0 if the string `distance` further back is the same; of no meaning if that is before the cluster, which is the one
    /// that this is of.
    #[inline(always)]
    fn differs(self, cluster: Cluster<'_>, distance: usize) -> u32 {
        debug_assert!(self.at + 4 <= cluster.total, "a probe of this cluster");
        // SAFETY: no further than where the string lies itself, in the cluster.
        self.string ^ unsafe { mem::load32(cluster.src, cluster.start + self.at.saturating_sub(distance)) }
    }
}

/// A candidate of [`Finder::all_beyond`]: a match from `first` to `end`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) distance: usize,
}

/// The finder: hash chains of the positions so far.
pub(super) struct Finder {
    /// By hash: the newest position modulo 64 KiB. What is empty is 0, as the first position.
    heads: Box<[u16]>,
    /// By position modulo 64 KiB: the distance to the next older one of the same hash; 0 for none.
    links: Box<[u16; RING]>,
    /// A bit for each position that is in the chains: whether the next older one begins the same string, or else one of the
    /// [`HIDDEN`] behind that.
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

    /// Has the blocks up to that of `at` in the chains.
    #[inline(always)]
    fn insert(&mut self, cluster: Cluster<'_>, at: usize) {
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
        let count = (cluster.total + 1).saturating_sub(first + MIN_MATCH).min(64);
        let shift = 32 - self.log;
        let ring = first % RING;
        // The first position's bit is the highest until all are there: to shift them in at the other end is an instruction
        // (shrd) that some processors are slow at.
        let (mut bits, mut hidden) = (0u64, 0u64);
        for (i, link) in self.links[ring..ring + 64].iter_mut().take(count).enumerate() {
            let at = first + i;
            // SAFETY: `at + 4 <= total`.
            let string = unsafe { mem::load32(cluster.src, cluster.start + at) };
            let hash = (string.wrapping_mul(0x9E37_79B1) >> shift) as usize;
            // SAFETY: a hash has `log` bits, and there are as many heads or more.
            let head = unsafe { self.heads.get_unchecked_mut(hash) };
            let newest = *head;
            let distance = (at as u16).wrapping_sub(newest);
            *head = at as u16;
            *link = distance;
            // SAFETY: heads are positions before `at`, modulo 64 KiB: the distance leads to the cluster's start at most.
            let there = unsafe { mem::load32(cluster.src, cluster.start + at - usize::from(distance)) };
            let hit = (there == string) & (distance != 0);
            bits = bits << 1 | u64::from(hit);
            if EXACT {
                hidden = hidden << 1 | u64::from(!hit & (newest != 0));
            }
        }
        let align = |bits: u64| if count == 0 { 0 } else { bits.reverse_bits() >> (64 - count) };
        let mut bits = align(bits);
        let mut hidden = align(hidden);
        while hidden != 0 {
            let i = hidden.trailing_zeros();
            hidden &= hidden - 1;
            bits |= u64::from(self.is_hidden(cluster, first + i as usize)) << i;
        }
        self.hits.push(bits);
    }

    /// Whether one of the candidates behind the newest one holds.
    #[inline(always)]
    fn is_hidden(&self, cluster: Cluster<'_>, at: usize) -> bool {
        let mut back = usize::from(self.links[at % RING]);
        for _ in 0..HIDDEN {
            let link = usize::from(self.links[(at - back) % RING]);
            back += link;
            if link == 0 || back > at.min(RING - 1) {
                return false;
            }
            if cluster.probe(at).differs(cluster, back) == 0 {
                return true;
            }
        }
        false
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

    /// The longest match at `at` among `attempts` candidates; none if there is none.
    ///
    /// # Panics
    /// If no match may start at `at`.
    #[inline(always)]
    pub(super) fn longest(&mut self, cluster: Cluster<'_>, at: usize, attempts: u32) -> Match {
        assert!(at + MATCH_LIMIT <= cluster.total, "a match's start");
        let end = cluster.total - LAST_LITERALS;
        let (src, start) = (cluster.src, cluster.start);
        let mut best = Match { len: MIN_MATCH - 1, distance: 0 };
        // SAFETY: `at + 12 <= total`.
        let here = unsafe { mem::load32(src, start + at) };
        // What is walked is the chain of the string `offset` behind `at`.
        let (mut offset, mut walk, mut there) = (0, at, here);
        self.insert(cluster, walk);
        for _ in 0..attempts {
            let link = usize::from(self.links[walk % RING]);
            if link == 0 || link + offset > walk {
                break;
            }
            walk -= link;
            let from = walk - offset;
            if at - from > self.max_distance {
                break;
            }
            // SAFETY: links are positive, so `from < at`.
            let begins = unsafe { mem::load32(src, start + from) } == here;
            // SAFETY: `walk` lies before where `there` was loaded from.
            let ends = unsafe { mem::load32(src, start + walk) } == there;
            if !(begins & ends) {
                continue;
            }
            // SAFETY: `from < at`, and `at + 4 <= end`.
            let len = 4 + unsafe { mem::common(src, start + at + 4, start + from + 4, start + end) };
            if len > best.len {
                best = Match { len, distance: at - from };
                if at + len >= end {
                    break;
                }
                offset = len - 3;
                walk = at + offset;
                self.insert(cluster, walk);
                // SAFETY: `at + len < end`, so that `walk + 4 <= end`.
                there = unsafe { mem::load32(src, start + walk) };
            }
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
        assert!(floor + 3 <= end && end + LAST_LITERALS < cluster.total, "a match's end");
        // Where the last string starts that all of them hold.
        let at = end - 3;
        let most = cluster.total - LAST_LITERALS;
        self.insert(cluster, at);
        let here = cluster.probe(at);
        // Of the candidates so far: where the first begins and how far it reaches, where the last begins and ends.
        let (mut first, mut reach, mut latest, mut last) = (at + 1, 0, 0, 0);
        // What another must hold to begin before the first, to begin before the last and go on beyond the first's reach, or to
        // end after the last.
        let (mut earlier, mut between, mut further, mut later) = (here, here, here, here);
        let mut from = at;
        for _ in 0..attempts {
            let link = usize::from(self.links[from % RING]);
            if link == 0 || link > from || at - (from - link) > self.max_distance {
                break;
            }
            from -= link;
            let distance = at - from;
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
            let (src, start) = (cluster.src, cluster.start);
            // SAFETY: links are positive, so `from < at`; and `at + 4 = end + 1 <= most`.
            let more = unsafe { mem::common(src, start + at + 4, start + from + 4, start + most) };
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
