//! Compressors with fixed-size output, and their decompressors: bytes in, bytes out.

#![deny(unsafe_code)]

mod error;
mod fit;
mod lz4;
mod params;

use ferofs_format::Algorithm;

pub use error::{DecodeError, EncodeError, ParamsError};
pub use fit::{Fit, FixedOutput, MAX_DECODED, MAX_ENCODED, right_align, strip_padding};
pub use params::{DeflateParams, Lz4Params, LzmaParams, Method, Params, ZstdParams};

/// How much of a pcluster is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that it decodes to, which fills the output exactly.
    Whole,
    /// As much as fills the output; more may follow.
    Prefix,
}

/// A compressor for `params`.
///
/// # Errors
/// [`ParamsError`] for parameters out of range.
pub fn compressor(params: &Params) -> Result<Box<dyn FixedOutput>, ParamsError> {
    params.check()?;
    match params.method {
        Method::Lz4(lz4) if lz4.level == 0 => Ok(Box::new(lz4::Fast::new(lz4.max_distance, params.window))),
        Method::Lz4(Lz4Params { level, .. })
        | Method::Lzma(LzmaParams { level, .. })
        | Method::Deflate(DeflateParams { level })
        | Method::Zstd(ZstdParams { level, .. }) => {
            let range = "only lz4's level 0 (fast) in this version";
            Err(ParamsError::Level { algorithm: params.algorithm().name(), level, range })
        }
    }
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
        let start = src.iter().position(|&b| b != 0).ok_or(DecodeError::EmptyInput)?;
        match algorithm {
            Algorithm::Lz4 => lz4::decode(&src[start..], dst, extent),
            _ => Err(DecodeError::Corrupt { algorithm: algorithm.name() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes between noise and repetition.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..300),
            (any::<u8>(), 1usize..3000).prop_map(|(byte, len)| vec![byte; len]),
            (proptest::collection::vec(0u8..4, 1..40), 1usize..60).prop_map(|(text, n)| text.repeat(n)),
        ];
        proptest::collection::vec(piece, 1..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn clusters_round_trip(inputs in proptest::collection::vec(content(), 1..4), size in 64usize..5000) {
            let params = Params::new(Algorithm::Lz4, Some(0)).unwrap();
            let mut encoder = compressor(&params).unwrap();
            let mut decoder = Decoder::default();
            for input in &inputs {
                encoder.begin();
                let mut pos = 0;
                while pos < input.len() {
                    let mut block = vec![0; size];
                    match encoder.fit(input, pos, &mut block).unwrap() {
                        Fit::Encoded { consumed, produced, .. } => {
                            prop_assert!(produced <= size && produced < consumed);
                            right_align(&mut block, produced);
                            let mut out = vec![0; consumed];
                            decoder.decode(Algorithm::Lz4, &block, &mut out, Extent::Whole).unwrap();
                            prop_assert_eq!(&out, &input[pos..pos + consumed]);
                            let mut prefix = vec![0; consumed / 2];
                            decoder.decode(Algorithm::Lz4, &block, &mut prefix, Extent::Prefix).unwrap();
                            prop_assert_eq!(&prefix, &out[..consumed / 2]);
                            pos += consumed;
                        }
                        Fit::DoesNotPay => pos += size,
                    }
                }
            }
        }

        #[test]
        fn garbage_never_panics(src: Vec<u8>, len in 0usize..2000, whole: bool) {
            let extent = if whole { Extent::Whole } else { Extent::Prefix };
            let _ = Decoder::default().decode(Algorithm::Lz4, &src, &mut vec![0; len], extent);
        }
    }
}
