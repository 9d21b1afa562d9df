//! Raw DEFLATE: libdeflate encodes and decodes whole clusters; flate2's streaming decoder decodes prefixes, which
//! libdeflate cannot.

#[cfg(feature = "encode")]
mod encode;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};

use crate::error::DecodeError;
use crate::portion::Portion;

#[cfg(feature = "encode")]
pub(crate) use encode::encoder;

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
