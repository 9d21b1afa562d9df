//! Zstandard through libzstd: each cluster is one standard frame that declares its size.

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::error::{DecodeError, EncodeError, ParamsError};
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::ZstdParams;
use crate::portion::Portion;

struct Inner(CCtx<'static>);

impl FixedInput for Inner {
    fn bound(&mut self, len: usize) -> usize {
        zstd_safe::compress_bound(len)
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        match self.0.compress2(dst, src) {
            Ok(produced) => Ok(Some(produced)),
            // With accepted parameters libzstd only fails if the output is too small.
            Err(_) => Ok(None),
        }
    }
}

/// Makes the Zstandard compressor.
pub(crate) fn encoder(
    params: ZstdParams,
    window: usize,
) -> Result<LengthSearch<impl FixedInput>, ParamsError> {
    let level = ParamsError::Level { algorithm: "zstd", level: params.level, range: "1 to 22" };
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(params.level.into()),
        CParameter::WindowLog(params.window_log.into()),
        CParameter::ContentSizeFlag(true),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter).map_err(|_| level.clone())?;
    }
    Ok(LengthSearch::new(Inner(context), window, 1 << params.window_log))
}

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
