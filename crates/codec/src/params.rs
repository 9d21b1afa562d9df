//! The parameters of compressors and their valid ranges.

use ferofs_format::Algorithm;

use crate::error::ParamsError;
use crate::fit::MAX_DECODED;

/// The default of [`Params::window`]: 1 MiB, the size of the largest output, so that every valid output is accepted.
pub(crate) const DEFAULT_WINDOW: usize = 1 << 20;
/// The smallest accepted [`Params::window`]: 64 KiB, the window in the EROFS paper.
pub(crate) const MIN_WINDOW: usize = 64 << 10;

/// The smallest and default part of [`Filling::Trials`]. Less unused space needs many more trials.
pub(crate) const LEAST_UNUSED: u16 = 2;
/// The largest part of [`Filling::Trials`].
const MOST_UNUSED: u16 = 64;

/// How algorithms whose libraries encode an input of a given length (DEFLATE, Zstandard) fill an output of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// By trials of several lengths.
    Trials {
        /// The part of the output, in 1/1024, that clusters may leave unused on average: 2 to 64. With more, fewer trials are needed.
        unused: u16,
    },
    /// In one pass if the algorithm can do that (Zstandard): most clusters leave less than a quarter unused, for which they should take no space,
    /// and may take less input than the output's size. DEFLATE makes trials.
    Bytes,
    /// In one pass that ends shortly before the end of a block, if the algorithm can do that and the output is large: the blocks behind it
    /// should take no space. Otherwise by trials.
    Blocks {
        /// log2 of the size of a block in bytes: 9 to 16.
        log: u8,
    },
}

/// Added to a level of LZ4: liblz4 encodes, so that the bytes are those of other programs. Needs the feature `liblz4-encode`. [`Params::new`] accepts no
/// such level, as the crate's own encoders make smaller images.
pub const LIBLZ4: u8 = 128;

/// The parameters of LZ4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lz4Params {
    /// 0 is the fast level; 1 to 12 as in lz4hc. [`LIBLZ4`] and more: liblz4's own level, for images of other builders.
    pub level: u8,
    /// Matches reach back at most this many bytes: 1024 to 65535.
    pub max_distance: u16,
}

/// The parameters of MicroLZMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LzmaParams {
    /// 0 to 9; 100 to 109 are their extreme variants.
    pub level: u8,
    /// Dictionary size in bytes: 4 KiB to 8 MiB. A decoder allocates this much.
    pub dict_size: u32,
    /// Literal context bits, 0 to 4.
    pub lc: u8,
    /// Literal position bits, 0 to 4; `lc + lp` is at most 4.
    pub lp: u8,
    /// Position bits, 0 to 4.
    pub pb: u8,
}

/// The parameters of DEFLATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateParams {
    /// 0 to 12, as in libdeflate.
    pub level: u8,
}

/// The parameters of Zstandard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdParams {
    /// 1 to 22.
    pub level: u8,
    /// log2 of the window in bytes that frames may declare: 10 to 20. Linux mounts no image with a larger one.
    pub window_log: u8,
}

/// The algorithm with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A raw LZ4 block.
    Lz4(Lz4Params),
    /// MicroLZMA.
    Lzma(LzmaParams),
    /// A raw DEFLATE stream.
    Deflate(DeflateParams),
    /// One Zstandard frame.
    Zstd(ZstdParams),
}

/// All parameters of a compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The algorithm and its parameters.
    pub method: Method,
    /// The most input bytes of one cluster: 64 KiB to 12 MiB. A cluster may take more, up to four times the output.
    pub window: usize,
    /// How [`Compressor::fit`](crate::Compressor::fit) fills an output. LZ4 and MicroLZMA always fill it in one pass.
    pub filling: Filling,
}

const LZ4_LEVELS: &str = "0 (fast) to 12";
const LZMA_LEVELS: &str = "0 to 9, or 100 to 109 (extreme)";
const DEFLATE_LEVELS: &str = "0 to 12";
const ZSTD_LEVELS: &str = "1 to 22";

