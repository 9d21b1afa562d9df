//! LZ4's levels 1 to 6: a parse by rules, without a shortest path. The match found first is taken, unless another that
//! begins within it saves more.
//!
//! Every sequence costs three bytes, however long, so another match is better if what it has beyond the first one's end
//! would take a sequence of its own, or literals; less the literals before it. So it begins at most two bytes later, and
//! holds the four bytes about the first one's end, whose chain is short or empty. All that begins later is found from
//! the first one's end on, at the same cost.
//!
//! A match of 19 bytes or more costs a length byte. If the next one begins within it, it can end sooner, and does without.

use super::chain::Finder;
use super::cluster::{Cluster, Match, Span};
use super::sink::{LAST_LITERALS, MIN_MATCH, SHORT, Sink};
use crate::fit::Fit;

/// What a sequence costs besides its literals and length bytes: a token and a distance.
const SEQUENCE: usize = 3;
/// A match of this many bytes or more is taken without looking at what else there is.
const LONG: usize = 256;

pub(super) struct Lazy {
    finder: Finder,
    /// Candidates tried at a position.
    attempts: u32,
}

/// What goes on beyond a match's end, and begins within it.
#[derive(Clone, Copy, Default)]
struct Rivals {
    /// Saves more than the match.
    better: Option<Span>,
    /// Ends last of those that begin within the match's first bytes, which cost no length byte.
    next: Option<Span>,
}

impl Lazy {
    pub(super) fn new(attempts: u32, max_distance: u16) -> Self {
        Self { finder: Finder::new(max_distance, false), attempts }
    }

    /// Encodes as much of `src[..end]` as fits.
    pub(super) fn fit(&mut self, src: &[u8], end: usize, dst: &mut [u8]) -> Fit {
        let cluster = Cluster::new(src, end);
        let most = dst.len();
        self.finder.begin(most);
        let mut sink = Sink::new(dst);
        // What is written reaches to `anchor`; `next` begins there, if it is known.
        let (mut anchor, mut next) = (0, None);
        while let Some(mut taken) = next.take().or_else(|| self.find(cluster, anchor, most)) {
            loop {
                let rivals = self.rivals(cluster, taken);
                if let Some(better) = rivals.better {
                    taken = better;
                    continue;
                }
                next = rivals.next.and_then(|next| shortened(&mut taken, next, cluster.last()));
                break;
            }
            let len = taken.end - taken.first;
            let distance = taken.distance as u16;
            let written = sink.sequence(src, anchor, taken.first, distance, len);
            if written > 0 {
                anchor = taken.first + written;
            }
            if written < len {
                break;
            }
        }
        sink.finish(src, anchor, end)
    }

    /// The first match from `anchor` on that begins within `most` bytes: more literals would certainly not fit.
    #[inline(always)]
    fn find(&mut self, cluster: Cluster<'_>, anchor: usize, most: usize) -> Option<Span> {
        let limit = (cluster.last() + 1).min(anchor + most);
        // Nothing comes before the first position.
        let mut at = anchor.max(1);
        loop {
            if at >= limit {
                return None;
            }
            at = self.finder.next_hit(cluster, at, limit);
            if at == limit {
                return None;
            }
            let Match { len, distance } = self.finder.longest(cluster, at, self.attempts);
            if len > 0 {
                let first = at - cluster.before(at, distance, at - anchor);
                return Some(Span { first, end: at + len, distance });
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn rivals(&mut self, cluster: Cluster<'_>, taken: Span) -> Rivals {
        let Span { first, end, .. } = taken;
        let mut rivals = Rivals::default();
        if end + LAST_LITERALS >= cluster.total() || end - first >= LONG {
            return rivals;
        }
        if !self.finder.is_hit(cluster, end - 3) {
            // Of four bytes the last three do not say what begins two bytes later.
            let at = first + 2;
            if end == first + MIN_MATCH && at <= cluster.last() && self.finder.is_hit(cluster, at) {
                let Match { len, distance } = self.finder.longest(cluster, at, self.attempts);
                rivals.better = (len > MIN_MATCH).then_some(Span { first: at, end: at + len, distance });
            }
            return rivals;
        }
        let (mut most, last) = ((0, 0), cluster.last());
        self.finder.all_beyond(cluster, first, end, self.attempts, |span| {
            if span.first <= first + SHORT && rivals.next.is_none_or(|next| span.end > next.end) {
                rivals.next = Some(span);
            }
            let more = span.end - end;
            let saved = if more >= MIN_MATCH { SEQUENCE } else { more };
            let gain = (saved.saturating_sub(span.first - first), span.end);
            if gain.0 > 0 && gain > most && span.first <= last {
                (rivals.better, most) = (Some(span), gain);
            }
        });
        rivals
    }
}

/// Ends `taken` where it costs no length byte, and returns what follows: `next` from there on. None, and nothing is
/// changed, if that saves nothing, or no match may start there, beyond `last`.
#[inline(always)]
fn shortened(taken: &mut Span, next: Span, last: usize) -> Option<Span> {
    let end = taken.first + SHORT;
    let follows = next.end.checked_sub(taken.end).filter(|len| *len >= MIN_MATCH)?;
    let has_length_byte = |len| len > SHORT;
    if taken.end <= end || end > last || has_length_byte(next.end - end) && !has_length_byte(follows) {
        return None;
    }
    taken.end = end;
    Some(Span { first: end, ..next })
}
