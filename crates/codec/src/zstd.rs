//! Zstandard through libzstd: each cluster is one standard frame that declares its size.

#[cfg(feature = "encode")]
mod blocks;
#[cfg(feature = "encode")]
mod context;
mod decompressor;
#[cfg(feature = "encode")]
mod encode;
#[cfg(feature = "encode")]
mod sequences;

use decompressor::Decompressor;

use crate::decoder::Portion;
use crate::error::DecodeError;

#[cfg(feature = "encode")]
pub(crate) use encode::CODEC;

/// The parameters of libzstd.
#[cfg(feature = "encode")]
#[derive(Clone, Copy, Debug)]
struct ZstdParams {
    level: u8,
    /// log2 of the window in bytes that frames may declare.
    window_log: u8,
}

/// The Zstandard decompressor.
#[derive(Default)]
pub(crate) struct Decoder(Option<Decompressor>);

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "zstd" };

impl Decoder {
    pub(crate) fn decode(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        portion: Portion,
    ) -> Result<usize, DecodeError> {
        let wanted = dst.len();
        let decompressor = match &mut self.0 {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().ok_or(DecodeError::Memory)?),
        };
        let got = match portion {
            Portion::Whole => decompressor.decode_whole(src, dst),
            Portion::Prefix => decompressor.decode_prefix(src, dst),
        }
        .ok_or(CORRUPT)?;
        if got < wanted {
            return Err(DecodeError::TooShort { algorithm: "zstd", got, wanted });
        }
        Ok(got)
    }
}
