//! Compression algorithms, and their configurations after the superblock. Source: FORMAT.md 6.1.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

    /// The algorithm with this on-disk number.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Lz4),
            1 => Some(Self::Lzma),
            2 => Some(Self::Deflate),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The on-disk number, 0 to 3.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Lz4 => 0,
            Self::Lzma => 1,
            Self::Deflate => 2,
            Self::Zstd => 3,
        }
    }

    /// This algorithm's bit in `available_compr_algs`.
    #[must_use]
    pub const fn bit(self) -> u16 {
        match self {
            Self::Lz4 => 1,
            Self::Lzma => 2,
            Self::Deflate => 4,
            Self::Zstd => 8,
        }
    }

    /// The usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lzma => "lzma",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }
}

/// The limits of an image's LZ4 data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lz4Config {
    /// The largest match distance in bytes: 1 to 65535.
    pub max_distance: u16,
    /// The largest pcluster in blocks; 0 and 1 both mean one block.
    pub max_pcluster_blocks: u16,
}

/// The limits of an image's MicroLZMA data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LzmaConfig {
    /// Dictionary size in bytes.
    pub dict_size: u32,
}

/// The limits of an image's DEFLATE data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateConfig {
    /// log2 of the window in bytes: at most 15. erofs-utils writes 0 when it encodes with libdeflate, and no reader uses the value.
    pub window_bits: u8,
}

/// The limits of an image's Zstandard data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdConfig {
    /// log2 of the window in bytes: 10 and up.
    pub window_log: u8,
}

/// The configurations of an image's algorithms; `None` for algorithms that it does not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionConfigs {
    /// The configuration of LZ4.
    pub lz4: Option<Lz4Config>,
    /// The configuration of MicroLZMA.
    pub lzma: Option<LzmaConfig>,
    /// The configuration of DEFLATE.
    pub deflate: Option<DeflateConfig>,
    /// The configuration of Zstandard.
    pub zstd: Option<ZstdConfig>,
}

/// The largest match distance in bytes that LZ4 itself allows; a stored 0 means this.
pub const LZ4_MAX_DISTANCE: u16 = 65535;
/// The largest MicroLZMA dictionary in bytes that Linux accepts. Larger ones are an error.
pub const LZMA_MAX_DICT_SIZE: u32 = 8 << 20;
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

    /// The bitmap `available_compr_algs`.
    #[must_use]
    pub fn available(&self) -> u16 {
        Algorithm::ALL.into_iter().filter(|a| self.contains(*a)).fold(0, |bits, a| bits | a.bit())
    }

    /// Whether the image may use `algorithm`.
    #[must_use]
    pub const fn contains(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Lz4 => self.lz4.is_some(),
            Algorithm::Lzma => self.lzma.is_some(),
            Algorithm::Deflate => self.deflate.is_some(),
            Algorithm::Zstd => self.zstd.is_some(),
        }
    }

    /// Reads the records for the algorithms in `available` from `bytes`, which start right after the
    /// superblock; more bytes may follow.
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
            match algorithm {
                Algorithm::Lz4 => configs.lz4 = Some(parse_lz4(&mut record)?),
                Algorithm::Lzma => configs.lzma = Some(parse_lzma(&mut record)?),
                Algorithm::Deflate => configs.deflate = Some(parse_deflate(&mut record)?),
                Algorithm::Zstd => configs.zstd = Some(parse_zstd(&mut record)?),
            }
        }
        Ok(configs)
    }

    /// The records that follow the superblock.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(c) = self.lz4 {
            let raw = RawLz4 {
                max_distance: c.max_distance.into(),
                max_pclusterblks: c.max_pcluster_blocks.into(),
                reserved: [0; 10],
            };
            push_record(&mut out, 14, raw.as_bytes());
        }
        if let Some(c) = self.lzma {
            let raw = RawLzma { dict_size: c.dict_size.into(), format: 0.into(), reserved: [0; 8] };
            push_record(&mut out, 14, raw.as_bytes());
        }
        if let Some(c) = self.deflate {
            push_record(
                &mut out,
                6,
                RawDeflate { windowbits: c.window_bits, reserved: [0; 5] }.as_bytes(),
            );
        }
        if let Some(c) = self.zstd {
            let windowlog = c.window_log.saturating_sub(ZSTD_WINDOW_LOG_BASE);
            push_record(&mut out, 6, RawZstd { format: 0, windowlog, reserved: [0; 4] }.as_bytes());
        }
        out
    }
}

fn push_record(out: &mut Vec<u8>, len: u16, record: &[u8]) {
    debug_assert_eq!(usize::from(len), record.len());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(record);
}

