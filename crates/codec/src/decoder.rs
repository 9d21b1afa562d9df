//! [`Decoder`]: the one door to all decoders. Whole clusters or prefixes, right-aligned or not; any input is safe.

use ferofs_format::Algorithm;

use crate::error::DecodeError;
use crate::fit::strip_padding;
use crate::portion::Portion;
use crate::{deflate, lz4, lzma, zstd};

/// Decodes clusters of any algorithm; keeps its working memory from one to the next.
#[derive(Default)]
pub struct Decoder {
    lzma: lzma::Decoder,
    deflate: deflate::Decoder,
    zstd: zstd::Decoder,
}

impl Decoder {
    /// One without working memory; each algorithm allocates at its first use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `dst` from the encoded `src`, whose leading zeroes are padding. What `dst` holds after an error is
    /// unspecified, but nothing beyond it is touched.
    ///
    /// # Errors
    /// No encoded bytes, a corrupt stream, one that is shorter or, for [`Portion::Whole`], longer than `dst`.
    pub fn decode(
        &mut self,
        algorithm: Algorithm,
        src: &[u8],
        dst: &mut [u8],
        portion: Portion,
    ) -> Result<(), DecodeError> {
        let src = strip_padding(src);
        if src.is_empty() {
            return Err(DecodeError::EmptyInput);
        }
        if dst.is_empty() {
            return Ok(());
        }
        let _all = match algorithm {
            Algorithm::Lz4 => lz4::decode(src, dst, portion),
            Algorithm::Lzma => self.lzma.decode(src, dst, portion),
            Algorithm::Deflate => self.deflate.decode(src, dst, portion),
            Algorithm::Zstd => self.zstd.decode(src, dst, portion),
        }?;
        Ok(())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// Decodes the LZ4 cluster at `buffer[encoded]` into `buffer[..decoded_len]`, in place. It succeeds where
/// [`Fit::Encoded`](crate::Fit::Encoded) says `in_place` and the encoded bytes end with the last page of the decoded range.
///
/// # Errors
/// [`DecodeError::OverwritesInput`] where output would reach unread input (the buffer's content is then lost); else as
/// [`Decoder::decode`].
pub fn decode_lz4_in_place(
    buffer: &mut [u8],
    encoded: std::ops::Range<usize>,
    decoded_len: usize,
) -> Result<usize, DecodeError> {
    lz4::decode_in_place(buffer, encoded, decoded_len)
}

/// Decodes the bytes of the LZ4 cluster `src` from `skip` on into `out`, and nothing beyond. What precedes them rolls
/// through `window`, which is as long as [`crate::lz4_window`] says and whose content does not matter before and
/// afterwards.
///
/// # Errors
/// As [`Decoder::decode`] for a prefix of `skip` and `out.len()` bytes; [`DecodeError::MatchBeyondWindow`] where a match does not
/// fit the window.
pub fn decode_lz4_range(
    src: &[u8],
    window: &mut [u8],
    skip: usize,
    out: &mut [u8],
) -> Result<(), DecodeError> {
    let src = strip_padding(src);
    if src.is_empty() {
        return Err(DecodeError::EmptyInput);
    }
    if out.is_empty() {
        return Ok(());
    }
    lz4::decode_range(src, window, skip, out)
}
