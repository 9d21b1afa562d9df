//! The form of the EROFS images that `ferofs convert`, `pull` and `push --base` build: compression and features.

use std::num::NonZeroUsize;
use std::path::Path;

use ferofs::build::Options;

use crate::args::compression::CompressionOptions;
use crate::args::features::ExtendedOptions;
use crate::cmd::build::preset::Preset;
use crate::cmd::build::size;
use crate::exit::Failure;

/// How images are built.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Images that are built")]
pub(super) struct FormArgs {
    /// Use a set of options for a purpose, as `ferofs build` does [default: balanced]
    #[arg(long, value_enum, value_name = "NAME")]
    preset: Option<Preset>,

    /// Compress with this algorithm instead of the preset's: lz4, lz4hc, lzma, deflate or zstd, with a level: zstd,12; none stores data
    /// uncompressed
    #[arg(short = 'z', long, value_name = "X[,LEVEL]")]
    compress: Option<String>,

    /// Largest compressed size of a pcluster, in bytes (K and M are understood)
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = size)]
    cluster_size: Option<u32>,

    /// Turn on features, separated by commas, as `ferofs build -E`
    #[arg(short = 'E', long, value_name = "X[,...]", allow_hyphen_values = true)]
    features: Vec<String>,

    /// Number of worker threads; the image does not depend on it [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

impl FormArgs {
    /// The form that is built fastest.
    pub(super) fn uncompressed() -> Self {
        Self { compress: Some("none".to_owned()), ..Self::default() }
    }

    /// Sets the options. `image` is for messages.
    pub(super) fn apply(&self, image: &Path, options: &mut Options) -> Result<(), Failure> {
        let refuse = |option: &str, reason: String| Failure::about(image, format!("{option}: {reason}"));
        // -z replaces the algorithm of a preset, and its other options do not apply then.
        let preset = match (&self.compress, self.preset) {
            (Some(_), _) => None,
            (None, preset) => Some(preset.unwrap_or(Preset::Balanced).settings()),
        };
        let compress = self.compress.as_deref().or(preset.map(|preset| preset.compress));
        let compression = CompressionOptions {
            compressors: compress.filter(|name| *name != "none"),
            pcluster: self.cluster_size.or(preset.and_then(|preset| preset.cluster)),
            ..CompressionOptions::default()
        };
        let compression = compression.compression(options.image.block_size);
        options.data.compression = compression.map_err(|(option, reason)| refuse(option, reason))?;
        let preset = preset.filter(|_| self.features.is_empty());
        let features = preset.map_or(&[][..], |preset| preset.features);
        let values = self.features.iter().map(String::as_str).chain(features.iter().copied());
        let extended = ExtendedOptions::parse(values).and_then(|extended| extended.apply(options));
        extended.map_err(|error| refuse("-E", error.to_string()))?;
        options.run.workers = self.workers;
        Ok(())
    }
}
