//! LZ4's levels 7 to 12: a shortest-path parse under the cluster's byte budget. Of all encodings by the matches found,
//! the one that reaches furthest into the input.
//!
//! A sequence costs a token, its literals and two bytes of distance, plus length bytes beyond 14 literals or a match of
//! 18. Reaching further at the same cost never hurts, so of all matches at hand only the one that ends last matters, and
//! of that its whole and its longest part without length bytes. The path's nodes are therefore few: where a match
//! starts, and where one ends. They are found by a bit for each position; between them lie literals.
//!
//! Matches are searched for where none is known, and then at its end: what reaches beyond an end holds
//! the four bytes there. Nodes ahead of the parse live in a ring that stays in the first-level cache; settled ones go into
//! a list. A very long match is taken at once.
//!
//! There is a node for every five bytes or so, and whether a match or literals lead to it is as good as random: so it is
//! selected, not branched on, and no node waits for what the last one stored.

use std::cmp::Reverse;
use std::hint::select_unpredictable as select;

use super::chain::Finder;
use super::cluster::{Cluster, Match, Span};
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH, SHORT, Sink, extension};
use crate::fit::Fit;

/// Candidates tried where no match is at hand: longer matches than theirs are found from their end.
const FIRST: u32 = 3;
/// Bytes of a usual match. Beyond one that is `n` times as long, `n` times as many candidates are tried: content of long matches
/// has few of them, each with many candidates that are nearly as good.
const USUAL: usize = 24;
/// Positions searched between two rounds of the parse, at most.
const CHUNK: usize = 512;
/// A match of this many bytes or more is taken without looking at what else there is.
const LONG: usize = 1024;
/// Positions for which nodes may be pending: rounds end within a match, search on for a chunk, and find another.
const RING: usize = 4096;
const _: () = assert!(CHUNK + 2 * LONG < RING);

/// How much a level searches.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Candidates tried for what goes on beyond a match's end.
    pub(super) attempts: u32,
    /// Whether to search where the newest candidate is another string, but one not far behind it holds.
    pub(super) exact: bool,
}

/// What a path costs: bytes in the high 24 bits, the open sequence's token with them. The low 8 bits count its literals
/// so that they overflow into the bytes where a length byte is due; of two paths of the same bytes the one whose next
/// length byte is further off is the smaller. (Every 256 literals instead of 255: the output's end is exact anyway.)
type Cost = u32;

/// An open sequence without literals: the fifteenth overflows.
const NO_LITERALS: Cost = 256 - 15;
const LITERAL: u64 = 0x101;
const UNREACHED: Cost = u32::MAX;

const fn bytes(cost: Cost) -> usize {
    (cost >> 8) as usize
}

/// A position where a match starts or ends, not yet settled. It has its bit set, or is [`EMPTY`](Self::EMPTY).
#[derive(Clone, Copy)]
struct Node {
    /// The cheapest path by a match that ends here, the settled node before it, and its distance.
    cost: Cost,
    from: u32,
    by: u16,
    /// The end of the longest match that starts here, and its distance.
    distance: u16,
    end: u32,
}

impl Node {
    /// No match starts or ends here.
    const EMPTY: Self = Self { cost: UNREACHED, from: 0, by: 0, distance: 0, end: 0 };
}

/// A node whose cheapest path is known: it goes on from `from`, by a match of distance `by`, or by literals if that is 0.
#[derive(Clone, Copy)]
struct Settled {
    at: u32,
    from: u32,
    by: u16,
}

/// The end of an encoding: a match of `last` (if any) behind a settled node, then literals.
#[derive(Clone, Copy, Default)]
struct End {
    reach: usize,
    node: usize,
    last: Match,
}

/// How far the parse has come.
#[derive(Clone, Copy)]
struct Front {
    /// The latest settled node's position.
    at: usize,
    cost: Cost,
    /// The first position that may hold a pending node.
    next: usize,
    /// The match at hand that ends last.
    end: usize,
    distance: u16,
    /// The last position for a match.
    last: usize,
    best: End,
}

pub(super) struct Optimal {
    finder: Finder,
    effort: Effort,
    /// By position modulo the ring.
    nodes: Box<[Node; RING]>,
    /// A bit for each position: whether it is a pending node.
    marks: [u64; RING / 64],
    settled: Vec<Settled>,
    path: Vec<Span>,
}

