//! Raw DEFLATE: libdeflate encodes and decodes whole clusters; miniz_oxide decodes prefixes, which
//! libdeflate cannot. It decodes to the output itself, so that it refuses distances that reach
//! before the start, as Linux does.

#[cfg(feature = "encode")]
mod encode;

use libdeflater::{DecompressionError, Decompressor};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::decoder::Portion;
use crate::error::DecodeError;

#[cfg(feature = "encode")]
pub(crate) use encode::CODEC;

/// The DEFLATE decompressor.
#[derive(Default)]
pub(crate) struct Decoder {
    whole: Option<Decompressor>,
    prefix: Option<Box<DecompressorOxide>>,
}

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "deflate" };

impl Decoder {
    pub(crate) fn decode(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        portion: Portion,
    ) -> Result<usize, DecodeError> {
        let wanted = dst.len();
        let got = match portion {
            Portion::Whole => {
                match self.whole.get_or_insert_with(Decompressor::new).deflate_decompress(src, dst)
                {
                    Ok(got) => got,
                    Err(DecompressionError::InsufficientSpace) => {
                        return Err(DecodeError::TooLong { algorithm: "deflate", wanted });
                    }
                    Err(DecompressionError::BadData) => return Err(CORRUPT),
                }
            }
            Portion::Prefix => {
                let state = self.prefix.get_or_insert_with(Box::default);
                state.init();
                let (status, _, got) =
                    decompress(state, src, dst, 0, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF);
                match status {
                    // Without more input it makes no progress.
                    TINFLStatus::Done
                    | TINFLStatus::HasMoreOutput
                    | TINFLStatus::NeedsMoreInput
                    | TINFLStatus::FailedCannotMakeProgress => got,
                    _ => return Err(CORRUPT),
                }
            }
        };
        if got < wanted {
            return Err(DecodeError::TooShort { algorithm: "deflate", got, wanted });
        }
        Ok(got)
    }
}
