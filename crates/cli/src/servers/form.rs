//! The form of the EROFS images that `ferofs convert`, `pull` and `push --base` build: compression
//! and features.

use std::num::NonZeroUsize;

use ferofs::build::{Options, Preset};

use crate::args::byte_size;
use crate::args::settings::{compress_help, presets, refused, with_compressor};
use crate::exit::Failure;

/// How images are built.
#[derive(clap::Args, Default)]
pub(super) struct FormArgs {
    /// Settings for a purpose, as of `ferofs build`
    #[arg(long, value_parser = presets(), value_name = "NAME")]
    preset: Option<Preset>,

    #[arg(short = 'z', long, value_name = "X[,LEVEL]", help = compress_help(), long_help = format!("{}\n\nCompress with this algorithm instead of the preset's; with a level: zstd,12. none stores data uncompressed.", compress_help()))]
    compress: Option<String>,

    /// Largest compressed size of a pcluster
    #[arg(short = 'C', long, hide_short_help = true, value_name = "SIZE", value_parser = byte_size::argument::<u32>)]
    cluster_size: Option<u32>,

    /// Turn on features, separated by commas, as `ferofs build -E`
    #[arg(
        short = 'E',
        long,
        hide_short_help = true,
        value_name = "X[,...]",
        allow_hyphen_values = true
    )]
    features: Vec<String>,

    /// Number of worker threads; the image does not depend on it [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

impl FormArgs {
    /// The form that is built fastest.
    pub(super) fn uncompressed() -> Self {
        Self { compress: Some("none".to_owned()), ..Self::default() }
    }

    /// Sets the options.
    pub(super) fn apply(&self, options: &mut Options) -> Result<(), Failure> {
        let preset = self.preset.unwrap_or(Preset::Default).settings(options.image.block_size);
        let settings = preset.and_then(|preset| {
            let mut settings = with_compressor(preset, self.compress.as_deref())?;
            self.features.iter().try_for_each(|list| settings.set("-E", list))?;
            settings.cluster = self.cluster_size.or(settings.cluster);
            settings.apply(options)
        });
        settings.map_err(refused)?;
        options.run.workers = self.workers;
        Ok(())
    }
}
