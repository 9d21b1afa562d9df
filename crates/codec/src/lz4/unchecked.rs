//! LZ4 decoding with copies that may write up to 31 bytes more than a sequence has, as liblz4 does:
//! to another buffer, and in place where the buffer has a margin.
//!
//! Input and output may overlap, so both are raw pointers. The functions of [`Buffers`] each make
//! one access; [`decode`] compares all positions with the ends of both buffers before.
#![allow(unsafe_code)]

use super::decode::CORRUPT;
use crate::decoder::Portion;
use crate::error::DecodeError;

/// Bytes of a step of a long copy: it may write one byte less than that too much.
const STEP: usize = 32;
/// Bytes that are copied for up to 14 literals, whose number needs no further byte.
const SHORT: usize = 16;
/// Input that a sequence of up to 14 literals needs so that [`SHORT`] bytes can be copied: its
/// token, and these.
const SHORT_INPUT: usize = 1 + SHORT;
/// Bytes of the longest match whose length needs no further byte.
const SHORT_MATCH: usize = 18;
/// Room for the output of a sequence without further bytes of lengths: 14 literals, a match of 18
/// bytes, and what is copied too much.
const SHORT_OUTPUT: usize = 14 + SHORT_MATCH + STEP;
/// By distance: its least multiple that is at least 8, from where eight bytes of a repeated pattern
/// can be copied.
const BACK: [usize; 8] = [0, 8, 8, 9, 8, 10, 12, 14];

/// Decodes `src` into the whole of `dst`.
pub(super) fn decode(src: &[u8], dst: &mut [u8], portion: Portion) -> Result<usize, DecodeError> {
    let wanted = dst.len();
    let buffers =
        Buffers { src: src.as_ptr(), end: src.len(), dst: dst.as_mut_ptr(), stop: wanted };
    // SAFETY: the pointers and lengths are those of the two slices.
    let got = unsafe { run(&buffers, portion == Portion::Prefix) };
    finish(got, wanted)
}

/// Decodes the encoded bytes at the end of `buffer`, from `start` on, to its first `wanted` bytes.
/// If at least [`lz4_in_place_margin`](super::lz4_in_place_margin) bytes are between the ends of
/// output and input, no input is overwritten before it is read. With less the output may be wrong.
pub(super) fn decode_with_margin(
    buffer: &mut [u8],
    start: usize,
    wanted: usize,
) -> Result<usize, DecodeError> {
    if start > buffer.len() || wanted > buffer.len() {
        return Err(CORRUPT);
    }
    let (dst, end) = (buffer.as_mut_ptr(), buffer.len() - start);
    // SAFETY: `start` is at most the buffer's length.
    let src = unsafe { dst.add(start) }.cast_const();
    let buffers = Buffers { src, end, dst, stop: wanted };
    // SAFETY: both ranges are within `buffer`, which this function alone may use, and both pointers
    // derive from it.
    let got = unsafe { run(&buffers, false) };
    finish(got, wanted)
}

fn finish(got: Option<usize>, wanted: usize) -> Result<usize, DecodeError> {
    match got {
        None => Err(CORRUPT),
        Some(got) if got < wanted => Err(DecodeError::TooShort { algorithm: "lz4", got, wanted }),
        Some(got) => Ok(got),
    }
}

/// Where the encoded bytes are, and where the decoded ones go. The two may overlap.
struct Buffers {
    src: *const u8,
    /// Bytes at `src`.
    end: usize,
    dst: *mut u8,
    /// Bytes at `dst`.
    stop: usize,
}

impl Buffers {
    /// The byte at `ip`.
    ///
    /// # Safety
    /// `ip < end`.
    #[inline(always)]
    unsafe fn byte(&self, ip: usize) -> usize {
        debug_assert!(ip < self.end);
        // SAFETY: `ip` is within the input.
        let at = unsafe { self.src.add(ip) };
        // SAFETY: as above.
        usize::from(unsafe { at.read() })
    }

    /// The distance of a match, at `ip`.
    ///
    /// # Safety
    /// `ip + 2 <= end`.
    #[inline(always)]
    unsafe fn distance(&self, ip: usize) -> usize {
        debug_assert!(ip + 2 <= self.end);
        // SAFETY: `ip` is within the input.
        let at = unsafe { self.src.add(ip) }.cast::<u16>();
        // SAFETY: both bytes are within the input; any alignment is accepted.
        usize::from(u16::from_le(unsafe { at.read_unaligned() }))
    }

    /// Copies `N` literals.
    ///
    /// # Safety
    /// `ip + N <= end`, `op + N <= stop`.
    #[inline(always)]
    unsafe fn literals<const N: usize>(&self, ip: usize, op: usize) {
        debug_assert!(ip + N <= self.end && op + N <= self.stop);
        // SAFETY: all N bytes from both positions on are within the input and the output.
        unsafe { copy::<N>(self.src.wrapping_add(ip), self.dst.wrapping_add(op)) };
    }

