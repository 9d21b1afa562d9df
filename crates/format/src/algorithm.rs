//! Compression algorithms, and their configurations after the superblock. Source: FORMAT.md 6.1.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::BlockSize;
use crate::error::{Fault, FormatError, Result, Structure};
use crate::view::View;

/// A compression algorithm, numbered as on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// A raw LZ4 block.
    Lz4 = 0,
    /// MicroLZMA of liblzma.
    Lzma = 1,
    /// A raw DEFLATE stream.
    Deflate = 2,
    /// One Zstandard frame.
    Zstd = 3,
}

impl Algorithm {
    /// Every algorithm, in ascending order of its number.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Lzma, Self::Deflate, Self::Zstd];

    /// The on-disk number, the usual name, and the first Linux version that decodes it.
    const fn facts(self) -> (u8, &'static str, Option<(u8, u8)>) {
        match self {
            Self::Lz4 => (0, "lz4", Some((5, 4))),
            Self::Lzma => (1, "lzma", Some((5, 16))),
            Self::Deflate => (2, "deflate", Some((6, 6))),
            Self::Zstd => (3, "zstd", Some((6, 10))),
        }
    }

    /// The algorithm with this on-disk number.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.id() == id)
    }

    /// Its index in [`Self::ALL`].
    fn index(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).unwrap_or(usize::MAX)
    }

    /// The on-disk number, less than 16.
    #[must_use]
    pub const fn id(self) -> u8 {
        self.facts().0
    }

    /// This algorithm's bit in `available_compr_algs`.
    #[must_use]
    pub fn bit(self) -> u16 {
        1u16.checked_shl(self.id().into()).unwrap_or(0)
    }

    /// The usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().1
    }

    /// The first Linux version that decodes it: `(6, 10)` is 6.10; `None`: no version does.
    #[must_use]
    pub const fn linux_version(self) -> Option<(u8, u8)> {
        self.facts().2
    }
}

/// The limits of an image's data of one algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlgorithmConfig {
    /// Matches reach back at most this many bytes: LZ4's largest distance (1 to 65535),
    /// MicroLZMA's dictionary, or the window of DEFLATE or Zstandard, a power of two. erofs-utils
    /// writes 1 for DEFLATE, whose value no reader uses.
    pub window: u32,
    /// Of LZ4: the largest pcluster in blocks; 0 and 1 both mean one block. 0 for others.
    pub max_pcluster_blocks: u16,
}

/// The configurations of an image's algorithms, in the order of [`Algorithm::ALL`]; `None` for
/// algorithms that it does not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionConfigs([Option<AlgorithmConfig>; Algorithm::ALL.len()]);

