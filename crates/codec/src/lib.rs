//! Compressors with fixed-size output, and their decompressors: bytes in, bytes out.

#![forbid(unsafe_code)]

mod lz4;

/// A compression algorithm of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A raw LZ4 block.
    Lz4,
    /// MicroLZMA of liblzma.
    Lzma,
    /// A raw DEFLATE stream.
    Deflate,
    /// One Zstandard frame.
    Zstd,
}

/// How much of a pcluster is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that it decodes to, which fills the output exactly.
    Whole,
    /// As much as fills the output; more may follow.
    Prefix,
}

/// Why encoded bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no sound encoding of what is wanted.
    #[error("malformed data")]
    Malformed,
    /// This version has no decoder for the algorithm.
    #[error("no decoder for this algorithm")]
    Unsupported,
}

/// Decodes pclusters; keeps state that is worth keeping from one to the next.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// Fills `dst` with what the pcluster `src`, with its leading zeroes, decodes to.
    ///
    /// # Errors
    /// [`DecodeError`] when it does not decode to that; `dst` then holds anything.
    pub fn decode(
        &mut self,
        algorithm: Algorithm,
        src: &[u8],
        dst: &mut [u8],
        extent: Extent,
    ) -> Result<(), DecodeError> {
        let start = src.iter().position(|&b| b != 0).ok_or(DecodeError::Malformed)?;
        match algorithm {
            Algorithm::Lz4 => lz4::decode(&src[start..], dst, extent),
            _ => Err(DecodeError::Unsupported),
        }
    }
}
