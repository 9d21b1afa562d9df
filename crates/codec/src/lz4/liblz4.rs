//! LZ4 decoding by liblz4.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use lz4_sys::LZ4_decompress_safe;

use super::decode::CORRUPT;
use crate::decoder::Portion;
use crate::error::DecodeError;

unsafe extern "C" {
    /// liblz4's prefix decoder (lz4.h, since 1.8.3), which the crate lz4-sys links but does not
    /// declare.
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        target: c_int,
        capacity: c_int,
    ) -> c_int;
}

/// Decodes `src` into the whole of `dst`.
pub(crate) fn decode(src: &[u8], dst: &mut [u8], portion: Portion) -> Result<usize, DecodeError> {
    let src_len = c_int::try_from(src.len()).map_err(|_| CORRUPT)?;
    let dst_len = c_int::try_from(dst.len()).map_err(|_| CORRUPT)?;
    let (from, to) = (src.as_ptr().cast::<c_char>(), dst.as_mut_ptr().cast::<c_char>());
    let got = match portion {
        // SAFETY: liblz4 reads only `src_len` bytes at `from` and writes only `dst_len` at `to`;
        // both are the slices' own.
        Portion::Whole => unsafe { LZ4_decompress_safe(from, to, src_len, dst_len) },
        // SAFETY: as above; `target` equals the capacity.
        Portion::Prefix => unsafe {
            LZ4_decompress_safe_partial(from, to, src_len, dst_len, dst_len)
        },
    };
    let got = usize::try_from(got).map_err(|_| CORRUPT)?;
    if got < dst.len() {
        return Err(DecodeError::TooShort { algorithm: "lz4", got, wanted: dst.len() });
    }
    Ok(got)
}

/// Decodes the encoded bytes at the end of `buffer` with liblz4. At least
/// [`lz4_in_place_margin`](super::lz4_in_place_margin) bytes lie between the ends of output and
/// input: lz4.h then allows the two to overlap.
pub(super) fn decode_with_margin(
    buffer: &mut [u8],
    start: usize,
    wanted: usize,
) -> Result<usize, DecodeError> {
    let src_len = c_int::try_from(buffer.len() - start).map_err(|_| CORRUPT)?;
    let dst_len = c_int::try_from(wanted).map_err(|_| CORRUPT)?;
    let to = buffer.as_mut_ptr().cast::<c_char>();
    // SAFETY: `start` is at most the buffer's length, as the callers' check of `encoded` says.
    let from = unsafe { to.add(start) }.cast_const();
    // SAFETY: liblz4 reads only `src_len` bytes at `from` and writes only `dst_len` at `to`,
    // whatever they hold; both ranges are within `buffer`, which this function alone may use, and
    // both pointers derive from it.
    let got = unsafe { LZ4_decompress_safe(from, to, src_len, dst_len) };
    let got = usize::try_from(got).map_err(|_| CORRUPT)?;
    if got < wanted {
        return Err(DecodeError::TooShort { algorithm: "lz4", got, wanted });
    }
    Ok(got)
}
