//! Options for the compression of file data and of metadata: a preset, and options that replace its values.

use std::path::{Path, PathBuf};

use ferofs::build::{BlockSize, Compression};

use super::preset::{Form, Level, Preset};
use crate::args::byte_size;
use crate::args::compression::CompressionOptions;
use crate::exit::Failure;

/// Options for the compression of an image.
#[derive(clap::Args)]
pub(super) struct CompressArgs {
    /// lz4, lz4hc, lzma, deflate, zstd, or none
    ///
    /// The algorithm for file data; none stores it uncompressed [default: that of --preset]. A level may follow: lz4hc,12 or zstd,level=19. dictsize=BYTES sets the window in which the compressor searches
    /// for matches (not for deflate). --compress-hints can select further algorithms, which follow after colons:
    /// lz4hc,12:zstd,19
    #[arg(short = 'z', long, value_name = "X[,LEVEL]")]
    compress: Option<String>,

    /// Settings for a purpose
    ///
    /// -z and -C replace its algorithm and its cluster size, -E adds features or turns them off (^X). Each preset names the first Linux version
    /// that mounts its images [default: `default`, unless --chunk-size or --index-only is given].
    #[arg(long, value_enum, value_name = "NAME")]
    preset: Option<Preset>,

    #[command(flatten)]
    level: Level,

    /// Compressed size of a pcluster, 4K to 1M
    ///
    /// The largest one: a multiple of the block size, up to 256 blocks. A larger size makes the image smaller and random reads slower
    /// [default: that of --preset].
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = byte_size::pcluster, allow_negative_numbers = true)]
    cluster_size: Option<u32>,

    /// Features, with commas; ^X turns X off
    ///
    /// These make the image smaller and need a newer Linux: ztailpacking (5.17), fragments[=SIZE], all-fragments[=SIZE]
    /// and dedupe (6.1), 48bit and dot-omitted (6.15). holes keeps long runs of zeroes as holes, which Linux 6.1 reads as
    /// zeroes and 7.2 shows as holes; 48bit does so for Linux 6.15. legacy-compress writes full instead of compact indexes.
    /// All other extended options of mkfs.erofs are accepted too.
    #[arg(short = 'E', long, value_name = "X[,...]", allow_hyphen_values = true)]
    features: Vec<String>,

    /// Build an image that grows little by patches: no tails of files are stored behind inodes, as a patch copies them whenever an
    /// attribute of the file changes. Compressed images get fragments, which need Linux 6.1. -E wins
    #[arg(long, hide_short_help = true, conflicts_with_all = ["index_only", "chunk_size"])]
    for_updates: bool,

    /// Compress inodes, and the attributes and data stored behind them, in pclusters of at most SIZE bytes, with X
    /// [default: the first algorithm of -z] (Linux 6.17)
    #[arg(short = 'm', long, hide_short_help = true, value_name = "SIZE[:X]")]
    compress_metadata: Option<String>,

    /// Compress directories that are larger than one block
    #[arg(long, hide_short_help = true)]
    compress_directories: bool,

    /// Compress files of more than 4 MiB with this algorithm instead of that of -z. zstd finds repetitions up to 1 MiB back, lzma up to
    /// 8 MiB, which matters for programs and databases [default: that of --preset, else that of -z]
    #[arg(long, hide_short_help = true, value_name = "X[,LEVEL]")]
    compress_large: Option<String>,

    /// Read the pcluster size and the algorithm for some files from FILE
    ///
    /// Each line is `SIZE [NUMBER] REGEX`. It applies to paths, relative to SOURCE, in which the regular expression
    /// matches. SIZE 0 stores these files uncompressed. NUMBER selects an algorithm of -z; 0, the default, is the first.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    compress_hints: Option<PathBuf>,

    /// Largest decoded size of an extent (for example 64K or 1MiB); at least the block size [default: no limit]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = byte_size::argument::<u32>)]
    max_extent_bytes: Option<u32>,
}

impl CompressArgs {
    /// The values of the options that a preset has, and of the preset. Without one, it is the default preset if `may_default`.
    pub(super) fn form(&self, block_size: BlockSize, may_default: bool) -> Form {
        let preset = self.preset.or(may_default.then_some(Preset::Default)).map(Preset::settings);
        let preset = self.level.settings().or(preset);
        let mut form = Form::new(
            preset,
            self.compress.as_deref(),
            self.cluster_size,
            &self.features,
            block_size,
        );
        if self.for_updates {
            form.keep_tails_apart(&self.features);
        }
        form.large = self.compress_large.clone().or(form.large);
        form.metadata = self.compress_metadata.clone().or(form.metadata);
        form.directories |= self.compress_directories;
        form
    }

    /// The compression of `form`, with the hints. Messages are about `image`.
    pub(super) fn compression(
        &self,
        form: &Form,
        image: &Path,
        block_size: BlockSize,
    ) -> Result<Option<Compression>, Failure> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|e| Failure::about(path, format!("read: {e}")))
        };
        let hints = self.compress_hints.as_ref().map(read).transpose()?;
        let setting = CompressionOptions {
            hints: hints.as_deref(),
            max_extent: self.max_extent_bytes,
            ..form.compression()
        };
        let refuse = |(option, reason)| Failure::about(image, format!("{option}: {reason}"));
        setting.compression(block_size).map_err(refuse)
    }
}
