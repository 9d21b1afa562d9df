//! Writes LZ4 sequences into an output of fixed size, and follows LZ4's rules for the end of a
//! block: the last five bytes are literals, and the last match starts at least twelve bytes before
//! the end.
#![allow(unsafe_code)]

use super::mem;
use crate::fit::Fit;

/// The shortest match in bytes.
pub(super) const MIN_MATCH: usize = 4;
/// The longest match, in bytes, that needs no length bytes.
pub(super) const MAX_SHORT: usize = 14 + MIN_MATCH;
/// The number of bytes at a block's end that must be literals.
pub(super) const LAST_LITERALS: usize = 5;
/// The last match must start at least this many bytes before the block's end.
pub(super) const MATCH_LIMIT: usize = 12;

/// Free bytes, besides those for literals and length bytes, that a sequence needs to be written
/// without further checks: a token, a distance, two rounded length bytes, the 32 bytes that the
/// copy may overrun, and the block's end.
const SLACK: usize = 64;

/// The output of one cluster.
pub(super) struct SequenceWriter<'a> {
    dst: &'a mut [u8],
    /// Bytes written.
    op: usize,
}

/// The number of bytes that a length needs besides the token's four bits, which hold up to 14.
#[inline(always)]
pub(super) const fn length_bytes(len: usize) -> usize {
    if len < 15 { 0 } else { 1 + (len - 15) / 255 }
}

impl<'a> SequenceWriter<'a> {
    pub(super) fn new(dst: &'a mut [u8]) -> Self {
        Self { dst, op: 0 }
    }

    /// Writes the literals `src[anchor..at]` and a match of `len` bytes. If only a shorter match
    /// fits, writes that. Returns the written match's length; 0 if nothing fits, and then writes
    /// nothing. `src` starts with the cluster.
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
        // Far from the ends of output and input, this rough bound of the sequence's size is enough.
        if lits + ((lits + len) >> 7) + SLACK > room || at + SLACK > src.len() {
            return self.last_sequence(src, anchor, at, distance, len);
        }
        let code = len - MIN_MATCH;
        let mut op = self.op + 1;
        // SAFETY: for this and the stores below: a token, the literals with up to 32 bytes after
        // them, the distance, and less than `(lits + len) / 255 + 2` bytes of lengths take less
        // than `room`.
        unsafe { mem::store8(self.dst, self.op, ((lits.min(15) as u8) << 4) | code.min(15) as u8) };
        if lits >= 15 {
            op = self.write_length(op, lits - 15);
        }
        // SAFETY: see above; more than 32 bytes of `src` follow the literals.
        unsafe { mem::copy_over(self.dst, op, src, anchor, lits) };
        op += lits;
        // SAFETY: see above.
        unsafe { mem::store16(self.dst, op, distance) };
        op += 2;
        if code >= 15 {
            op = self.write_length(op, code - 15);
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
        // Bytes that must stay free after the match: a token, five literals, and twelve bytes from
        // the match's start.
        let room = self.dst.len() - self.op;
        let head = 1 + length_bytes(lits) + lits + 2;
        let tail = 1 + LAST_LITERALS.max(MATCH_LIMIT.saturating_sub(len));
        if head + length_bytes(len - MIN_MATCH) + tail > room {
            if head + 1 + MATCH_LIMIT - MIN_MATCH > room {
                return 0;
            }
            // Length bytes that fit before a tail of six. A match of less than eight bytes has
            // none, and a longer tail.
            let spare = (room - head).saturating_sub(1 + LAST_LITERALS);
            let longest = if spare == 0 { 14 } else { 14 + spare * 255 } + MIN_MATCH;
            len = len.min(longest);
            if head
                + length_bytes(len - MIN_MATCH)
                + 1
                + LAST_LITERALS.max(MATCH_LIMIT.saturating_sub(len))
                > room
            {
                len = len.min(MIN_MATCH);
            }
        }
        let token = self.op;
        let mut op = token + 1;
        let code = len - MIN_MATCH;
        // SAFETY: for this and the stores below: `head`, the match's extension bytes and a tail of
        // at least six bytes were just checked to fit into `dst[self.op..]`, and no store passes
        // `head` plus the extension.
        unsafe { mem::store8(self.dst, token, ((lits.min(15) as u8) << 4) | code.min(15) as u8) };
        if lits >= 15 {
            op = self.write_length(op, lits - 15);
        }
        self.dst[op..op + lits].copy_from_slice(&src[anchor..at]);
        op += lits;
        // SAFETY: see the token.
        unsafe { mem::store16(self.dst, op, distance) };
        op += 2;
        if code >= 15 {
            op = self.write_length(op, code - 15);
        }
        self.op = op;
        len
    }

    /// Writes the length bytes for `rest`, the length less 15, at `op`. Returns the position after
    /// them.
    #[inline(always)]
    fn write_length(&mut self, mut op: usize, mut rest: usize) -> usize {
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

    /// Ends the block with as many of the literals `src[anchor..end]` as fit.
    pub(super) fn finish(mut self, src: &[u8], anchor: usize, end: usize) -> Fit {
        let room = self.dst.len() - self.op;
        let mut lits = (end - anchor).min(room.saturating_sub(1));
        while lits > 0 && 1 + length_bytes(lits) + lits > room {
            lits -= 1;
        }
        let consumed = anchor + lits;
        if lits > 0 || self.op == 0 {
            // SAFETY: `room` is at least 1 here: `sequence` always leaves a tail, and an output is
            // never empty.
            unsafe { mem::store8(self.dst, self.op, (lits.min(15) as u8) << 4) };
            self.op += 1;
            if lits >= 15 {
                self.op = self.write_length(self.op, lits - 15);
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
