//! LZ4 with fixed-size output, our own: one match finder runs on over a file's clusters. Source: FORMAT.md 6.5.

mod decode;
mod fast;
mod mem;
mod sink;

pub(crate) use decode::{decode, decode_in_place};

use crate::error::EncodeError;
use crate::fit::{Fit, FixedOutput};
use crate::params::Lz4Params;

/// The LZ4 compressors, by level.
pub(crate) struct Lz4 {
    fast: fast::Fast,
    window: usize,
}

impl Lz4 {
    pub(crate) fn new(params: Lz4Params, window: usize) -> Self {
        Self { fast: fast::Fast::new(params.max_distance), window }
    }
}

impl FixedOutput for Lz4 {
    fn begin(&mut self) {
        self.fast.begin();
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        self.fast.fit(src, pos, dst, self.window)
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        self.begin();
        let fit = self.fast.fit(src, 0, dst, usize::MAX)?;
        Ok(match fit {
            Fit::Encoded { consumed, .. } if consumed == src.len() => fit,
            _ => Fit::DoesNotPay,
        })
    }
}
