//! LZ4 levels 7 to 12: a shortest-path parse that fills the cluster's output, the byte budget. Of
//! all encodings with the matches found, it chooses the one that takes the most input.
//!
//! A sequence costs a token, its literals and two bytes of distance, and length bytes for more than
//! 14 literals or a match of more than 18 bytes. A longer match at the same cost is never worse. So
//! of all matches that known_end a position only the one that ends last matters, at its full length
//! or at the longest length without length bytes. The nodes of the graph are the positions where
//! matches start and end, marked by a bit for each position; literals connect them.
//!
//! The parse searches for matches where it knows none, and then at a known match's end: all matches
//! that go beyond that end contain the four bytes there. Pending nodes are in a ring buffer that
//! stays in the first-level cache; settled nodes, whose cheapest path is known, are in a list. When
//! the list is full, the path to its last node is written, and the parse starts again after it. A
//! very long match is taken at once.
//!
//! About every fifth byte is a node, and whether a match or literals lead to it is unpredictable.
//! So the code selects without a branch, and no node depends on a store by the node before it.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::hint::select_unpredictable as select;

use super::chain::Finder;
use super::cluster::{Cluster, Match, Span};
use super::sequence_writer::{
    LAST_LITERALS, MATCH_LIMIT, MAX_SHORT, MIN_MATCH, SequenceWriter, length_bytes,
};
use crate::fit::Fit;

/// Candidates tried where no match is known: longer matches are found from the end of the match
/// that they give.
const FIRST_ATTEMPTS: u32 = 3;
/// The length in bytes of a usual match. For a match of `n` times that length, `n` times as many
/// candidates are tried at its end: input with long matches has few of them, each with many
/// candidates that are nearly as good.
const USUAL_LEN: usize = 24;
/// The most positions searched before the parse settles nodes.
const CHUNK: usize = 512;
/// A match of at least this many bytes is taken without a search for a better one, which could save
/// little.
const LONG: usize = 1024;
/// The range of positions that may hold pending nodes: a round may start within a match, search a
/// chunk, and find another match at its end.
const RING: usize = 4096;
const _: () = assert!(CHUNK + 2 * LONG < RING);
/// The most settled nodes, so that memory does not grow with the input.
const MAX_SETTLED: usize = 1 << 16;

/// How much a level searches.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// The most candidates tried for matches that go beyond a known match's end.
    pub(super) attempts: u32,
    /// Whether to search, too, where another string with the same hash is the newest candidate.
    pub(super) exact: bool,
}

/// The cost of a path. The high 24 bits count bytes, which include the token of the sequence that
/// is not yet complete. The low 8 bits count that sequence's literals, so that they overflow into
/// the bytes when a length byte is due; of two paths with the same bytes, the one that needs its
/// next length byte later is cheaper. (This counts a length byte for every 256 literals instead of
/// 255; the writer computes exact sizes.)
type Cost = u32;

/// The low bits of a sequence without literals: its fifteenth literal overflows.
const NO_LITERALS: Cost = 256 - 15;
/// The cost of a literal: one byte, and one in the low bits.
const LITERAL: u64 = 0x101;
const UNREACHED: Cost = u32::MAX;

const fn bytes(cost: Cost) -> usize {
    (cost >> 8) as usize
}

