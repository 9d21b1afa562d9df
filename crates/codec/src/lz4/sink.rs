//! Writes LZ4 sequences into an output of fixed size, keeps the end-of-block rules (the last five bytes are literals,
//! the last match starts at least twelve bytes before the end) and simulates decoding in place.
#![allow(unsafe_code)]

use super::mem;
use crate::fit::Fit;

/// The shortest match.
pub(super) const MIN_MATCH: usize = 4;
/// The longest match without length bytes.
pub(super) const SHORT: usize = 14 + MIN_MATCH;
/// A block's last bytes are literals: this many.
pub(super) const LAST_LITERALS: usize = 5;
/// The last match starts this many bytes before the block's end, or earlier.
pub(super) const MATCH_LIMIT: usize = 12;

/// Room in bytes, beyond literals and length bytes, with which a sequence is written without further checks: a token, a
/// distance, two rounded length bytes, the copy's 32 bytes and the block's end.
const SLACK: usize = 64;

/// The output of one cluster.
pub(super) struct Sink<'a> {
    dst: &'a mut [u8],
    /// Bytes written.
    op: usize,
}

/// Extension bytes of a length field whose value beyond the token's 15 is `rest + 15`.
#[inline(always)]
pub(super) const fn extension(len: usize) -> usize {
    if len < 15 { 0 } else { 1 + (len - 15) / 255 }
}

impl<'a> Sink<'a> {
    pub(super) fn new(dst: &'a mut [u8]) -> Self {
        Self { dst, op: 0 }
    }

    /// Writes the literals `src[anchor..at]` and a match of `len` bytes, made shorter if that is what fits. Returns the
    /// length written; 0 if nothing fits any more, and nothing was written. The cluster starts with `src`.
    #[inline(always)]
    pub(super) fn sequence(
        &mut self,
        src: &[u8],
        anchor: usize,
        at: usize,
        distance: u16,
        len: usize,
    ) -> usize {
        debug_assert!(anchor <= at && at + len <= src.len() && len >= MIN_MATCH);
        let lits = at - anchor;
        let room = self.dst.len() - self.op;
        // Far from the ends a rough bound is enough.
        if lits + ((lits + len) >> 7) + SLACK > room || at + SLACK > src.len() {
            return self.last_sequence(src, anchor, at, distance, len);
        }
        let code = len - MIN_MATCH;
        let mut op = self.op + 1;
        // SAFETY: for this and the stores below: a token, the literals with up to 32 bytes behind them, the distance, and
        // less than `(lits + len) / 255 + 2` bytes of lengths take less than the room.
        unsafe { mem::store8(self.dst, self.op, ((lits.min(15) as u8) << 4) | code.min(15) as u8) };
        if lits >= 15 {
            op = self.extend(op, lits - 15);
        }
        // SAFETY: see above; more than 32 bytes of `src` follow the literals.
        unsafe { mem::copy_over(self.dst, op, src, anchor, lits) };
        op += lits;
        // SAFETY: see above.
        unsafe { mem::store16(self.dst, op, distance) };
        op += 2;
        if code >= 15 {
            op = self.extend(op, code - 15);
        }
        self.op = op;
        len
    }

    /// [`sequence`](Self::sequence) near the end of the output or the input.
    #[cold]
    #[inline(never)]
    fn last_sequence(
        &mut self,
        src: &[u8],
        anchor: usize,
        at: usize,
        distance: u16,
        mut len: usize,
    ) -> usize {
        let lits = at - anchor;
        // What must remain free after the match: a token, five literals, and twelve bytes from the match's start.
        let room = self.dst.len() - self.op;
        let head = 1 + extension(lits) + lits + 2;
        let tail = 1 + LAST_LITERALS.max(MATCH_LIMIT.saturating_sub(len));
        if head + extension(len - MIN_MATCH) + tail > room {
            if head + 1 + MATCH_LIMIT - MIN_MATCH > room {
                return 0;
            }
            // Extension bytes that fit beside a tail of six; a match under eight needs none and a longer tail.
            let spare = (room - head).saturating_sub(1 + LAST_LITERALS);
            let longest = if spare == 0 { 14 } else { 14 + spare * 255 } + MIN_MATCH;
            len = len.min(longest);
            if head + extension(len - MIN_MATCH) + 1 + LAST_LITERALS.max(MATCH_LIMIT.saturating_sub(len))
                > room
            {
                len = len.min(MIN_MATCH);
            }
        }
        let token = self.op;
        let mut op = token + 1;
        let code = len - MIN_MATCH;
        // SAFETY: for this and the stores below: `head`, the match's extension bytes and a tail of at least six bytes
        // were just shown to fit into `dst[self.op..]`, and no store passes `head` plus the extension.
        unsafe { mem::store8(self.dst, token, ((lits.min(15) as u8) << 4) | code.min(15) as u8) };
        if lits >= 15 {
            op = self.extend(op, lits - 15);
        }
        self.dst[op..op + lits].copy_from_slice(&src[anchor..at]);
        op += lits;
        // SAFETY: see the token.
        unsafe { mem::store16(self.dst, op, distance) };
        op += 2;
        if code >= 15 {
            op = self.extend(op, code - 15);
        }
        self.op = op;
        len
    }

    #[inline(always)]
    fn extend(&mut self, mut op: usize, mut rest: usize) -> usize {
        while rest >= 255 {
            // SAFETY: the callers count one byte for each 255 before they write.
            unsafe { mem::store8(self.dst, op, 255) };
            op += 1;
            rest -= 255;
        }
        // SAFETY: likewise for the last one.
        unsafe { mem::store8(self.dst, op, rest as u8) };
        op + 1
    }

    /// Ends the block with as many of the literals `src[anchor..end]` as fit, and judges it.
    pub(super) fn finish(mut self, src: &[u8], anchor: usize, end: usize) -> Fit {
        let room = self.dst.len() - self.op;
        let mut lits = (end - anchor).min(room.saturating_sub(1));
        while lits > 0 && 1 + extension(lits) + lits > room {
            lits -= 1;
        }
        let consumed = anchor + lits;
        if lits > 0 || self.op == 0 {
            // SAFETY: `room` is at least 1 here: `sequence` always leaves a tail, and an output is never empty.
            unsafe { mem::store8(self.dst, self.op, (lits.min(15) as u8) << 4) };
            self.op += 1;
            if lits >= 15 {
                self.op = self.extend(self.op, lits - 15);
            }
            self.dst[self.op..self.op + lits].copy_from_slice(&src[anchor..anchor + lits]);
            self.op += lits;
        }
        let produced = self.op;
        if !crate::fit::saves_space(consumed, produced, self.dst.len(), consumed == src.len()) {
            return Fit::Incompressible;
        }
        Fit::Encoded { consumed, produced }
    }
}
