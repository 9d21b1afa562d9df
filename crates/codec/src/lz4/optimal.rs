//! LZ4's levels 1 to 12: a shortest-path parse under the cluster's byte budget. Of all encodings by the matches found,
//! the one that reaches furthest into the input.
//!
//! A sequence costs a token, its literals and two bytes of distance, plus length bytes beyond 14 literals or a match of
//! 18. Reaching further at the same cost never hurts, so at each position only the longest match and its longest part
//! without length bytes matter: two steps a position, and a literal.
#![allow(unsafe_code)]

use super::chain::{Effort, Finder, Match};
use super::sink::{LAST_LITERALS, MATCH_LIMIT, MIN_MATCH, Sink, extension};
use crate::error::EncodeError;
use crate::fit::{self, Fit};
use crate::plain;

/// The longest match without length bytes.
const SHORT: usize = 14 + MIN_MATCH;

/// By level, 1 to 12.
const EFFORTS: [Effort; 12] = [
    Effort { short: 1, long: 1, nice: 8 },
    Effort { short: 1, long: 2, nice: 10 },
    Effort { short: 2, long: 3, nice: 12 },
    Effort { short: 2, long: 4, nice: 16 },
    Effort { short: 4, long: 6, nice: 20 },
    Effort { short: 6, long: 8, nice: 24 },
    Effort { short: 12, long: 12, nice: 32 },
    Effort { short: 16, long: 16, nice: 40 },
    Effort { short: 48, long: 32, nice: 64 },
    Effort { short: 64, long: 64, nice: 128 },
    Effort { short: 128, long: 128, nice: 256 },
    Effort { short: 256, long: 256, nice: 1024 },
];

/// The cheapest way known to a position.
#[derive(Clone, Copy)]
struct State {
    /// Bytes written, the open sequence's token with them.
    cost: u32,
    /// Literals in the open sequence.
    lits: u32,
    /// The match that ends here, if `lits` is 0.
    len: u32,
    distance: u32,
}

const UNREACHED: State = State { cost: u32::MAX, lits: 0, len: 0, distance: 0 };

/// Where the encoding ends: after the state at `from`, a last match of `len` if not 0, and literals up to `reach`.
#[derive(Clone, Copy)]
struct End {
    from: usize,
    last: Match,
    reach: usize,
    cost: usize,
}

pub(super) struct Optimal {
    finder: Finder,
    /// By position from the cluster's start.
    states: Vec<State>,
    path: Vec<(usize, Match)>,
}

/// How many literals an open sequence that holds `lits` can take into `room` further bytes, and the bytes they use.
fn literals_into(room: usize, lits: usize, most: usize) -> (usize, usize) {
    let cost = |n: usize| n + extension(lits + n) - extension(lits);
    let mut n = room.min(most);
    while n > 0 && cost(n) > room {
        n -= (cost(n) - room).min(n);
    }
    // The last subtraction may have gone one or two too far.
    while n < most && cost(n + 1) <= room {
        n += 1;
    }
    (n, cost(n))
}

impl Optimal {
    /// For `level` 1 to 12; others count as the nearest.
    pub(super) fn new(level: u8, max_distance: u16) -> Self {
        let effort = EFFORTS[usize::from(level.clamp(1, 12)) - 1];
        Self { finder: Finder::new(effort, max_distance), states: Vec::new(), path: Vec::new() }
    }

    pub(super) fn begin(&mut self) {
        self.finder.begin();
    }

    pub(super) fn fit(
        &mut self,
        src: &[u8],
        start: usize,
        dst: &mut [u8],
        window: usize,
    ) -> Result<Fit, EncodeError> {
        let end = fit::check(src, start, dst, window)?;
        if plain::looks_random(&src[start..end], dst.len()) {
            return Ok(Fit::DoesNotPay);
        }
        self.finder.cluster(src, start);
        let best = self.parse(src, start, end, dst.len());
        self.trace(best);
        let mut sink = Sink::new(dst);
        let mut anchor = start;
        for &(at, found) in self.path.iter().rev() {
            let at = start + at;
            let written = sink.sequence(src, start, anchor, at, found.distance as u16, found.len);
            if written > 0 {
                anchor = at + written;
            }
            if written < found.len {
                break;
            }
        }
        Ok(sink.finish(src, start, anchor, end))
    }