/// A pending node: a position where a match starts or ends. Its mark is set, or it is
/// [`EMPTY`](Self::EMPTY).
#[derive(Clone, Copy)]
struct Node {
    /// The cheapest path with a match that ends here: its cost, the settled node where that match
    /// starts, and its distance.
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

/// A node whose cheapest path is known: the path comes from the settled node `from` with a match of
/// distance `by`, or with literals if `by` is 0.
#[derive(Clone, Copy)]
struct Settled {
    at: u32,
    from: u32,
    by: u16,
}

/// The end of an encoding: after the settled node `node` a match `last`, if its length is not 0,
/// then literals up to `reach`.
#[derive(Clone, Copy, Default)]
struct End {
    reach: usize,
    node: usize,
    last: Match,
}

impl End {
    /// At the settled node `node`, without literals.
    fn at(node: usize) -> Self {
        Self { node, ..Self::default() }
    }
}

#[derive(Clone, Copy)]
struct ParseState {
    /// The latest settled node's position.
    at: usize,
    cost: Cost,
    /// The first position that may be a pending node.
    next: usize,
    /// The end and the distance of the match that ends last, of those that start at or before `at`.
    end: usize,
    distance: u16,
    /// The last position for a match.
    last: usize,
    best: End,
}

pub(super) struct Optimal {
    finder: Finder,
    effort: Effort,
    /// By position modulo [`RING`].
    nodes: Box<[Node; RING]>,
    /// A bit for each position modulo [`RING`]: whether it is a pending node.
    marks: [u64; RING / 64],
    settled: Vec<Settled>,
    /// [`MAX_SETTLED`], and less in tests.
    max_settled: usize,
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
            max_settled: MAX_SETTLED,
            path: Vec::new(),
        }
    }

    /// Encodes as much of `src[..end]` as fits.
    pub(super) fn fit(&mut self, src: &[u8], end: usize, dst: &mut [u8]) -> Fit {
        let (cluster, budget) = (Cluster::new(src, end), dst.len());
        let mut writer = SequenceWriter::new(dst);
        let mut anchor = 0;
        let mut state = self.begin(cluster, budget);
        loop {
            let is_list_full = self.parse(cluster, &mut state, budget);
            let matches =
                self.trace(if is_list_full { End::at(self.settled.len() - 1) } else { state.best });
            let mut is_full = false;
            for &Span { first, end, distance } in self.path[..matches].iter().rev() {
                let written = writer.sequence(src, anchor, first, distance as u16, end - first);
                if written > 0 {
                    anchor = first + written;
                }
                is_full = written < end - first;
                if is_full {
                    break;
                }
            }
            if is_full || !is_list_full {
                return writer.finish(src, anchor, end);
            }
            self.restart(&mut state, budget);
        }
    }

    /// Starts the parse of a cluster.
    fn begin(&mut self, cluster: Cluster<'_>, budget: usize) -> ParseState {
        self.finder.begin(budget);
        self.clear();
        self.settled.clear();
        self.settled.push(Settled { at: 0, from: 0, by: 0 });
        // Literals alone take at least this much input.
        let best = End { reach: budget - 1 - budget / 255, ..End::default() };
        let cost = 1 << 8 | NO_LITERALS;
        ParseState { at: 0, cost, next: 1, end: 0, distance: 0, last: cluster.last(), best }
    }

    /// Starts the parse again at the latest settled node.
    fn restart(&mut self, state: &mut ParseState, budget: usize) {
        self.clear();
        self.settled.clear();
        self.settled.push(Settled { at: state.at as u32, from: 0, by: 0 });
        state.best = End { reach: state.at + budget - bytes(state.cost), ..End::default() };
        state.next = state.at;
    }

    /// Alternates between searching matches and settling nodes until the budget is spent, and
    /// returns false, or until the list of settled nodes is full.
    fn parse(&mut self, cluster: Cluster<'_>, state: &mut ParseState, budget: usize) -> bool {
        let (total, last) = (cluster.total(), cluster.last());
        // The end and the start of the match that ends last.
        let (mut known_end, mut known_start) = (state.next, state.next);
        let mut at = state.next;
        while at <= last {
            let spare = budget.saturating_sub(bytes(state.cost));
            let limit = (at + CHUNK.min(spare / 2 + 32)).min(last + 1);
            // Enter all positions of the round at once: the branch on each block would be
            // mispredicted.
            self.finder.insert(cluster, limit - 1);
            while at < limit {
                at = self.finder.next_hit(cluster, at, limit);
                if at == limit {
                    break;
                }
                let covered = known_end.saturating_sub(at);
                // If a known match covers `at`, a new one may start earlier than `at`.
                let floor = if at < known_end { known_start.max(state.next).min(at) } else { at };
                let found = if covered == 3 && known_end + LAST_LITERALS < total {
                    self.take_all(cluster, floor, known_start, known_end)
                } else {
                    self.take_longest(cluster, floor, at)
                };
                let Some(found) = found.filter(|found| found.end > known_end) else {
                    at += 1;
                    continue;
                };
                if found.is_long() {
                    if !self.take_long(state, found, known_end, budget) {
                        return false;
                    }
                    (known_start, known_end, at) = (found.end, found.end, found.end);
                    // End the round, as the budget may be spent.
                    break;
                }
                (known_start, known_end) = (found.first, found.end);
                // No match ends after the input's end.
                at = if known_end + LAST_LITERALS >= total {
                    known_end
                } else {
                    (at + 1).max(known_end - 3)
                };
            }
            // A match found later may be extended to an earlier start, but not before the start of
            // the known match.
            let settled = if at < known_end { known_start } else { at };
            self.advance(state, settled.min(total), budget);
            let literals = settled.min(total).saturating_sub(state.at) as u64;
            if bytes_with_literals(state.cost, literals) > budget as u64 {
                break;
            }
            // A round settles fewer nodes than the ring has. Literals may end the block here.
            if self.settled.len() > self.max_settled - 2 * RING
                && bytes(state.cost) + LAST_LITERALS + MATCH_LIMIT <= budget
            {
                return true;
            }
        }
        self.advance(state, known_end + 1, budget);
        false
    }

    /// Finds the longest match at `at`, extends its start to `floor` at most, adds it to the nodes,
    /// and returns it.
    #[inline(always)]
    fn take_longest(&mut self, cluster: Cluster<'_>, floor: usize, at: usize) -> Option<Span> {
        let mut found = self.finder.longest_of_newest(cluster, at, FIRST_ATTEMPTS);
        if found.len >= LONG {
            // It is taken at once, without a search at its end: find the longest one now.
            found = self.finder.longest(cluster, at, self.effort.attempts);
        }
        let Match { len, distance } = found;
        let first = at - cluster.before(at, distance.min(at), at - floor);
        let found = (len > 0).then_some(Span { first, end: at + len, distance })?;
        add_match(&mut self.nodes, &mut self.marks, found);
        Some(found)
    }

    /// Adds to the nodes all matches that start at or after `floor` and end after the known match
    /// from `known_start` to `known_end`. Returns the long match that starts first, or else the
    /// match that ends last.
    #[inline(never)]
    fn take_all(
        &mut self,
        cluster: Cluster<'_>,
        floor: usize,
        known_start: usize,
        known_end: usize,
    ) -> Option<Span> {
        let Self { finder, nodes, marks, effort, .. } = self;
        let (mut long, mut last): (Option<Span>, Option<Span>) = (None, None);
        // Long matches are taken at once, so the known match is shorter than `LONG`.
        let attempts = effort.attempts * ((known_end - known_start) / USUAL_LEN).max(1) as u32;
        finder.all_beyond(cluster, floor, known_end, attempts, |span| {
            add_match(nodes, marks, span);
            if last.is_none_or(|last| span.end > last.end) {
                last = Some(span);
            }
            let begins_first =
                |long: Span| (span.first, Reverse(span.end)) < (long.first, Reverse(long.end));
            if span.is_long() && long.is_none_or(begins_first) {
                long = Some(span);
            }
        });
        long.or(last)
    }

    /// Takes the long match `found` from its cheapest start: its first position, or a later node up
    /// to `known_end`. Returns whether the budget is enough for all of it.
    #[cold]
    #[inline(never)]
    fn take_long(
        &mut self,
        state: &mut ParseState,
        found: Span,
        known_end: usize,
        budget: usize,
    ) -> bool {
        let Span { first, end, distance } = found;
        node(&mut self.nodes, &mut self.marks, first);
        self.advance(state, first + 1, budget);
        let mut begin = (state.at, state.cost, self.settled.len() as u32 - 1);
        for at in first + 1..=known_end.min(end - MIN_MATCH) {
            self.advance(state, at + 1, budget);
            if state.at == at && bytes(state.cost) < bytes(begin.1) {
                begin = (state.at, state.cost, self.settled.len() as u32 - 1);
            }
        }
        let (at, cost, from) = begin;
        if state.at != at {
            self.settled.push(Settled { at: at as u32, from, by: 0 });
            (state.at, state.cost) = (at, cost);
        }
        let len = end - at;
        let spent = bytes(state.cost);
        let after = spent + 3 + length_bytes(len - MIN_MATCH);
        if after + LAST_LITERALS > budget {
            self.end_within(state, len, distance as u16, budget);
            self.advance(state, end, budget);
            return false;
        }
        self.clear();
        let from = self.settled.len() as u32 - 1;
        let cost = (after as u32) << 8 | NO_LITERALS;
        self.arrive(state, Settled { at: end as u32, from, by: distance as u16 }, cost, budget);
        // The next match may start exactly at the end.
        state.next = end;
        true
    }

    /// Removes all pending nodes.
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
    fn advance(&mut self, state: &mut ParseState, limit: usize, budget: usize) {
        // Copies of the state and of a word of marks stay in registers; settling a node may add
        // marks to that word.
        let mut now = *state;
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
        *state = now;
    }

    /// Adds the settled node `by`, whose path costs `cost`, and updates the best end.
    #[inline(always)]
    fn arrive(&mut self, state: &mut ParseState, by: Settled, cost: Cost, budget: usize) {
        let at = by.at as usize;
        let spent = bytes(cost);
        let len = at - self.settled[by.from as usize].at as usize;
        // Literals can end the block here if the rules for its end hold.
        if spent + LAST_LITERALS <= budget && len + budget - spent >= MATCH_LIMIT {
            let reach = at + budget - spent;
            if reach >= state.best.reach {
                state.best = End { reach, node: self.settled.len(), last: Match::default() };
            }
        }
        self.settled.push(by);
        (state.at, state.cost) = (at, cost);
    }

    /// Finds the cheapest path to the node at `at`, and updates the ends of the match that starts
    /// there. Returns the marks to add to the word of `at`.
    #[inline(always)]
    fn settle(&mut self, state: &mut ParseState, at: usize, budget: usize) -> u64 {
        let node = std::mem::replace(&mut self.nodes[at % RING], Node::EMPTY);
        let literals = u64::from(state.cost) + (at - state.at) as u64 * LITERAL;
        let literals = u32::try_from(literals).unwrap_or(UNREACHED);
        let by_match = node.cost <= literals;
        let latest = self.settled.len() as u32 - 1;
        let by = Settled {
            at: at as u32,
            from: select(by_match, node.from, latest),
            by: select(by_match, node.by, 0),
        };
        self.arrive(state, by, node.cost.min(literals), budget);
        let is_later = node.end as usize > state.end;
        state.end = select(is_later, node.end as usize, state.end);
        state.distance = select(is_later, node.distance, state.distance);
        let spent = bytes(state.cost);
        if state.end < at + MIN_MATCH || at > state.last || spent + 3 + LAST_LITERALS > budget {
            return 0;
        }
        let (end, distance) = (state.end, state.distance);
        let len = end - at;
        let after = ((spent as u32 + 3) << 8) | NO_LITERALS;
        if len <= MAX_SHORT {
            return self.relax(at, end, after, distance);
        }
        let mut marks = self.relax(at, at + MAX_SHORT, after, distance);
        let lengths = length_bytes(len - MIN_MATCH);
        if spent + 3 + lengths + LAST_LITERALS <= budget {
            marks |= self.relax(at, end, after + ((lengths as u32) << 8), distance);
        } else {
            self.end_within(state, len, distance, budget);
        }
        marks
    }

    /// Considers as the block's end a match that is shortened to the budget.
    #[cold]
    fn end_within(&mut self, state: &mut ParseState, len: usize, distance: u16, budget: usize) {
        let spent = bytes(state.cost) + 3 + LAST_LITERALS;
        if spent > budget {
            return;
        }
        let spare = budget - spent;
        let len = len.min(if spare == 0 { MAX_SHORT } else { MAX_SHORT + spare * 255 });
        let reach = state.at + len + LAST_LITERALS;
        if reach > state.best.reach {
            let last = Match { len, distance: distance.into() };
            state.best = End { reach, node: self.settled.len() - 1, last };
        }
    }

    /// Updates the node at `end` with the path of cost `cost` that comes from the latest settled
    /// node, at `at`, by a match of `distance`. Returns the node's mark if it is in the word of
    /// `at`; otherwise it is set here.
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

    /// Collects the matches of the path to `end`, the last one first, and returns their number.
    fn trace(&mut self, end: End) -> usize {
        let Self { settled, path, .. } = self;
        // A path has at most all settled nodes and a last match. With a power of two, there is no
        // more capacity than that.
        path.resize(path.len().max((settled.len() + 1).next_power_of_two()), Span::default());
        let (mut node, mut len) = (end.node, 0);
        if end.last.len > 0 {
            let first = settled[node].at as usize;
            path[0] = Span { first, end: first + end.last.len, distance: end.last.distance };
            len = 1;
        }
        while node > 0 {
            let Settled { at, from, by } = settled[node];
            node = from as usize;
            // The next entry overwrites one for literals: a branch on that would be unpredictable.
            path[len] =
                Span { first: settled[node].at as usize, end: at as usize, distance: by.into() };
            len += usize::from(by > 0);
        }
        len
    }
}

/// The bytes of a path of `cost` with `literals` more literals.
const fn bytes_with_literals(cost: Cost, literals: u64) -> u64 {
    (cost as u64 + literals * LITERAL) >> 8
}

/// Marks the node at `at` as pending, and returns it.
#[inline(always)]
fn node<'n>(nodes: &'n mut [Node; RING], marks: &mut [u64; RING / 64], at: usize) -> &'n mut Node {
    marks[at / 64 % (RING / 64)] |= 1 << (at % 64);
    &mut nodes[at % RING]
}

/// Adds a match to the node where it starts, unless the match is long.
#[inline(always)]
fn add_match(nodes: &mut [Node; RING], marks: &mut [u64; RING / 64], found: Span) {
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