impl Optimal {
    pub(super) fn new(effort: Effort, max_distance: u16) -> Self {
        Self {
            finder: Finder::new(max_distance, effort.exact),
            effort,
            nodes: Box::new([Node::EMPTY; RING]),
            marks: [0; RING / 64],
            settled: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Encodes as much of `src[..end]` as fits.
    pub(super) fn fit(&mut self, src: &[u8], end: usize, dst: &mut [u8]) -> Fit {
        let cluster = Cluster::new(src, end);
        let best = self.parse(cluster, dst.len());
        let matches = self.trace(best);
        let mut sink = Sink::new(dst);
        let mut anchor = 0;
        for &Span { first, end, distance } in self.path[..matches].iter().rev() {
            let written = sink.sequence(src, anchor, first, distance as u16, end - first);
            if written > 0 {
                anchor = first + written;
            }
            if written < end - first {
                break;
            }
        }
        sink.finish(src, anchor, end)
    }

    /// Searches and parses by turns until the budget is spent.
    fn parse(&mut self, cluster: Cluster<'_>, budget: usize) -> End {
        self.finder.begin(budget);
        self.clear();
        self.settled.clear();
        self.settled.push(Settled { at: 0, from: 0, by: 0 });
        let (total, last) = (cluster.total(), cluster.last());
        // Literals alone reach this far, or further.
        let best = End { reach: budget - 1 - budget / 255, ..End::default() };
        let cost = 1 << 8 | NO_LITERALS;
        let mut front = Front { at: 0, cost, next: 1, end: 0, distance: 0, last, best };
        // The end of the match that ends last, and where it starts.
        let (mut cover, mut begun) = (0usize, 0usize);
        let mut at = 1;
        while at <= last {
            let spare = budget.saturating_sub(bytes(front.cost));
            let limit = (at + CHUNK.min(spare / 2 + 32)).min(last + 1);
            // All of the round at once: that another block is due would be a surprise each time.
            self.finder.insert(cluster, limit - 1);
            while at < limit {
                at = self.finder.next_hit(cluster, at, limit);
                if at == limit {
                    break;
                }
                let known = cover.saturating_sub(at);
                // Where a match is at hand another may have begun earlier.
                let floor = if at < cover { begun.max(front.next).min(at) } else { at };
                let found = if known == 3 && cover + LAST_LITERALS < total {
                    self.take_all(cluster, floor, begun, cover)
                } else {
                    self.take_longest(cluster, floor, at)
                };
                let Some(found) = found.filter(|found| found.end > cover) else {
                    at += 1;
                    continue;
                };
                if found.is_long() {
                    if !self.jump(&mut front, found, cover, budget) {
                        return front.best;
                    }
                    (begun, cover, at) = (found.end, found.end, found.end);
                    // A round ends: the budget may be spent.
                    break;
                }
                (begun, cover) = (found.first, found.end);
                // Nothing ends later than the input.
                at = if cover + LAST_LITERALS >= total { cover } else { (at + 1).max(cover - 3) };
            }
            // What starts later may yet begin earlier, but not before the latest match.
            let settled = if at < cover { begun } else { at };
            self.advance(&mut front, settled.min(total), budget);
            let literals = settled.min(total).saturating_sub(front.at) as u64;
            if bytes_of(front.cost, literals) > budget as u64 {
                break;
            }
        }
        self.advance(&mut front, cover + 1, budget);
        front.best
    }

    /// Notes the longest match at `at`, from where it begins after `floor`, and returns it.
    #[inline(always)]
    fn take_longest(&mut self, cluster: Cluster<'_>, floor: usize, at: usize) -> Option<Span> {
        let mut found = self.finder.longest_of_newest(cluster, at, FIRST);
        if found.len >= LONG {
            // It is taken at once: nothing is looked for at its end.
            found = self.finder.longest(cluster, at, self.effort.attempts);
        }
        let Match { len, distance } = found;
        let first = at - cluster.before(at, distance.min(at), at - floor);
        let found = (len > 0).then_some(Span { first, end: at + len, distance })?;
        note(&mut self.nodes, &mut self.marks, found);
        Some(found)
    }

    /// Notes all matches that begin after `floor` and go on beyond `cover`, where the one ends that has `begun`, and returns the
    /// long one that begins first, or else the one that ends last.
    #[inline(never)]
    fn take_all(&mut self, cluster: Cluster<'_>, floor: usize, begun: usize, cover: usize) -> Option<Span> {
        let Self { finder, nodes, marks, effort, .. } = self;
        let (mut long, mut last): (Option<Span>, Option<Span>) = (None, None);
        // A match that is not long has less than a KiB.
        let attempts = effort.attempts * ((cover - begun) / USUAL).max(1) as u32;
        finder.all_beyond(cluster, floor, cover, attempts, |span| {
            note(nodes, marks, span);
            if last.is_none_or(|last| span.end > last.end) {
                last = Some(span);
            }
            let begins_first = |long: Span| (span.first, Reverse(span.end)) < (long.first, Reverse(long.end));
            if span.is_long() && long.is_none_or(begins_first) {
                long = Some(span);
            }
        });
        long.or(last)
    }

    /// Takes the long match `found`, from where it is cheapest to arrive: where it begins, or else at a node up to `cover`, where
    /// a known match ends. Whether the budget allows for all of it.
    #[cold]
    #[inline(never)]
    fn jump(&mut self, front: &mut Front, found: Span, cover: usize, budget: usize) -> bool {
        let Span { first, end, distance } = found;
        node(&mut self.nodes, &mut self.marks, first);
        self.advance(front, first + 1, budget);
        let mut begin = (front.at, front.cost, self.settled.len() as u32 - 1);
        for at in first + 1..=cover.min(end - MIN_MATCH) {
            self.advance(front, at + 1, budget);
            if front.at == at && bytes(front.cost) < bytes(begin.1) {
                begin = (front.at, front.cost, self.settled.len() as u32 - 1);
            }
        }
        let (at, cost, from) = begin;
        if front.at != at {
            self.settled.push(Settled { at: at as u32, from, by: 0 });
            (front.at, front.cost) = (at, cost);
        }
        let len = end - at;
        let spent = bytes(front.cost);
        let after = spent + 3 + extension(len - MIN_MATCH);
        if after + LAST_LITERALS > budget {
            self.end_within(front, len, distance as u16, budget);
            self.advance(front, end, budget);
            return false;
        }
        self.clear();
        let from = self.settled.len() as u32 - 1;
        let cost = (after as u32) << 8 | NO_LITERALS;
        self.arrive(front, Settled { at: end as u32, from, by: distance as u16 }, cost, budget);
        // The next match may start right there.
        front.next = end;
        true
    }

    /// Forgets the pending nodes.
    fn clear(&mut self) {
        for (word, bits) in self.marks.iter_mut().enumerate() {
            while *bits != 0 {
                self.nodes[word * 64 + bits.trailing_zeros() as usize] = Node::EMPTY;
                *bits &= *bits - 1;
            }
        }
    }

    /// Settles the pending nodes before `limit`.
    #[inline(never)]
    fn advance(&mut self, front: &mut Front, limit: usize, budget: usize) {
        // A copy, so that it stays in registers; and so does a word of marks, as each node may mark others in it.
        let mut now = *front;
        let mut first = now.next / 64 * 64;
        while first < limit {
            let word = first / 64 % (RING / 64);
            let mut bits = std::mem::take(&mut self.marks[word]);
            while bits != 0 {
                let at = first + bits.trailing_zeros() as usize;
                if at >= limit {
                    break;
                }
                bits &= bits - 1;
                bits |= self.settle(&mut now, at, budget);
            }
            self.marks[word] |= bits;
            first += 64;
        }
        now.next = now.next.max(limit);
        *front = now;
    }

    /// Has the path `by` at `cost` as the latest.
    #[inline(always)]
    fn arrive(&mut self, front: &mut Front, by: Settled, cost: Cost, budget: usize) {
        let at = by.at as usize;
        let spent = bytes(cost);
        let len = at - self.settled[by.from as usize].at as usize;
        // The block's last bytes are literals.
        if spent + LAST_LITERALS <= budget && len + budget - spent >= MATCH_LIMIT {
            let reach = at + budget - spent;
            if reach >= front.best.reach {
                front.best = End { reach, node: self.settled.len(), last: Match::default() };
            }
        }
        self.settled.push(by);
        (front.at, front.cost) = (at, cost);
    }

    /// Finds the cheapest path to the node at `at`, and goes on from there. Returns the marks to add to the word of `at`.
    #[inline(always)]
    fn settle(&mut self, front: &mut Front, at: usize, budget: usize) -> u64 {
        let node = std::mem::replace(&mut self.nodes[at % RING], Node::EMPTY);
        let literals = u64::from(front.cost) + (at - front.at) as u64 * LITERAL;
        let literals = u32::try_from(literals).unwrap_or(UNREACHED);
        let by_match = node.cost <= literals;
        let latest = self.settled.len() as u32 - 1;
        let by = Settled {
            at: at as u32,
            from: select(by_match, node.from, latest),
            by: select(by_match, node.by, 0),
        };
        self.arrive(front, by, node.cost.min(literals), budget);
        let is_later = node.end as usize > front.end;
        front.end = select(is_later, node.end as usize, front.end);
        front.distance = select(is_later, node.distance, front.distance);
        let spent = bytes(front.cost);
        if front.end < at + MIN_MATCH || at > front.last || spent + 3 + LAST_LITERALS > budget {
            return 0;
        }
        let (end, distance) = (front.end, front.distance);
        let len = end - at;
        let after = ((spent as u32 + 3) << 8) | NO_LITERALS;
        if len <= SHORT {
            return self.relax(at, end, after, distance);
        }
        let mut marks = self.relax(at, at + SHORT, after, distance);
        let lengths = extension(len - MIN_MATCH);
        if spent + 3 + lengths + LAST_LITERALS <= budget {
            marks |= self.relax(at, end, after + ((lengths as u32) << 8), distance);
        } else {
            self.end_within(front, len, distance, budget);
        }
        marks
    }

    /// As much of a match as there is room for ends the block.
    #[cold]
    fn end_within(&mut self, front: &mut Front, len: usize, distance: u16, budget: usize) {
        let spent = bytes(front.cost) + 3 + LAST_LITERALS;
        if spent > budget {
            return;
        }
        let spare = budget - spent;
        let len = len.min(if spare == 0 { SHORT } else { SHORT + spare * 255 });
        let reach = front.at + len + LAST_LITERALS;
        if reach > front.best.reach {
            let last = Match { len, distance: distance.into() };
            front.best = End { reach, node: self.settled.len() - 1, last };
        }
    }

    /// A match of `distance` from the latest settled node, at `at`, ends at `end`, for `cost`. Returns the mark, if it is one of the
    /// word of `at`.
    #[inline(always)]
    fn relax(&mut self, at: usize, end: usize, cost: Cost, distance: u16) -> u64 {
        let mark = 1 << (end % 64);
        let is_near = end / 64 == at / 64;
        self.marks[end / 64 % (RING / 64)] |= select(is_near, 0, mark);
        let from = self.settled.len() as u32 - 1;
        let node = &mut self.nodes[end % RING];
        let is_better = cost <= node.cost;
        node.cost = select(is_better, cost, node.cost);
        node.from = select(is_better, from, node.from);
        node.by = select(is_better, distance, node.by);
        select(is_near, mark, 0)
    }

    /// Collects the matches on the way to `end`, last first, and returns how many there are.
    fn trace(&mut self, end: End) -> usize {
        let Self { settled, path, .. } = self;
        // No path has more nodes than there are, and a last match.
        path.resize(path.len().max(settled.len() + 1), Span::default());
        let (mut node, mut len) = (end.node, 0);
        if end.last.len > 0 {
            let first = settled[node].at as usize;
            path[0] = Span { first, end: first + end.last.len, distance: end.last.distance };
            len = 1;
        }
        while node > 0 {
            let Settled { at, from, by } = settled[node];
            node = from as usize;
            // Literals are overwritten by what comes next: what this is would be as good as random to branch on.
            path[len] = Span { first: settled[node].at as usize, end: at as usize, distance: by.into() };
            len += usize::from(by > 0);
        }
        len
    }
}

/// The bytes that a path of `cost` takes after `literals` more.
const fn bytes_of(cost: Cost, literals: u64) -> u64 {
    (cost as u64 + literals * LITERAL) >> 8
}

/// The node at `at`, which is pending now.
#[inline(always)]
fn node<'n>(nodes: &'n mut [Node; RING], marks: &mut [u64; RING / 64], at: usize) -> &'n mut Node {
    marks[at / 64 % (RING / 64)] |= 1 << (at % 64);
    &mut nodes[at % RING]
}

/// Notes a match where it begins, unless it is a long one.
#[inline(always)]
fn note(nodes: &mut [Node; RING], marks: &mut [u64; RING / 64], found: Span) {
    if found.is_long() {
        return;
    }
    let node = node(nodes, marks, found.first);
    if found.end as u32 > node.end {
        (node.end, node.distance) = (found.end as u32, found.distance as u16);
    }
}

impl Span {
    const fn is_long(self) -> bool {
        self.end - self.first >= LONG
    }
}
