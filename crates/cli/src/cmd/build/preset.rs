//! `--preset`: sets of compression options, one for each purpose.

use clap::ValueEnum;

/// The purpose of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Fast to build and to read: LZ4, pclusters of one block. Linux 5.4
    Fast,
    /// Smaller than fast, with the same speed of sequential reads: LZ4HC level 9, pclusters of 64 KiB, tail packing. The
    /// build takes several times as long, and random reads read more data. Linux 5.17
    Balanced,
    /// Smallest image that is still practical: Zstandard level 19, pclusters of 128 KiB, fragments. The build is slow,
    /// and random reads decode much data. Linux 6.10
    Small,
    /// For system partitions of phones: LZ4HC level 9, pclusters of one block, because phones have little memory and
    /// read at random. Linux 5.4
    Android,
    /// For live media: Zstandard level 12, pclusters of 64 KiB, tail packing, because the medium is slower than the
    /// processor. Linux 6.10
    Live,
}

/// Values of the options that a preset sets. Options on the command line override them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `-z`.
    pub(crate) compress: &'static str,
    /// `-C`, in bytes.
    pub(crate) cluster: Option<u32>,
    /// `-E`.
    pub(crate) features: &'static [&'static str],
}

impl Preset {
    pub(crate) const fn settings(self) -> Settings {
        let (compress, cluster, features): (_, _, &[_]) = match self {
            Self::Fast => ("lz4", None, &[]),
            Self::Balanced => ("lz4hc,9", Some(64 << 10), &["ztailpacking"]),
            Self::Small => ("zstd,level=19", Some(128 << 10), &["fragments"]),
            Self::Android => ("lz4hc,9", None, &[]),
            Self::Live => ("zstd,level=12", Some(64 << 10), &["ztailpacking"]),
        };
        Settings { compress, cluster, features }
    }
}