    /// Copies `len` literals, and up to 31 bytes more.
    ///
    /// # Safety
    /// `ip + len + STEP <= end`, `op + len + STEP <= stop`.
    #[inline(always)]
    unsafe fn many_literals(&self, ip: usize, op: usize, len: usize) {
        let mut done = 0;
        loop {
            // SAFETY: `done <= len`, and both reach 32 bytes beyond `len`.
            unsafe { self.literals::<16>(ip + done, op + done) };
            // SAFETY: as above.
            unsafe { self.literals::<16>(ip + done + 16, op + done + 16) };
            done += STEP;
            if done >= len {
                break;
            }
        }
    }

    /// Copies exactly `len` literals.
    ///
    /// # Safety
    /// `ip + len <= end`, `op + len <= stop`.
    #[inline(always)]
    unsafe fn exact_literals(&self, ip: usize, op: usize, len: usize) {
        debug_assert!(ip + len <= self.end && op + len <= self.stop);
        // SAFETY: `ip` is within the input.
        let from = unsafe { self.src.add(ip) };
        // SAFETY: `op` is within the output.
        let to = unsafe { self.dst.add(op) };
        // SAFETY: all bytes are within the input and the output, which may overlap.
        unsafe { std::ptr::copy(from, to, len) };
    }

    /// Copies `N` decoded bytes.
    ///
    /// # Safety
    /// `from < to`, `to + N <= stop`.
    #[inline(always)]
    unsafe fn repeat<const N: usize>(&self, from: usize, to: usize) {
        debug_assert!(from < to && to + N <= self.stop);
        // SAFETY: all N bytes from both positions on are within the output, which the caller has
        // initialised.
        unsafe { copy::<N>(self.dst.wrapping_add(from), self.dst.wrapping_add(to)) };
    }

    /// Copies the 18 bytes of the longest [`SHORT_MATCH`] from `distance` before `op`.
    ///
    /// # Safety
    /// `8 <= distance <= op`, `op + 18 <= stop`.
    #[inline(always)]
    unsafe fn short_match(&self, op: usize, distance: usize) {
        debug_assert!(8 <= distance && distance <= op && op + SHORT_MATCH <= self.stop);
        let to = self.dst.wrapping_add(op);
        let from = to.wrapping_sub(distance).cast_const();
        // SAFETY: 18 bytes from both on are within the output.
        unsafe { copy::<8>(from, to) };
        // SAFETY: as above.
        unsafe { copy::<8>(from.wrapping_add(8), to.wrapping_add(8)) };
        // SAFETY: as above.
        unsafe { copy::<2>(from.wrapping_add(16), to.wrapping_add(16)) };
    }

    /// Copies `len` decoded bytes from `distance` before `op`, and up to 31 bytes more.
    ///
    /// # Safety
    /// `1 <= distance <= op`, `op + len + STEP <= stop`.
    #[inline(always)]
    unsafe fn long_match(&self, op: usize, distance: usize, len: usize) {
        let from = op - distance;
        let mut done = 0;
        if distance >= 16 {
            loop {
                // SAFETY: `done <= len`, so the 32 bytes from `op + done` on are within the output,
                // and `from < op`.
                unsafe { self.repeat::<16>(from + done, op + done) };
                // SAFETY: as above.
                unsafe { self.repeat::<16>(from + done + 16, op + done + 16) };
                done += STEP;
                if done >= len {
                    return;
                }
            }
        }
        let mut back = distance;
        if distance < 8 {
            for byte in 0..8 {
                // SAFETY: 32 bytes from `op` on are within the output, and `from < op`.
                unsafe { self.repeat::<1>(from + byte, op + byte) };
            }
            (back, done) = (BACK[distance], 8);
        }
        while done < len {
            // SAFETY: the eight bytes from `op + done` on are within the output. `back` is at most
            // `distance + 7`, and more than `distance` only if `done >= 8`, so that it leads to
            // `from` or after it.
            unsafe { self.repeat::<8>(op + done - back, op + done) };
            done += 8;
        }
    }
}

/// Copies `N` bytes, all of which are read before the first one is written.
///
/// # Safety
/// `N` bytes at `from` must be initialised and readable, and as many at `to` writable.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises; any alignment is accepted.
    let bytes = unsafe { from.cast::<[u8; N]>().read_unaligned() };
    // SAFETY: as above.
    unsafe { to.cast::<[u8; N]>().write_unaligned(bytes) };
}

/// The rest of a length whose four bits are all set: the bytes at `ip` add to it.
///
/// # Safety
/// `buffers` must describe its input.
#[inline(always)]
unsafe fn long_length(buffers: &Buffers, ip: &mut usize) -> Option<usize> {
    let mut len = 15;
    loop {
        if *ip >= buffers.end {
            return None;
        }
        // SAFETY: this was just checked.
        let byte = unsafe { buffers.byte(*ip) };
        *ip += 1;
        len += byte;
        if byte != 255 {
            return Some(len);
        }
    }
}