fn parse_lz4(record: &mut View<'_>) -> Result<Lz4Config> {
    let raw = record.read::<RawLz4>()?;
    Ok(Lz4Config {
        max_distance: match raw.max_distance.get() {
            0 => LZ4_MAX_DISTANCE,
            distance => distance,
        },
        max_pcluster_blocks: raw.max_pclusterblks.get(),
    })
}

fn parse_lzma(record: &mut View<'_>) -> Result<LzmaConfig> {
    let raw = record.read::<RawLzma>()?;
    let (format, dict_size) = (raw.format.get(), raw.dict_size.get());
    if format != 0 {
        return Err(record.fault(Fault::Field { field: "lzma format", value: format.into() }));
    }
    if dict_size > LZMA_MAX_DICT_SIZE {
        return Err(record.fault(Fault::Field { field: "lzma dict_size", value: dict_size.into() }));
    }
    Ok(LzmaConfig { dict_size })
}

fn parse_deflate(record: &mut View<'_>) -> Result<DeflateConfig> {
    let window_bits = record.read::<RawDeflate>()?.windowbits;
    // As Linux, which refuses only windows that its decoder does not have.
    if window_bits > 15 {
        return Err(
            record.fault(Fault::Field { field: "deflate windowbits", value: window_bits.into() })
        );
    }
    Ok(DeflateConfig { window_bits })
}

fn parse_zstd(record: &mut View<'_>) -> Result<ZstdConfig> {
    let raw = record.read::<RawZstd>()?;
    if raw.format != 0 {
        return Err(record.fault(Fault::Field { field: "zstd format", value: raw.format.into() }));
    }
    // 31 keeps sizes within 32 bits. Decoders have lower limits.
    match raw.windowlog.checked_add(ZSTD_WINDOW_LOG_BASE) {
        Some(window_log) if window_log <= 31 => Ok(ZstdConfig { window_log }),
        _ => {
            Err(record.fault(Fault::Field { field: "zstd windowlog", value: raw.windowlog.into() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn configs() -> impl Strategy<Value = CompressionConfigs> {
        let lz4 = (1u16.., any::<u16>()).prop_map(|(max_distance, max_pcluster_blocks)| {
            Lz4Config { max_distance, max_pcluster_blocks }
        });
        let lzma = (0..=LZMA_MAX_DICT_SIZE).prop_map(|dict_size| LzmaConfig { dict_size });
        let deflate = (0u8..=15).prop_map(|window_bits| DeflateConfig { window_bits });
        let zstd = (10u8..=31).prop_map(|window_log| ZstdConfig { window_log });
        (
            proptest::option::of(lz4),
            proptest::option::of(lzma),
            proptest::option::of(deflate),
            proptest::option::of(zstd),
        )
            .prop_map(|(lz4, lzma, deflate, zstd)| CompressionConfigs {
                lz4,
                lzma,
                deflate,
                zstd,
            })
    }

    proptest! {
        #[test]
        fn round_trips(configs in configs()) {
            let bytes = configs.to_bytes();
            prop_assert_eq!(CompressionConfigs::parse(configs.available(), &bytes), Ok(configs));
            let is_longest = Algorithm::ALL.into_iter().all(|algorithm| configs.contains(algorithm));
            prop_assert_eq!(bytes.len() == CompressionConfigs::LEN_MAX, is_longest);
        }

        #[test]
        fn garbage_never_panics(available: u16, bytes: Vec<u8>) {
            let _ = CompressionConfigs::parse(available, &bytes);
        }
    }

    /// The last values that are accepted, and the first ones that are not.
    #[test]
    fn limits_of_records() {
        let lz4 = |distance, max_pcluster_blocks| CompressionConfigs {
            lz4: Some(Lz4Config { max_distance: distance, max_pcluster_blocks }),
            ..Default::default()
        };
        assert_eq!(
            CompressionConfigs::parse(1, &[14, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Ok(lz4(65535, 3))
        );
        let is_taken = |available, len: u8, record: &[u8]| {
            let mut bytes = [&[len, 0], record].concat();
            bytes.resize(usize::from(len) + 2, 0);
            CompressionConfigs::parse(available, &bytes).is_ok()
        };
        for (available, len, good, bad) in [
            (2, 14, &[0, 0, 0x80, 0][..], &[&[1, 0, 0x80, 0][..], &[0, 0, 0, 0, 1]][..]),
            (4, 6, &[15], &[&[16]]),
            (8, 6, &[0, 21], &[&[0, 22], &[0, 246], &[1]]),
        ] {
            assert!(is_taken(available, len, good) && !is_taken(available, len - 1, good));
            assert!(bad.iter().all(|bad| !is_taken(available, len, bad)), "{available}");
        }
        assert!(!is_taken(16, 14, &[]));
    }
}
