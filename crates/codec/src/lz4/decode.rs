//! LZ4 decoding: liblz4 for separate buffers, and for decoding in place if the buffer has the margin that liblz4 needs; an own
//! decoder in safe code, which needs no margin, for decoding in place otherwise.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ops::Range;

use lz4_sys::LZ4_decompress_safe;

use crate::error::DecodeError;
use crate::portion::Portion;

unsafe extern "C" {
    /// liblz4's prefix decoder (lz4.h, since 1.8.3), which the crate lz4-sys links but does not declare.
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        target: c_int,
        capacity: c_int,
    ) -> c_int;
}

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "lz4" };

/// Decodes `src` into the whole of `dst`.
pub(crate) fn decode(src: &[u8], dst: &mut [u8], portion: Portion) -> Result<usize, DecodeError> {
    let src_len = c_int::try_from(src.len()).map_err(|_| CORRUPT)?;
    let dst_len = c_int::try_from(dst.len()).map_err(|_| CORRUPT)?;
    let (from, to) = (src.as_ptr().cast::<c_char>(), dst.as_mut_ptr().cast::<c_char>());
    let got = match portion {
        // SAFETY: liblz4 reads only `src_len` bytes at `from` and writes only `dst_len` at `to`; both are the slices' own.
        Portion::Whole => unsafe { LZ4_decompress_safe(from, to, src_len, dst_len) },
        // SAFETY: as above; `target` equals the capacity.
        Portion::Prefix => unsafe { LZ4_decompress_safe_partial(from, to, src_len, dst_len, dst_len) },
    };
    let got = usize::try_from(got).map_err(|_| CORRUPT)?;
    if got < dst.len() {
        return Err(DecodeError::TooShort { algorithm: "lz4", got, wanted: dst.len() });
    }
    Ok(got)
}

/// Decodes `buffer[encoded]` to `buffer[..wanted]`; an error if output would overwrite input that is not yet read.
pub(crate) fn decode_in_place(
    buffer: &mut [u8],
    encoded: Range<usize>,
    wanted: usize,
) -> Result<usize, DecodeError> {
    if encoded.end > buffer.len() || encoded.start > encoded.end || wanted > buffer.len() {
        return Err(CORRUPT);
    }
    let margin = encoded.end.saturating_sub(wanted);
    if margin >= (encoded.len() >> 8) + 32 {
        return decode_with_margin(&mut buffer[..encoded.end], encoded.start, wanted);
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
        // Where the match overlaps itself, the length of the copied part doubles with each step.
        let (from, stop) = (op - distance, op + len);
        while op < stop {
            let n = (op - from).min(stop - op);
            buffer.copy_within(from..from + n, op);
            op += n;
        }
    }
    if op < wanted {
        return Err(DecodeError::TooShort { algorithm: "lz4", got: op, wanted });
    }
    Ok(op)
}

/// Decodes the encoded bytes at the end of `buffer` with liblz4. At least `LZ4_DECOMPRESS_INPLACE_MARGIN` bytes lie between
/// the ends of output and input: lz4.h then allows the two to overlap.
fn decode_with_margin(buffer: &mut [u8], start: usize, wanted: usize) -> Result<usize, DecodeError> {
    let src_len = c_int::try_from(buffer.len() - start).map_err(|_| CORRUPT)?;
    let dst_len = c_int::try_from(wanted).map_err(|_| CORRUPT)?;
    let to = buffer.as_mut_ptr().cast::<c_char>();
    // SAFETY: `start` is at most the buffer's length, as the callers' check of `encoded` says.
    let from = unsafe { to.add(start) }.cast_const();
    // SAFETY: liblz4 reads only `src_len` bytes at `from` and writes only `dst_len` at `to`, whatever they hold; both
    // ranges are within `buffer`, which this function alone may use, and both pointers derive from it.
    let got = unsafe { LZ4_decompress_safe(from, to, src_len, dst_len) };
    let got = usize::try_from(got).map_err(|_| CORRUPT)?;
    if got < wanted {
        return Err(DecodeError::TooShort { algorithm: "lz4", got, wanted });
    }
    Ok(got)
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