impl Params {
    /// The default parameters of `algorithm` at `level`; `None` is the default level.
    ///
    /// # Errors
    /// [`ParamsError::Level`].
    pub fn new(algorithm: Algorithm, level: Option<u8>) -> Result<Self, ParamsError> {
        let method = match algorithm {
            Algorithm::Lz4 => {
                let level = level.unwrap_or(0);
                if level >= LIBLZ4 {
                    return Err(ParamsError::Level {
                        algorithm: algorithm.name(),
                        level,
                        range: LZ4_LEVELS,
                    });
                }
                Method::Lz4(Lz4Params { level, max_distance: 65535 })
            }
            Algorithm::Lzma => {
                let level = level.unwrap_or(6);
                Method::Lzma(LzmaParams {
                    level,
                    dict_size: lzma_dict_size(level % 100),
                    lc: 3,
                    lp: 0,
                    pb: 2,
                })
            }
            Algorithm::Deflate => Method::Deflate(DeflateParams { level: level.unwrap_or(6) }),
            Algorithm::Zstd => {
                Method::Zstd(ZstdParams { level: level.unwrap_or(3), window_log: 20 })
            }
        };
        let filling = Filling::Trials { unused: LEAST_UNUSED };
        let params = Self { method, window: DEFAULT_WINDOW, filling };
        params.check().map(|()| params)
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self.method {
            Method::Lz4(_) => Algorithm::Lz4,
            Method::Lzma(_) => Algorithm::Lzma,
            Method::Deflate(_) => Algorithm::Deflate,
            Method::Zstd(_) => Algorithm::Zstd,
        }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(&self) -> Result<(), ParamsError> {
        let level = |level: u8, ok: bool, range: &'static str| match ok {
            true => Ok(()),
            false => Err(ParamsError::Level { algorithm: self.algorithm().name(), level, range }),
        };
        let within = |field, value: u64, range: std::ops::RangeInclusive<u64>| match range
            .contains(&value)
        {
            true => Ok(()),
            false => Err(ParamsError::Range { field, value, range }),
        };
        within("window", self.window as u64, MIN_WINDOW as u64..=MAX_DECODED as u64)?;
        match self.filling {
            Filling::Trials { unused } => {
                within("unused", unused.into(), LEAST_UNUSED.into()..=MOST_UNUSED.into())?;
            }
            Filling::Bytes => {}
            Filling::Blocks { log } => within("log", log.into(), 9..=16)?,
        }
        match self.method {
            Method::Lz4(p) => {
                let own = if cfg!(any(feature = "liblz4-encode", test)) {
                    p.level % LIBLZ4
                } else {
                    p.level
                };
                level(p.level, own <= 12, LZ4_LEVELS)?;
                within("max_distance", p.max_distance.into(), 1024..=65535)
            }
            Method::Lzma(p) => {
                level(p.level, matches!(p.level, 0..=9 | 100..=109), LZMA_LEVELS)?;
                within("dict_size", p.dict_size.into(), 4 << 10..=8 << 20)?;
                within("lc", p.lc.into(), 0..=4)?;
                within("lp", p.lp.into(), 0..=4)?;
                within("pb", p.pb.into(), 0..=4)?;
                if p.lc + p.lp > 4 { Err(ParamsError::LcLp(p.lc + p.lp)) } else { Ok(()) }
            }
            Method::Deflate(p) => level(p.level, p.level <= 12, DEFLATE_LEVELS),
            Method::Zstd(p) => {
                level(p.level, (1..=22).contains(&p.level), ZSTD_LEVELS)?;
                within("window_log", p.window_log.into(), 10..=20)
            }
        }
    }
}

/// The dictionary size in bytes of liblzma's preset, at most 8 MiB: Linux refuses larger ones.
const fn lzma_dict_size(preset: u8) -> u32 {
    match preset {
        0 => 256 << 10,
        1 => 1 << 20,
        2 => 2 << 20,
        3 | 4 => 4 << 20,
        _ => 8 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_level_names_the_range() {
        for (algorithm, bad, words) in [
            (Algorithm::Lz4, 13, "lz4 has no level 13: 0 (fast) to 12"),
            (Algorithm::Lzma, 10, "lzma has no level 10: 0 to 9, or 100 to 109 (extreme)"),
            (Algorithm::Deflate, 13, "deflate has no level 13: 0 to 12"),
            (Algorithm::Lzma, 110, "lzma has no level 110: 0 to 9, or 100 to 109 (extreme)"),
            (Algorithm::Zstd, 0, "zstd has no level 0: 1 to 22"),
            (Algorithm::Zstd, 23, "zstd has no level 23: 1 to 22"),
        ] {
            let error = Params::new(algorithm, Some(bad)).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
    }

    #[test]
    fn other_parameters_have_ranges() {
        let good = Params::new(Algorithm::Lz4, None).unwrap();
        assert!(Params { window: 65535, ..good }.check().is_err());
        let far = Method::Lz4(Lz4Params { level: 0, max_distance: 1023 });
        assert_eq!(
            Params { method: far, ..good }.check().unwrap_err().to_string(),
            "max_distance is 1023; it must be 1024 to 65535"
        );
    }
}
