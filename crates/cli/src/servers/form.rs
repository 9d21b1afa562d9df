//! The form of the EROFS images that `ferofs convert`, `pull` and `push --base` build: compression and features.

use std::num::NonZeroUsize;
use std::path::Path;

use ferofs::build::Options;

use crate::args::byte_size;
use crate::cmd::build::preset::{Form, Preset};
use crate::exit::Failure;

/// How images are built.
#[derive(clap::Args, Default)]
pub(super) struct FormArgs {
    /// Settings for a purpose, as of `ferofs build`
    #[arg(long, value_enum, value_name = "NAME")]
    preset: Option<Preset>,

    /// lz4, lz4hc, lzma, deflate, zstd, or none
    ///
    /// Compress with this algorithm instead of the preset's; with a level: zstd,12. none stores data uncompressed.
    #[arg(short = 'z', long, value_name = "X[,LEVEL]")]
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

    /// Sets the options. `image` is for messages.
    pub(super) fn apply(&self, image: &Path, options: &mut Options) -> Result<(), Failure> {
        let refuse =
            |option: &str, reason: String| Failure::about(image, format!("{option}: {reason}"));
        let preset = self.preset.unwrap_or(Preset::Default).settings();
        let block = options.image.block_size;
        let form = Form::new(
            Some(preset),
            self.compress.as_deref(),
            self.cluster_size,
            &self.features,
            block,
        );
        let compression = form.compression().compression(block);
        if let Some(order) = form.order {
            options.data.order = order.content_order();
        }
        options.data.compression =
            compression.map_err(|(option, reason)| refuse(option, reason))?;
        let extended = form.extended().and_then(|extended| extended.apply(options));
        extended.map_err(|error| refuse("-E", error.to_string()))?;
        options.run.workers = self.workers;
        Ok(())
    }
}