/// Decodes until the input ends, or, for a prefix, the output is full. Returns how many bytes that
/// gave; `None` if the input is damaged or the output too small.
///
/// # Safety
/// `end` bytes at `src` must be readable, and `stop` bytes at `dst` initialised and writable.
unsafe fn run(buffers: &Buffers, is_prefix: bool) -> Option<usize> {
    let (end, stop) = (buffers.end, buffers.stop);
    // Before both, a sequence whose lengths have no further bytes needs no other checks.
    let (short_input, short_output) =
        (end.saturating_sub(SHORT_INPUT), stop.saturating_sub(SHORT_OUTPUT));
    let (mut ip, mut op) = (0, 0);
    let mut unfinished = None;
    while ip < short_input && op < short_output {
        // SAFETY: `ip < end`.
        let token = unsafe { buffers.byte(ip) };
        let mut at = ip + 1;
        let mut literals = token >> 4;
        if literals == 15 {
            // SAFETY: `buffers` is as the caller promises.
            literals = unsafe { long_length(buffers, &mut at) }?;
            if end - at < literals + STEP || stop - op < literals + SHORT_OUTPUT {
                break;
            }
            // SAFETY: both reach 32 bytes beyond the literals.
            unsafe { buffers.many_literals(at, op, literals) };
        } else {
            // SAFETY: before the token there were 18 or more bytes of input, and room for more
            // output.
            unsafe { buffers.literals::<SHORT>(at, op) };
        }
        (ip, op) = (at + literals, op + literals);
        // SAFETY: at least 3 bytes of input are left of the 18, or the 32 after many literals.
        let distance = unsafe { buffers.distance(ip) };
        ip += 2;
        if distance == 0 || distance > op {
            return None;
        }
        let mut len = (token & 15) + 4;
        if len > SHORT_MATCH {
            // SAFETY: `buffers` is as the caller promises.
            len = unsafe { long_length(buffers, &mut ip) }? + 4;
            if stop - op < len + STEP {
                unfinished = Some(Match { distance, len });
                break;
            }
            // SAFETY: the distance and the room were just checked.
            unsafe { buffers.long_match(op, distance, len) };
        } else if distance >= 8 {
            // SAFETY: at least 50 bytes from `op` on are within the output, and the distance was
            // just checked.
            unsafe { buffers.short_match(op, distance) };
        } else {
            // SAFETY: as above, and at most 18 bytes are wanted.
            unsafe { buffers.long_match(op, distance, len) };
        }
        op += len;
    }
    // SAFETY: `buffers` is as the caller promises, and `ip <= end` and `op <= stop`, as each step
    // checked.
    unsafe { run_to_end(buffers, is_prefix, (ip, op), unfinished) }
}

/// A match: at most as many bytes back as there are before it.
struct Match {
    distance: usize,
    len: usize,
}

/// The same as [`run`] near the ends of both buffers, from these positions on. The match of the
/// sequence before may be missing: its literals cannot be copied again, since in place their input
/// may be overwritten.
///
/// # Safety
/// As [`run`]; the positions are within the input and the output, and an unfinished match begins in
/// the output.
#[cold]
unsafe fn run_to_end(
    buffers: &Buffers,
    is_prefix: bool,
    (mut ip, mut op): (usize, usize),
    mut unfinished: Option<Match>,
) -> Option<usize> {
    let (end, stop) = (buffers.end, buffers.stop);
    loop {
        let Match { distance, len } = match unfinished.take() {
            Some(unfinished) => unfinished,
            None => {
                if is_prefix && op == stop {
                    return Some(op);
                }
                if ip >= end {
                    return None;
                }
                // SAFETY: this was just checked.
                let token = unsafe { buffers.byte(ip) };
                ip += 1;
                let mut literals = token >> 4;
                if literals == 15 {
                    // SAFETY: `buffers` is as the caller promises.
                    literals = unsafe { long_length(buffers, &mut ip) }?;
                }
                let len = literals.min(stop - op);
                if len < literals && !is_prefix || len > end - ip {
                    return None;
                }
                // SAFETY: `len` is at most what is left of both.
                unsafe { buffers.exact_literals(ip, op, len) };
                op += len;
                if is_prefix && op == stop {
                    return Some(op);
                }
                match (end - ip).checked_sub(literals)? {
                    0 => return Some(op),
                    1 => return None,
                    _ => ip += literals,
                }
                // SAFETY: this was just checked.
                let distance = unsafe { buffers.distance(ip) };
                ip += 2;
                let mut len = token & 15;
                if len == 15 {
                    // SAFETY: `buffers` is as the caller promises.
                    len = unsafe { long_length(buffers, &mut ip) }?;
                }
                if distance == 0 || distance > op {
                    return None;
                }
                Match { distance, len: len + 4 }
            }
        };
        if stop - op >= len + STEP {
            // SAFETY: the distance and the room were just checked.
            unsafe { buffers.long_match(op, distance, len) };
            op += len;
            continue;
        }
        let copied = len.min(stop - op);
        if copied < len && !is_prefix {
            return None;
        }
        for to in op..op + copied {
            // SAFETY: `to < op + copied <= stop`, and `distance` is at most `op`.
            unsafe { buffers.repeat::<1>(to - distance, to) };
        }
        op += copied;
    }
}
