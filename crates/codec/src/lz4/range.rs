//! LZ4 decoding of a range ("rolling decompression" in the EROFS paper). Bytes before the range go
//! through a ring buffer of at most 17 pages, the window; the range goes directly to the output. So
//! memory does not depend on the cluster's size, and nothing is copied twice.
//!
//! LZ4 matches reach back at most 65,535 bytes, or less if the superblock says so. Copies in steps
//! of 32 bytes may write more than asked for; the window is longer by that, so that they never
//! overwrite bytes that a match may refer to.

#[cfg(test)]
mod tests;

use crate::error::DecodeError;

use super::mem;

/// Windows are multiples of 4 KiB pages.
const PAGE: usize = 1 << 12;
/// Bytes at the window's end that only copies that overrun write to: they overrun by less than 32
/// bytes.
const SLACK: usize = 64;

/// The size in bytes of the window that decoding a range needs if matches reach back at most
/// `max_distance` bytes: 17 pages of 4 KiB for 65,535 bytes, 3 pages for 8 KiB.
#[must_use]
pub fn lz4_window(max_distance: u16) -> usize {
    (usize::from(max_distance) + SLACK).next_multiple_of(PAGE)
}

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "lz4" };

/// Decodes `src`, skips `skip` decoded bytes, and stops when `out` is full.
pub(crate) fn decode_range(
    src: &[u8],
    window: &mut [u8],
    skip: usize,
    out: &mut [u8],
) -> Result<(), DecodeError> {
    let wanted = out.len();
    let ring = window.len().saturating_sub(SLACK);
    if ring == 0 {
        return Err(DecodeError::MatchBeyondWindow);
    }
    let mut writer = RangeWriter { window, ring, at: 0, to_skip: skip, total: 0, out, len: 0 };
    let mut ip = 0;
    loop {
        let token = next(src, &mut ip)?;
        let len = length(src, &mut ip, token >> 4)?;
        if len > src.len() - ip {
            return Err(CORRUPT);
        }
        writer.literals(src, ip, len);
        ip += len;
        if writer.is_full() {
            return Ok(());
        }
        if ip == src.len() {
            return Err(DecodeError::TooShort { algorithm: "lz4", got: writer.len, wanted });
        }
        let low = next(src, &mut ip)?;
        let distance = usize::from(u16::from_le_bytes([low, next(src, &mut ip)?]));
        let len = length(src, &mut ip, token & 15)? + 4;
        if distance == 0 || distance > writer.total {
            return Err(CORRUPT);
        }
        if distance > ring {
            return Err(DecodeError::MatchBeyondWindow);
        }
        writer.repeat(distance, len);
        if writer.is_full() {
            return Ok(());
        }
    }
}

/// The target of decoded bytes: the window for the bytes before the range, then `out`.
struct RangeWriter<'a> {
    window: &'a mut [u8],
    /// The window's length without [`SLACK`]: after this many bytes writing continues at 0.
    ring: usize,
    /// The window's write position, less than `ring`.
    at: usize,
    /// Bytes before the range that are not yet decoded.
    to_skip: usize,
    /// Bytes decoded so far, before and in the range.
    total: usize,
    out: &'a mut [u8],
    /// Bytes written to `out` so far.
    len: usize,
}

impl RangeWriter<'_> {
    #[inline(always)]
    const fn is_full(&self) -> bool {
        self.to_skip == 0 && self.len == self.out.len()
    }

    /// Whether `len` bytes fit before the range and before the window's end, the usual case.
    #[inline(always)]
    const fn fits_window(&self, len: usize) -> bool {
        len < self.to_skip && len < self.ring - self.at
    }

    /// Writes `src[from..from + len]`, or the part of it that the range needs.
    #[inline(always)]
    fn literals(&mut self, src: &[u8], from: usize, len: usize) {
        if !self.fits_window(len) {
            return self.literals_in_parts(src, from, len);
        }
        mem::copy(self.window, self.at, src, from, len);
        self.advance(len);
    }

    #[inline(never)]
    fn literals_in_parts(&mut self, src: &[u8], mut from: usize, mut len: usize) {
        while self.to_skip > 0 && len > 0 {
            let n = len.min(self.to_skip).min(self.ring - self.at);
            mem::copy(self.window, self.at, src, from, n);
            self.advance(n);
            from += n;
            len -= n;
        }
        let n = len.min(self.out.len() - self.len);
        mem::copy(self.out, self.len, src, from, n);
        self.len += n;
        self.total += n;
    }

    /// Writes a match of `len` bytes, or the part of it that the range needs. At least `distance`
    /// bytes were decoded.
    #[inline(always)]
    fn repeat(&mut self, distance: usize, len: usize) {
        if distance > self.at || !self.fits_window(len) {
            return self.repeat_in_parts(distance, len);
        }
        mem::copy_within(self.window, self.at - distance, self.at, len);
        self.advance(len);
    }

    #[inline(never)]
    fn repeat_in_parts(&mut self, distance: usize, mut len: usize) {
        while self.to_skip > 0 && len > 0 {
            let back = self.back(distance);
            // The source ends at the end of the ring or at the write position.
            let n = len.min(self.to_skip).min(self.ring - self.at).min(self.ring - back);
            mem::copy_within(self.window, back, self.at, n);
            self.advance(n);
            len -= n;
        }
        while len > 0 && self.len < self.out.len() && distance > self.len {
            // The match starts before the range: up to `distance - self.len` bytes of it are in the
            // window.
            let back = self.back(distance - self.len);
            let n =
                len.min(self.out.len() - self.len).min(distance - self.len).min(self.ring - back);
            mem::copy(self.out, self.len, self.window, back, n);
            self.len += n;
            self.total += n;
            len -= n;
        }
        let n = len.min(self.out.len() - self.len);
        if n > 0 {
            mem::copy_within(self.out, self.len - distance, self.len, n);
            self.len += n;
            self.total += n;
        }
    }

    /// The window's position `distance` bytes before the write position.
    #[inline(always)]
    const fn back(&self, distance: usize) -> usize {
        if distance <= self.at { self.at - distance } else { self.at + self.ring - distance }
    }

    #[inline(always)]
    const fn advance(&mut self, n: usize) {
        self.at += n;
        if self.at == self.ring {
            self.at = 0;
        }
        self.to_skip -= n;
        self.total += n;
    }
}

/// Reads the next byte.
#[inline(always)]
fn next(src: &[u8], ip: &mut usize) -> Result<u8, DecodeError> {
    let byte = *src.get(*ip).ok_or(CORRUPT)?;
    *ip += 1;
    Ok(byte)
}

/// Reads a length: the four bits of `nibble` and, if all are set, the bytes that add to it. The sum
/// cannot overflow: each byte of the input adds at most 255.
#[inline(always)]
fn length(src: &[u8], ip: &mut usize, nibble: u8) -> Result<usize, DecodeError> {
    let mut len = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = next(src, ip)?;
            len += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Ok(len)
}
