//! How a patch names the compressors that encode its content again. Layout: docs/PATCH_FORMAT.md.

use ferofs_codec::{Algorithm, DeflateParams, Lz4Params, LzmaParams, Method, Params, ZstdParams};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, PatchFault, Result};
use crate::numbers::to_usize;

/// Methods that a patch may have: more than any build has.
pub(super) const METHODS_MAX: u32 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawMethod {
    algorithm: u8,
    level: u8,
    window_log: u8,
    lc: u8,
    lp: u8,
    pb: u8,
    max_distance: U16,
    dict_size: U32,
    window: U32,
    /// See [`ferofs_codec::encoder_version`].
    encoder: U32,
    unused: U16,
}

impl RawMethod {
    pub(super) fn new(params: &Params) -> Self {
        let algorithm = params.algorithm();
        let mut raw = Self {
            algorithm: algorithm.id(),
            level: 0,
            window_log: 0,
            lc: 0,
            lp: 0,
            pb: 0,
            max_distance: 0.into(),
            dict_size: 0.into(),
            // Exact: checked parameters have a window of at most 12 MiB.
            window: u32::try_from(params.window).unwrap_or(u32::MAX).into(),
            encoder: ferofs_codec::encoder_version(algorithm).into(),
            unused: params.unused.into(),
        };
        match params.method {
            Method::Lz4(lz4) => (raw.level, raw.max_distance) = (lz4.level, lz4.max_distance.into()),
            Method::Lzma(lzma) => {
                (raw.level, raw.dict_size) = (lzma.level, lzma.dict_size.into());
                (raw.lc, raw.lp, raw.pb) = (lzma.lc, lzma.lp, lzma.pb);
            }
            Method::Deflate(deflate) => raw.level = deflate.level,
            Method::Zstd(zstd) => (raw.level, raw.window_log) = (zstd.level, zstd.window_log),
        }
        raw
    }

    /// The parameters, if this program has the very encoder that the patch was made with.
    pub(super) fn params(&self) -> Result<Params> {
        let malformed = |what| Error::Patch(PatchFault::Malformed(what));
        let algorithm = Algorithm::from_id(self.algorithm)
            .ok_or_else(|| malformed("it names an unknown compression algorithm"))?;
        let (expected, found) = (self.encoder.get(), ferofs_codec::encoder_version(algorithm));
        if expected != found {
            return Err(Error::Patch(PatchFault::Encoder { algorithm: algorithm.name(), expected, found }));
        }
        let level = self.level;
        let method = match algorithm {
            Algorithm::Lz4 => Method::Lz4(Lz4Params { level, max_distance: self.max_distance.get() }),
            Algorithm::Lzma => Method::Lzma(LzmaParams {
                level,
                dict_size: self.dict_size.get(),
                lc: self.lc,
                lp: self.lp,
                pb: self.pb,
            }),
            Algorithm::Deflate => Method::Deflate(DeflateParams { level }),
            Algorithm::Zstd => Method::Zstd(ZstdParams { level, window_log: self.window_log }),
        };
        let params = Params { method, window: to_usize(self.window.get()), unused: self.unused.get() };
        params.check().map_err(|_| malformed("a compression parameter is out of range"))?;
        Ok(params)
    }
}
