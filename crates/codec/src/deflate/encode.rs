//! DEFLATE by libdeflate.

use libdeflater::{CompressionLvl, Compressor};

use crate::error::{EncodeError, ParamsError};
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::{DeflateParams, Filling};

struct Inner(Compressor);

impl FixedInput for Inner {
    fn bound(&mut self, len: usize) -> usize {
        self.0.deflate_compress_bound(len)
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        Ok(self.0.deflate_compress(src, dst).ok())
    }
}

/// Makes the DEFLATE compressor.
pub(crate) fn encoder(
    params: DeflateParams,
    window: usize,
    filling: Filling,
) -> Result<LengthSearch<impl FixedInput>, ParamsError> {
    let level = CompressionLvl::new(params.level.into()).map_err(|_| ParamsError::Level {
        algorithm: "deflate",
        level: params.level,
        range: "0 to 12",
    })?;
    Ok(LengthSearch::new(Inner(Compressor::new(level)), window, filling, 32 << 10))
}