/// The largest match distance in bytes that LZ4 itself allows; a stored 0 means this.
pub const LZ4_MAX_DISTANCE: u16 = 65535;
/// The MicroLZMA dictionaries in bytes that Linux accepts. Larger ones are an error.
pub const LZMA_DICT_SIZES: RangeInclusive<u32> = 4096..=8 << 20;
/// log2 of the smallest and of the largest window of Zstandard in bytes that Linux accepts.
pub const ZSTD_WINDOW_LOGS: RangeInclusive<u8> = 10..=20;
/// The most blocks of LZ4's pclusters that Linux accepts: it counts them as pages, also if blocks
/// are smaller.
const LZ4_PCLUSTER_BLOCKS: u64 = 256;
/// The most bytes of a pcluster that Linux accepts.
const PCLUSTER_MAX: u64 = 1 << 20;
/// The stored `windowlog` is the window's log2 less this.
const ZSTD_WINDOW_LOG_BASE: u8 = 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLz4 {
    max_distance: U16,
    max_pclusterblks: U16,
    reserved: [u8; 10],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLzma {
    dict_size: U32,
    format: U16,
    reserved: [u8; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDeflate {
    windowbits: u8,
    reserved: [u8; 5],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawZstd {
    format: u8,
    windowlog: u8,
    reserved: [u8; 4],
}

impl CompressionConfigs {
    /// Bytes of the records of all algorithms, each with its length before it.
    pub const LEN_MAX: usize = Algorithm::ALL.len() * size_of::<U16>()
        + size_of::<RawLz4>()
        + size_of::<RawLzma>()
        + size_of::<RawDeflate>()
        + size_of::<RawZstd>();

    /// The configuration of an image without records: one LZ4 distance, where 0 means
    /// [`LZ4_MAX_DISTANCE`], and pclusters of one block.
    #[must_use]
    pub fn of_lz4(max_distance: u16) -> Self {
        let mut configs = Self::default();
        let window = if max_distance == 0 { LZ4_MAX_DISTANCE } else { max_distance };
        let config = AlgorithmConfig { window: window.into(), max_pcluster_blocks: 1 };
        configs.extend(Algorithm::Lz4, config);
        configs
    }

    /// The reverse of [`Self::of_lz4`]: the distance, if the image needs no records.
    #[must_use]
    pub fn lz4_only(&self) -> Option<u16> {
        let config = self.get(Algorithm::Lz4).filter(|config| config.max_pcluster_blocks <= 1)?;
        // Old kernels know the full distance as 0.
        let distance = u16::try_from(config.window).ok().filter(|max| *max < LZ4_MAX_DISTANCE);
        (self.available() == Algorithm::Lz4.bit()).then_some(distance.unwrap_or(0))
    }

    /// The limits of the data of `algorithm`.
    #[must_use]
    pub fn get(&self, algorithm: Algorithm) -> Option<AlgorithmConfig> {
        self.0.get(algorithm.index()).copied().flatten()
    }

    /// [`AlgorithmConfig::window`] of `algorithm`.
    #[must_use]
    pub fn window(&self, algorithm: Algorithm) -> Option<u32> {
        self.get(algorithm).map(|config| config.window)
    }

    /// Whether the image may use `algorithm`.
    #[must_use]
    pub fn contains(&self, algorithm: Algorithm) -> bool {
        self.get(algorithm).is_some()
    }

    /// Lets the image also have data within the limits of `config`.
    pub fn extend(&mut self, algorithm: Algorithm, config: AlgorithmConfig) {
        let old = self.get(algorithm).unwrap_or_default();
        if let Some(place) = self.0.get_mut(algorithm.index()) {
            *place = Some(AlgorithmConfig {
                window: old.window.max(config.window),
                max_pcluster_blocks: old.max_pcluster_blocks.max(config.max_pcluster_blocks),
            });
        }
    }

    /// Configurations with which a reader can decode the extents of both images.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for algorithm in Algorithm::ALL {
            if let Some(config) = other.get(algorithm) {
                self.extend(algorithm, config);
            }
        }
        self
    }

    /// The bitmap `available_compr_algs`.
    #[must_use]
    pub fn available(&self) -> u16 {
        Algorithm::ALL.into_iter().filter(|a| self.contains(*a)).fold(0, |bits, a| bits | a.bit())
    }

    /// Reads the records for the algorithms in `available` from `bytes`, which start right after
    /// the superblock; more bytes may follow.
    ///
    /// # Errors
    /// An unknown algorithm's bit, a record that is too short, a value out of range.
    pub fn parse(available: u16, bytes: &[u8]) -> Result<Self> {
        let known = Algorithm::ALL.into_iter().fold(0, |bits, a| bits | a.bit());
        if available & !known != 0 {
            let fault = Fault::Field { field: "available_compr_algs", value: available.into() };
            return Err(FormatError::new(Structure::Superblock, fault));
        }
        let mut configs = Self::default();
        let mut view = View::new(bytes, Structure::CompressionConfig);
        for algorithm in Algorithm::ALL.into_iter().filter(|a| available & a.bit() != 0) {
            let len = view.read::<U16>()?.get();
            let mut record = view.sub(usize::from(len), Structure::CompressionConfig)?;
            configs.extend(algorithm, parse(algorithm, &mut record)?);
        }
        Ok(configs)
    }

    /// The records that follow the superblock.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for algorithm in Algorithm::ALL {
            let Some(config) = self.get(algorithm) else { continue };
            let log = u8::try_from(config.window.checked_ilog2().unwrap_or(0)).unwrap_or(0);
            match algorithm {
                Algorithm::Lz4 => {
                    let raw = RawLz4 {
                        max_distance: u16::try_from(config.window).unwrap_or(u16::MAX).into(),
                        max_pclusterblks: config.max_pcluster_blocks.into(),
                        reserved: [0; 10],
                    };
                    push_record(&mut out, 14, raw.as_bytes());
                }
                Algorithm::Lzma => {
                    let dict_size = config.window.into();
                    let raw = RawLzma { dict_size, format: 0.into(), reserved: [0; 8] };
                    push_record(&mut out, 14, raw.as_bytes());
                }
                Algorithm::Deflate => {
                    let raw = RawDeflate { windowbits: log, reserved: [0; 5] };
                    push_record(&mut out, 6, raw.as_bytes());
                }
                Algorithm::Zstd => {
                    let windowlog = log.saturating_sub(ZSTD_WINDOW_LOG_BASE);
                    let raw = RawZstd { format: 0, windowlog, reserved: [0; 4] };
                    push_record(&mut out, 6, raw.as_bytes());
                }
            }
        }
        out
    }

    /// The settings of an image with blocks of this size that the parser accepts and Linux does
    /// not: it does not mount the image.
    pub fn refused_by_linux(&self, block: BlockSize) -> impl Iterator<Item = Fault> {
        let blocks_max = PCLUSTER_MAX.checked_div(block.bytes64()).unwrap_or(0);
        let blocks_max = blocks_max.min(LZ4_PCLUSTER_BLOCKS);
        let configs = *self;
        Algorithm::ALL.into_iter().filter_map(move |algorithm| {
            let config = configs.get(algorithm)?;
            let (field, value, is_refused) = match algorithm {
                Algorithm::Lz4 => {
                    let blocks = u64::from(config.max_pcluster_blocks);
                    ("lz4 max_pclusterblks", blocks, blocks > blocks_max)
                }
                Algorithm::Lzma => {
                    let is_refused = !LZMA_DICT_SIZES.contains(&config.window);
                    ("lzma dict_size", config.window.into(), is_refused)
                }
                // The parser checks all of it.
                Algorithm::Deflate => return None,
                Algorithm::Zstd => {
                    let log = config.window.checked_ilog2().unwrap_or(0);
                    ("zstd windowlog", log.into(), log > u32::from(*ZSTD_WINDOW_LOGS.end()))
                }
            };
            is_refused.then_some(Fault::Field { field, value })
        })
    }
}

