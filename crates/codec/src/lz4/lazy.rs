//! LZ4 levels 1 to 6: a lazy parse. It takes the first match that it finds, unless another match
//! that starts within that one saves more.
//!
//! Each sequence costs three bytes, whatever its length. So the other match saves up to three bytes
//! if it ends later, as the bytes after the first match's end need no sequence or literals of their
//! own; but the literals before it cost one byte each. A better match thus starts at most two bytes
//! later, and contains the four bytes around the first match's end, whose chain is short or empty.
//! Matches that start later are found from the first match's end on, at no extra cost.
//!
//! A match of 19 bytes or more costs a length byte. If the next match starts within it, it is
//! shortened to avoid that.

use super::chain::Finder;
use super::cluster::{Cluster, Match, Span};
use super::sequence_writer::{LAST_LITERALS, MAX_SHORT, MIN_MATCH, SequenceWriter};
use crate::fit::Fit;

/// The bytes of a sequence besides its literals and length bytes: a token and a distance.
const SEQUENCE_COST: usize = 3;
/// A match of at least this many bytes is taken without a search for a better one, which could save
/// little.
const LONG: usize = 256;

pub(super) struct Lazy {
    finder: Finder,
    /// The most candidates tried at a position.
    attempts: u32,
}

/// Matches that start within a match and end after it.
#[derive(Clone, Copy, Default)]
struct Alternatives {
    /// The match that saves most, if it saves more than the given one.
    better: Option<Span>,
    /// The match that ends last of those that start where the given one would still need no length
    /// byte.
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
        let mut writer = SequenceWriter::new(dst);
        // The bytes before `anchor` are written; `next` is the match that starts there, if it is
        // known.
        let (mut anchor, mut next) = (0, None);
        while let Some(mut taken) = next.take().or_else(|| self.find(cluster, anchor, most)) {
            loop {
                let alternatives = self.alternatives(cluster, taken);
                if let Some(better) = alternatives.better {
                    taken = better;
                    continue;
                }
                next =
                    alternatives.next.and_then(|next| shortened(&mut taken, next, cluster.last()));
                break;
            }
            let len = taken.end - taken.first;
            let distance = taken.distance as u16;
            let written = writer.sequence(src, anchor, taken.first, distance, len);
            if written > 0 {
                anchor = taken.first + written;
            }
            if written < len {
                break;
            }
        }
        writer.finish(src, anchor, end)
    }

    /// The first match that starts within `most` bytes from `anchor` on: more literals could not
    /// fit.
    #[inline(always)]
    fn find(&mut self, cluster: Cluster<'_>, anchor: usize, most: usize) -> Option<Span> {
        let limit = (cluster.last() + 1).min(anchor + most);
        // Position 0 has no earlier position to match.
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
    fn alternatives(&mut self, cluster: Cluster<'_>, taken: Span) -> Alternatives {
        let Span { first, end, .. } = taken;
        let mut alternatives = Alternatives::default();
        if end + LAST_LITERALS >= cluster.total() || end - first >= LONG {
            return alternatives;
        }
        if !self.finder.is_hit(cluster, end - 3) {
            // A match of four bytes: a match that starts two bytes later need not contain the four
            // bytes at its end.
            let at = first + 2;
            if end == first + MIN_MATCH && at <= cluster.last() && self.finder.is_hit(cluster, at) {
                let Match { len, distance } = self.finder.longest(cluster, at, self.attempts);
                alternatives.better =
                    (len > MIN_MATCH).then_some(Span { first: at, end: at + len, distance });
            }
            return alternatives;
        }
        let (mut best, last) = ((0, 0), cluster.last());
        self.finder.all_beyond(cluster, first, end, self.attempts, |span| {
            if span.first <= first + MAX_SHORT
                && alternatives.next.is_none_or(|next| span.end > next.end)
            {
                alternatives.next = Some(span);
            }
            let more = span.end - end;
            let saved = if more >= MIN_MATCH { SEQUENCE_COST } else { more };
            let gain = (saved.saturating_sub(span.first - first), span.end);
            if gain.0 > 0 && gain > best && span.first <= last {
                (alternatives.better, best) = (Some(span), gain);
            }
        });
        alternatives
    }
}

/// Shortens `taken` so that it needs no length byte, and returns the rest of `next` from its new
/// end on. Changes nothing and returns `None` if that saves nothing or if no match may start at the
/// new end, which is after `last`.
#[inline(always)]
fn shortened(taken: &mut Span, next: Span, last: usize) -> Option<Span> {
    let end = taken.first + MAX_SHORT;
    let follows = next.end.checked_sub(taken.end).filter(|len| *len >= MIN_MATCH)?;
    let has_length_byte = |len| len > MAX_SHORT;
    if taken.end <= end
        || end > last
        || has_length_byte(next.end - end) && !has_length_byte(follows)
    {
        return None;
    }
    taken.end = end;
    Some(Span { first: end, ..next })
}
