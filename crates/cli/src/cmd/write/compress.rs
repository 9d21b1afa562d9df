//! Options for the compression of file data and of metadata: a preset, and options that replace its
//! values.

use std::path::PathBuf;

use ferofs::build::{BlockSize, Hint, Preset, Settings, SettingsError, level_settings};

use super::level::Level;
use crate::args::byte_size;
use crate::args::settings::{compress_help, presets, refused, with_compressor};
use crate::args::text_file;
use crate::exit::{Concerning, Failure};

/// Options for the compression of an image.
#[derive(clap::Args)]
pub(super) struct CompressArgs {
    #[arg(short = 'z', long, value_name = "X[,LEVEL]", help = compress_help(), long_help = format!("{}\n\nThe algorithm for file data; none stores it uncompressed [default: that of --preset]. A level may follow: lz4hc,12 or zstd,level=19. dictsize=BYTES sets the window in which the compressor searches for matches (not for deflate). --compress-hints can select further algorithms, which follow after colons: lz4hc,12:zstd,19", compress_help()))]
    compress: Option<String>,

    /// Settings for a purpose
    ///
    /// -z and -C replace its algorithm and its cluster size, -E adds features or turns them off
    /// (^X). Each preset names the first Linux version that mounts its images [default: `default`,
    /// unless --chunk-size or --index-only is given].
    #[arg(long, value_parser = presets(), value_name = "NAME")]
    preset: Option<Preset>,

    #[command(flatten)]
    level: Level,

    /// Compressed size of a pcluster, 4K to 1M
    ///
    /// The largest one: a multiple of the block size, up to 256 blocks. A larger size makes the
    /// image smaller and random reads slower [default: that of --preset].
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = byte_size::pcluster, allow_negative_numbers = true)]
    cluster_size: Option<u32>,

    /// Features, with commas; ^X turns X off
    ///
    /// These make the image smaller and need a newer Linux: ztailpacking (5.17), fragments[=SIZE],
    /// all-fragments[=SIZE] and dedupe (6.1), 48bit and dot-omitted (6.15). holes keeps long runs
    /// of zeroes as holes, which Linux 6.1 reads as zeroes and 7.2 shows as holes; 48bit does so
    /// for Linux 6.18. legacy-compress writes full instead of compact indexes. All other extended
    /// options of mkfs.erofs are accepted too.
    #[arg(short = 'E', long, value_name = "X[,...]", allow_hyphen_values = true)]
    features: Vec<String>,

    /// Build an image that grows little by patches: no tails of files are stored after inodes, as
    /// a patch copies them whenever an attribute of the file changes. Compressed images get
    /// fragments, which need Linux 6.1. -E wins
    #[arg(long, hide_short_help = true, conflicts_with_all = ["index_only", "chunk_size"])]
    for_updates: bool,

    /// Compress inodes, and the attributes and data stored after them, in pclusters of at most
    /// SIZE bytes, with X [default: the first algorithm of -z] (Linux 6.17)
    #[arg(short = 'm', long, hide_short_help = true, value_name = "SIZE[:X]")]
    compress_metadata: Option<String>,

    /// Compress directories that are larger than one block
    #[arg(long, hide_short_help = true)]
    compress_directories: bool,

    /// Compress files of more than 4 MiB with this algorithm instead of that of -z. zstd finds
    /// repetitions up to 1 MiB back, lzma up to 8 MiB, which matters for programs and databases
    /// [default: that of --preset, else that of -z]
    #[arg(long, hide_short_help = true, value_name = "X[,LEVEL]")]
    compress_large: Option<String>,

    /// Read the pcluster size and the algorithm for some files from FILE
    ///
    /// Each line is `SIZE [NUMBER] REGEX`. It applies to paths, relative to SOURCE, in which the
    /// regular expression matches. SIZE 0 stores these files uncompressed. NUMBER selects an
    /// algorithm of -z; 0, the default, is the first.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    compress_hints: Option<PathBuf>,

    /// Largest decoded size of an extent (for example 64K or 1MiB); at least the block size
    /// [default: no limit]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = byte_size::argument::<u32>)]
    max_extent_bytes: Option<u32>,
}

impl CompressArgs {
    /// The settings of the preset or the level, and of the options that change it. Without any, the
    /// preset is the default one if `may_default`.
    pub(super) fn settings(
        &self,
        block: BlockSize,
        may_default: bool,
    ) -> Result<Settings, Failure> {
        let preset = self.preset.or(may_default.then_some(Preset::Default));
        let preset = match (self.level.0, preset) {
            (Some(level), _) => level_settings(level, block),
            (None, Some(preset)) => preset.settings(block),
            (None, None) => Ok(Settings::default()),
        };
        let mut settings = preset.and_then(|preset| self.changed(preset)).map_err(refused)?;
        if let Some(path) = &self.compress_hints {
            let text = text_file::read_text(path)
                .map_err(|e| Failure::about(path, format!("read: {e}")))?;
            settings.hints =
                Hint::parse(&text, block).collect::<Result<_, _>>().concerning(path)?;
        }
        Ok(settings)
    }

    fn changed(&self, preset: Settings) -> Result<Settings, SettingsError> {
        let mut settings = with_compressor(preset, self.compress.as_deref())?;
        if self.for_updates {
            settings.keep_tails_apart();
        }
        self.features.iter().try_for_each(|list| settings.set("-E", list))?;
        for (option, value) in
            [("--compress-large", &self.compress_large), ("-m", &self.compress_metadata)]
        {
            value.as_ref().map_or(Ok(()), |value| settings.set(option, value))?;
        }
        settings.cluster = self.cluster_size.or(settings.cluster);
        settings.directories |= self.compress_directories;
        settings.max_extent = self.max_extent_bytes;
        Ok(settings)
    }
}