fn push_record(out: &mut Vec<u8>, len: u16, record: &[u8]) {
    debug_assert_eq!(usize::from(len), record.len());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(record);
}

fn parse(algorithm: Algorithm, record: &mut View<'_>) -> Result<AlgorithmConfig> {
    let mut config = AlgorithmConfig::default();
    let (field, value) = match algorithm {
        Algorithm::Lz4 => {
            let raw = record.read::<RawLz4>()?;
            config.max_pcluster_blocks = raw.max_pclusterblks.get();
            let distance = raw.max_distance.get();
            config.window = if distance == 0 { LZ4_MAX_DISTANCE } else { distance }.into();
            return Ok(config);
        }
        Algorithm::Lzma => {
            let raw = record.read::<RawLzma>()?;
            config.window = raw.dict_size.get();
            match raw.format.get() {
                0 if config.window <= *LZMA_DICT_SIZES.end() => return Ok(config),
                0 => ("lzma dict_size", config.window),
                format => ("lzma format", format.into()),
            }
        }
        Algorithm::Deflate => {
            let bits = record.read::<RawDeflate>()?.windowbits;
            // As Linux, which refuses only windows that its decoder does not have.
            match 1u32.checked_shl(bits.into()) {
                Some(window) if bits <= 15 => return Ok(AlgorithmConfig { window, ..config }),
                _ => ("deflate windowbits", bits.into()),
            }
        }
        Algorithm::Zstd => {
            let raw = record.read::<RawZstd>()?;
            let log = u32::from(raw.windowlog).saturating_add(ZSTD_WINDOW_LOG_BASE.into());
            match (raw.format, 1u32.checked_shl(log)) {
                // 2 GiB keeps sizes within 32 bits. Decoders have lower limits.
                (0, Some(window)) => return Ok(AlgorithmConfig { window, ..config }),
                (0, None) => ("zstd windowlog", raw.windowlog.into()),
                (format, _) => ("zstd format", format.into()),
            }
        }
    };
    Err(record.fault(Fault::Field { field, value: value.into() }))
}
