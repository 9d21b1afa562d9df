//! `--preset`: settings that go together, under names that a person can remember.

use clap::ValueEnum;

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// Quick to build and to read: LZ4 in clusters of a block. Linux 5.4
    Fast,
    /// Smaller, and as quick to read in sequence: LZ4HC at level 9 in clusters of 64 KiB, tails behind their inodes.
    /// Builds take several times as long, reads at random move more. Linux 5.17
    Balanced,
    /// As small as can be borne: Zstandard at level 19 in clusters of 128 KiB, tails and small files together. Builds
    /// are slow, and reads at random decode much. Linux 6.10
    Small,
    /// For system partitions of phones: LZ4HC at level 9 in clusters of a block, for little memory and reads at
    /// random. Linux 5.4
    Android,
    /// For live media: Zstandard at level 12 in clusters of 64 KiB, tails behind their inodes, since the medium is
    /// slower than the processor. Linux 6.10
    Live,
}

/// What a preset sets, in the words of the options; these are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// `-z`.
    pub(super) compress: &'static str,
    /// `-C`, in bytes.
    pub(super) cluster: Option<u32>,
    /// `-E`.
    pub(super) features: &'static [&'static str],
}

impl Preset {
    pub(super) const fn settings(self) -> Settings {
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
