//! LZ4 decoding: to another buffer, and in place. [`super::unchecked`] does it, or with the feature
//! `liblz4` that library, unless the buffer lacks the margin that both need to decode in place;
//! then the code here does, which writes no byte too many.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::decoder::Portion;
use crate::error::DecodeError;

pub(super) const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "lz4" };

/// Decodes `src` into the whole of `dst`.
pub(crate) fn decode(src: &[u8], dst: &mut [u8], portion: Portion) -> Result<usize, DecodeError> {
    #[cfg(feature = "liblz4")]
    if !has_zero_pair(src) {
        return super::liblz4::decode(src, dst, portion);
    }
    super::unchecked::decode(src, dst, portion)
}

/// Whether two bytes in a row are zero, as in a match with a distance of 0. liblz4 accepts that,
/// and gives other bytes than Linux; [`super::unchecked`] refuses it.
#[cfg(feature = "liblz4")]
fn has_zero_pair(src: &[u8]) -> bool {
    // Without an early end, the compiler compares many bytes at once.
    src.iter().zip(src.iter().skip(1)).fold(false, |found, (a, b)| found | (a | b == 0))
}

/// By how many bytes the end of the output must at least be before the end of `encoded_len` encoded
/// bytes, so that each valid cluster decodes in place.
///
/// A long match writes up to 31 bytes too many, and then the next token must still be after them.
/// If only literals follow, the rest of the output is shorter than the rest of the input by their
/// token, one byte for their length, and one more for each 255 of them, which the input has for 256
/// bytes. `LZ4_DECOMPRESS_INPLACE_MARGIN` of lz4.h is a byte less: with that, liblz4 refuses some
/// valid clusters.
#[must_use]
pub const fn lz4_in_place_margin(encoded_len: usize) -> usize {
    (encoded_len >> 8).saturating_add(31 + 2)
}

/// Fills `buffer[op..stop]` with the bytes that are `distance` before.
fn repeat(buffer: &mut [u8], distance: usize, op: &mut usize, stop: usize) {
    // Where the match overlaps itself, the length of the copied part doubles with each step.
    let from = *op - distance;
    while *op < stop {
        let n = (*op - from).min(stop - *op);
        buffer.copy_within(from..from + n, *op);
        *op += n;
    }
}

/// Decodes `buffer[encoded]` to `buffer[..wanted]`; an error if output would overwrite input that
/// is not yet read.
pub(crate) fn decode_in_place(
    buffer: &mut [u8],
    encoded: Range<usize>,
    wanted: usize,
) -> Result<usize, DecodeError> {
    if encoded.end > buffer.len() || encoded.start > encoded.end || wanted > buffer.len() {
        return Err(CORRUPT);
    }
    if encoded.end.saturating_sub(wanted) >= lz4_in_place_margin(encoded.len()) {
        let (buffer, start) = (&mut buffer[..encoded.end], encoded.start);
        #[cfg(feature = "liblz4")]
        if !has_zero_pair(&buffer[start..]) {
            return super::liblz4::decode_with_margin(buffer, start, wanted);
        }
        return super::unchecked::decode_with_margin(buffer, start, wanted);
    }
    let (mut ip, end, mut op) = (encoded.start, encoded.end, 0);
    loop {
        let token = next(buffer, &mut ip, end)?;
        let lits = length(buffer, &mut ip, end, token >> 4)?;
        if lits > end - ip || lits > wanted - op {
            return Err(CORRUPT);
        }
        if op > ip {
            return Err(DecodeError::OverwritesInput);
        }
        buffer.copy_within(ip..ip + lits, op);
        ip += lits;
        op += lits;
        if ip == end {
            break;
        }
        let low = next(buffer, &mut ip, end)?;
        let distance = usize::from(low) | usize::from(next(buffer, &mut ip, end)?) << 8;
        let len = length(buffer, &mut ip, end, token & 15)?.checked_add(4).ok_or(CORRUPT)?;
        if distance == 0 || distance > op || len > wanted - op {
            return Err(CORRUPT);
        }
        if op + len > ip {
            return Err(DecodeError::OverwritesInput);
        }
        let stop = op + len;
        repeat(buffer, distance, &mut op, stop);
    }
    if op < wanted {
        return Err(DecodeError::TooShort { algorithm: "lz4", got: op, wanted });
    }
    Ok(op)
}

/// Reads the next byte before `end`.
fn next(buffer: &[u8], ip: &mut usize, end: usize) -> Result<u8, DecodeError> {
    let byte = buffer.get(..end).and_then(|b| b.get(*ip)).ok_or(CORRUPT)?;
    *ip += 1;
    Ok(*byte)
}

/// Reads a length: four bits and, if all are set, the bytes that add to it.
fn length(buffer: &[u8], ip: &mut usize, end: usize, nibble: u8) -> Result<usize, DecodeError> {
    let mut len = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = next(buffer, ip, end)?;
            len += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Ok(len)
}
