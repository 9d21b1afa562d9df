//! Zstandard by libzstd.

use zstd_safe::{CCtx, CParameter};

use crate::error::{EncodeError, ParamsError};
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::ZstdParams;

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
