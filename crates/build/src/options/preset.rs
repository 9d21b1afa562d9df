//! Presets: settings for a purpose, in place of an algorithm and features. The command's presets are tested to be the same.

use ferofs_codec::Params;
use ferofs_format::Algorithm;

use super::Options;
use super::compression::{Compression, Fragments, IndexKind, MetadataCompression, PCLUSTER_MAX};
use super::data::ContentOrder;
use crate::error::{Error, Result};

/// The purpose of an image, for [`Options::set_preset`]; `ferofs build --preset` has the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// What `ferofs build` does without options: LZ4, pclusters of 64 KiB, fragments. Built nearly as fast as [`Self::Fast`], and a fifth
    /// smaller. Linux 6.1.
    Default,
    /// Fast to build and to read: LZ4, pclusters of one block. Linux 5.4.
    Fast,
    /// Half as large as [`Self::Default`], built in some times its time: Zstandard level 12, pclusters of 1 MiB, fragments. Random reads
    /// decode much data. Linux 6.10.
    Small,
    /// For archives that are read as a whole: LZMA, pclusters of 1 MiB, all files as fragments in the order of similarity, compressed
    /// metadata. Built slowly; random reads decode megabytes. Linux 6.17.
    Smallest,
    /// For system partitions of phones, which have little memory and read at random: level 9 of LZ4, pclusters of one block. Linux 5.4.
    Android,
    /// For many versions of the same trees: Zstandard level 15, pclusters of 1 MiB, fragments in the order of similarity, large files by
    /// LZMA, compressed metadata. Whole trees are read at a useful speed, single files slowly. Linux 6.17.
    Backup,
}

impl Options {
    /// Sets the compression, the order of content and the width of addresses for a purpose. What is set later changes it.
    ///
    /// # Errors
    /// [`Error::Params`], which no preset of this version causes.
    pub fn set_preset(&mut self, preset: Preset) -> Result<()> {
        let method = |algorithm, level| Params::new(algorithm, Some(level)).map_err(Error::Params);
        let (algorithm, level, pcluster, fragments) = match preset {
            Preset::Default => (Algorithm::Lz4, 0, Some(64 << 10), Fragments::Tails),
            Preset::Fast => (Algorithm::Lz4, 0, None, Fragments::None),
            Preset::Small => (Algorithm::Zstd, 12, Some(PCLUSTER_MAX), Fragments::Tails),
            Preset::Smallest => (Algorithm::Lzma, 6, Some(PCLUSTER_MAX), Fragments::All),
            Preset::Android => (Algorithm::Lz4, 9, None, Fragments::None),
            Preset::Backup => (Algorithm::Zstd, 15, Some(PCLUSTER_MAX), Fragments::All),
        };
        let mut compression = Compression::new(method(algorithm, level)?);
        (compression.pcluster, compression.fragments) = (pcluster, fragments);
        let is_redundant = matches!(preset, Preset::Smallest | Preset::Backup);
        if is_redundant {
            compression.directories = true;
            compression.metadata = Some(MetadataCompression::new(0, 64 << 10));
        }
        if preset == Preset::Backup {
            compression.index = IndexKind::Extents;
            compression.large_files = Some(compression.methods.len());
            compression.methods.push(method(Algorithm::Lzma, 6)?);
        }
        self.image.wide_addresses = preset == Preset::Backup;
        self.data.order = if is_redundant { ContentOrder::Similar } else { ContentOrder::Tree };
        self.data.compression = Some(compression);
        Ok(())
    }
}
