//! Raw DEFLATE: libdeflate encodes and decodes whole clusters; flate2's streaming decoder decodes prefixes, which
//! libdeflate cannot.

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::error::{DecodeError, EncodeError, ParamsError};
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::DeflateParams;
use crate::portion::Portion;

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
) -> Result<LengthSearch<impl FixedInput>, ParamsError> {
    let level = CompressionLvl::new(params.level.into()).map_err(|_| ParamsError::Level {
        algorithm: "deflate",
        level: params.level,
        range: "0 to 12",
    })?;
    Ok(LengthSearch::new(Inner(Compressor::new(level)), window, 32 << 10))
}

/// The DEFLATE decompressor.
#[derive(Default)]
pub(crate) struct Decoder {
    whole: Option<Decompressor>,
    prefix: Option<Decompress>,
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
                match self.whole.get_or_insert_with(Decompressor::new).deflate_decompress(src, dst) {
                    Ok(got) => got,
                    Err(DecompressionError::InsufficientSpace) => {
                        return Err(DecodeError::TooLong { algorithm: "deflate", wanted });
                    }
                    Err(DecompressionError::BadData) => return Err(CORRUPT),
                }
            }
            Portion::Prefix => {
                let stream = self.prefix.get_or_insert_with(|| Decompress::new(false));
                stream.reset(false);
                loop {
                    let (taken, made) = (stream.total_in() as usize, stream.total_out() as usize);
                    let (rest, free) =
                        (src.get(taken..).ok_or(CORRUPT)?, dst.get_mut(made..).ok_or(CORRUPT)?);
                    let status = stream.decompress(rest, free, FlushDecompress::None).map_err(|_| CORRUPT)?;
                    let now = stream.total_out() as usize;
                    let stuck = now == made && stream.total_in() as usize == taken;
                    if now == wanted || status == Status::StreamEnd || stuck {
                        break now;
                    }
                }
            }
        };
        if got < wanted {
            return Err(DecodeError::TooShort { algorithm: "deflate", got, wanted });
        }
        Ok(got)
    }
}
