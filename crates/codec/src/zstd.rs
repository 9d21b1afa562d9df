//! Zstandard through libzstd: each cluster is one standard frame that declares its size.

#[cfg(feature = "encode")]
mod blocks;
#[cfg(feature = "encode")]
mod context;
#[cfg(feature = "encode")]
mod encode;
#[cfg(feature = "encode")]
mod sequences;

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::decoder::Portion;
use crate::error::DecodeError;

#[cfg(feature = "encode")]
pub(crate) use encode::{encoder, encoder_memory};

/// log2 of the largest accepted window in bytes: frames decode to at most 12 MiB, so they need no larger window. Frames
/// that declare a larger one are corrupt.
const MAX_WINDOW_LOG: u32 = 24;

/// The Zstandard decompressor.
#[derive(Default)]
pub(crate) struct Decoder(Option<DCtx<'static>>);

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "zstd" };

impl Decoder {
    pub(crate) fn decode(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        portion: Portion,
    ) -> Result<usize, DecodeError> {
        let wanted = dst.len();
        let context = match &mut self.0 {
            Some(context) => context,
            none => {
                let mut context = DCtx::try_create().ok_or(DecodeError::Memory)?;
                context
                    .set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))
                    .map_err(|_| DecodeError::Memory)?;
                none.insert(context)
            }
        };
        let got = match portion {
            Portion::Whole => context.decompress(dst, src).map_err(|_| CORRUPT)?,
            Portion::Prefix => {
                context.reset(ResetDirective::SessionOnly).map_err(|_| CORRUPT)?;
                let mut input = InBuffer::around(src);
                let mut output = OutBuffer::around(dst);
                loop {
                    let before = (input.pos(), output.pos());
                    let left = context.decompress_stream(&mut output, &mut input).map_err(|_| CORRUPT)?;
                    if left == 0 || output.pos() == wanted || before == (input.pos(), output.pos()) {
                        break output.pos();
                    }
                }
            }
        };
        if got < wanted {
            return Err(DecodeError::TooShort { algorithm: "zstd", got, wanted });
        }
        Ok(got)
    }
}