    /// Fills the states and returns the best end. Positions count from `start`.
    fn parse(&mut self, src: &[u8], start: usize, end: usize, budget: usize) -> End {
        let total = end - start;
        self.states.clear();
        self.states.push(State { cost: 1, lits: 0, len: 0, distance: 0 });
        let mut best = End { from: 0, last: Match::default(), reach: 0, cost: 0 };
        let mut found = Match::default();
        let mut at = 0;
        while let Some(&state) = self.states.get(at) {
            let cost = state.cost as usize;
            found = match found {
                Match { len, distance } if len > MIN_MATCH => Match { len: len - 1, distance },
                _ => Match::default(),
            };
            if at + MATCH_LIMIT <= total {
                // SAFETY: `at + 12 <= total` leaves seven bytes and more before `end - 5`; eight before `end`.
                found = unsafe { self.finder.longest(src, start, start + at, end, found) };
                found.len = found.len.min(total - LAST_LITERALS - at);
            } else {
                found = Match::default();
            }
            if cost > budget {
                at += 1;
                continue;
            }
            if state.lits == 0 {
                self.consider(&mut best, at, Match::default(), at, cost, budget, total);
            }
            if found.len >= MIN_MATCH {
                let after = cost + 3;
                let whole = after + extension(found.len - MIN_MATCH);
                if whole + LAST_LITERALS.max(MATCH_LIMIT.saturating_sub(found.len)) <= budget {
                    self.relax(at + found.len, whole, found);
                } else if after + LAST_LITERALS <= budget {
                    let spare = budget - after - LAST_LITERALS;
                    let len = found.len.min(if spare == 0 { SHORT } else { SHORT + spare * 255 });
                    let part = Match { len, ..found };
                    let cost = after + extension(len - MIN_MATCH);
                    self.consider(&mut best, at, part, at + len, cost, budget, total);
                }
                if found.len > SHORT {
                    self.relax(at + SHORT, after, Match { len: SHORT, ..found });
                }
            }
            // A literal, if there is room and input for it.
            let lits = state.lits + 1;
            let more = cost + 1 + usize::from(lits >= 15 && (lits - 15) % 255 == 0);
            if at < total && more <= budget {
                self.reserve(at + 1);
                let next = &mut self.states[at + 1];
                if more < next.cost as usize {
                    *next = State { cost: more as u32, lits, len: 0, distance: 0 };
                }
            }
            at += 1;
        }
        best
    }

    #[inline(always)]
    fn reserve(&mut self, at: usize) {
        if at >= self.states.len() {
            self.states.resize(at + 1, UNREACHED);
        }
    }

    #[inline(always)]
    fn relax(&mut self, to: usize, cost: usize, by: Match) {
        self.reserve(to);
        let state = &mut self.states[to];
        if cost <= state.cost as usize {
            *state = State { cost: cost as u32, lits: 0, len: by.len as u32, distance: by.distance as u32 };
        }
    }

    /// Compares the best end with the one after the state at `from` and `last`, which reach `at` for `cost`.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "one caller's locals")]
    fn consider(
        &self,
        best: &mut End,
        from: usize,
        last: Match,
        at: usize,
        cost: usize,
        budget: usize,
        total: usize,
    ) {
        // Room for literals bounds the reach; only few states come near the best.
        if at + (budget - cost) <= best.reach && best.reach < total {
            return;
        }
        let (lits, bytes) = literals_into(budget - cost, 0, total - at);
        let reach = at + lits;
        let len = if last.len > 0 { last.len } else { self.states[from].len as usize };
        let legal = at == 0 || (lits >= LAST_LITERALS && len + lits >= MATCH_LIMIT);
        if legal && (reach > best.reach || (reach == best.reach && cost + bytes < best.cost)) {
            *best = End { from, last, reach, cost: cost + bytes };
        }
    }

    /// Collects the matches on the way to `end`, last first.
    fn trace(&mut self, end: End) {
        self.path.clear();
        if end.last.len > 0 {
            self.path.push((end.from, end.last));
        }
        let mut at = end.from;
        while at > 0 {
            let state = self.states[at];
            if state.lits > 0 {
                at -= state.lits as usize;
            } else {
                at -= state.len as usize;
                self.path.push((at, Match { len: state.len as usize, distance: state.distance as usize }));
            }
        }
    }
}
