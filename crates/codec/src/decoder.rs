//! [`Decoder`] decodes clusters of all algorithms, right-aligned or not, as a whole or as a prefix
//! ([`Portion`]). Corrupt input is an error, never undefined behaviour.

use ferofs_format::Algorithm;

#[cfg(feature = "deflate")]
use crate::deflate;
use crate::error::DecodeError;
use crate::fit::strip_padding;
use crate::lz4;
#[cfg(feature = "lzma")]
use crate::lzma;
#[cfg(feature = "zstd")]
use crate::zstd;

/// Decodes clusters of any algorithm, and reuses its working memory for the next one.
#[derive(Default)]
pub struct Decoder {
    #[cfg(feature = "lzma")]
    lzma: lzma::Decoder,
    #[cfg(feature = "deflate")]
    deflate: deflate::Decoder,
    #[cfg(feature = "zstd")]
    zstd: zstd::Decoder,
}

impl Decoder {
    /// A decoder without working memory: each algorithm allocates at its first use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `src`, without its leading zeroes, which are padding, and fills `dst`. After an
    /// error the content of `dst` is unspecified.
    ///
    /// # Errors
    /// [`DecodeError::NotBuilt`] for an algorithm whose feature is off. No encoded bytes; a corrupt
    /// stream; a stream that is shorter or, for [`Portion::Whole`], longer than `dst`.
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
        let _decoded_len = match algorithm {
            Algorithm::Lz4 => lz4::decode(src, dst, portion),
            #[cfg(feature = "lzma")]
            Algorithm::Lzma => self.lzma.decode(src, dst, portion),
            #[cfg(feature = "deflate")]
            Algorithm::Deflate => self.deflate.decode(src, dst, portion),
            #[cfg(feature = "zstd")]
            Algorithm::Zstd => self.zstd.decode(src, dst, portion),
            #[cfg(not(all(feature = "lzma", feature = "deflate", feature = "zstd")))]
            _ => Err(DecodeError::NotBuilt { algorithm: algorithm.name() }),
        }?;
        Ok(())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// Decodes the LZ4 cluster at `buffer[encoded]` into `buffer[..decoded_len]`, in place.
///
/// It succeeds for every valid cluster if at least
/// [`lz4_in_place_margin`](crate::lz4_in_place_margin) bytes lie between the end of the output and
/// the end of the encoded bytes, and for many clusters if there are fewer.
///
/// # Errors
/// [`DecodeError::OverwritesInput`] if output would overwrite input that is not yet read; the
/// buffer's content is then unspecified. Otherwise as [`Decoder::decode`].
pub fn decode_lz4_in_place(
    buffer: &mut [u8],
    encoded: std::ops::Range<usize>,
    decoded_len: usize,
) -> Result<usize, DecodeError> {
    lz4::decode_in_place(buffer, encoded, decoded_len)
}

/// Decodes the LZ4 cluster `src`, and fills `out` with its content from byte `skip` on. Decoding
/// stops there.
///
/// The bytes before `skip` go through `window`, a ring buffer of [`crate::lz4_window`] bytes. Its
/// content before the call does not matter, and is unspecified afterwards.
///
/// # Errors
/// As [`Decoder::decode`] for a prefix of `skip + out.len()` bytes;
/// [`DecodeError::MatchBeyondWindow`] if a match reaches back further than the window.
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

/// The part of a cluster that the caller wants decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// The whole cluster: the output's length must equal the decoded length.
    Whole,
    /// The first bytes, as many as the output holds. The decoder neither decodes nor checks the
    /// rest.
    Prefix,
}
