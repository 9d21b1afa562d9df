//! LZ4 with fixed-size output, our own. Source: FORMAT.md 6.5.

mod chain;
mod decode;
mod fast;
mod mem;
mod optimal;
mod rolling;
mod sink;

pub use rolling::LZ4_WINDOW;

pub(crate) use decode::{decode, decode_in_place};
pub(crate) use rolling::decode_range;

use crate::error::EncodeError;
use crate::fit::{Fit, FixedOutput};
use crate::params::Lz4Params;

/// The LZ4 compressors, by level.
pub(crate) struct Lz4 {
    parse: Parse,
    window: usize,
}

enum Parse {
    Fast(fast::Fast),
    Optimal(Box<optimal::Optimal>),
}

impl Lz4 {
    pub(crate) fn new(params: Lz4Params, window: usize) -> Self {
        let parse = match params.level {
            0 => Parse::Fast(fast::Fast::new(params.max_distance)),
            level => Parse::Optimal(Box::new(optimal::Optimal::new(level, params.max_distance))),
        };
        Self { parse, window }
    }

    fn run(&mut self, src: &[u8], pos: usize, dst: &mut [u8], window: usize) -> Result<Fit, EncodeError> {
        match &mut self.parse {
            Parse::Fast(fast) => fast.fit(src, pos, dst, window),
            Parse::Optimal(optimal) => optimal.fit(src, pos, dst, window),
        }
    }
}

impl FixedOutput for Lz4 {
    fn begin(&mut self) {
        // Nothing is kept from one cluster to the next: what lies before it is out of reach.
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        self.run(src, pos, dst, self.window)
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        Ok(match self.run(src, 0, dst, usize::MAX)? {
            fit @ Fit::Encoded { consumed, .. } if consumed == src.len() => fit,
            _ => Fit::DoesNotPay,
        })
    }
}
