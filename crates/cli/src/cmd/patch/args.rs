//! Options that several commands about patches have.

use std::num::NonZeroUsize;
use std::path::Path;

use ferofs::build::{Settings, SourceFormat};
use ferofs::patch::{CreateOptions, Encoding, TrailingData};
use ferofs::read::{FileSource, Image};

use crate::args::byte_size;
use crate::args::settings::refused;
use crate::cmd::write::{all_time, source_date_epoch};
use crate::exit::{About, Failure};
use crate::print::output::is_strict;
use crate::print::output::{OUTPUT, OutputArgs};

/// Options about the encoding of new data.
#[derive(clap::Args)]
pub(super) struct EncodingArgs {
    /// Algorithm: `ferofs build --help` lists the values
    ///
    /// For new data [default: as most data of the old image].
    #[arg(short = 'z', long, value_name = "X[,LEVEL]")]
    compress: Option<String>,

    /// Largest compressed size of a pcluster: a multiple of the block size, up to 1M
    /// [default: the block size; without -z as in the old image]
    #[arg(short = 'C', long, hide_short_help = true, value_name = "SIZE", value_parser = byte_size::argument::<u32>, requires = "compress")]
    cluster_size: Option<u32>,

    /// Number of worker threads, 1 or more; the result does not depend on it [default: one for each
    /// processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub(super) workers: Option<NonZeroUsize>,
}

/// The option about data after the image.
#[derive(clap::Args)]
pub(super) struct TrailingArgs {
    /// Let the image grow over data after it
    ///
    /// In its file or block device, for example a footer, a hash tree or an archive. This data is
    /// lost, even if the change fails.
    #[arg(long)]
    grow_over: bool,
}

impl TrailingArgs {
    pub(super) const fn trailing(&self) -> TrailingData {
        if self.grow_over { TrailingData::Overwrite } else { TrailingData::Keep }
    }
}

/// Options about what a change may do to the image.
#[derive(clap::Args)]
pub(super) struct AllowedArgs {
    /// Use only features that the image already has
    ///
    /// So every kernel that mounts the old image mounts the new one.
    #[arg(long)]
    keep_features: bool,

    /// Do not rewrite a directory if only the inode number of its parent changes. The image grows
    /// less, and Linux accepts it, but programs that check images report a wrong `..` entry
    #[arg(long, hide_short_help = true)]
    loose_parents: bool,
}

impl AllowedArgs {
    pub(super) const fn set(&self, options: &mut CreateOptions) {
        options.keep_features = self.keep_features;
        options.loose_parents = self.loose_parents;
    }
}

/// The option about what a patch file contains.
#[derive(clap::Args)]
pub(super) struct PortableArgs {
    /// Let other versions of ferofs apply the patch
    ///
    /// Those with other versions of the compressors: it contains compressed data, not what to
    /// compress, and is larger.
    #[arg(long)]
    pub(super) portable: bool,
}

/// Options of the commands that create a change from a source.
#[derive(clap::Args)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    encoding: EncodingArgs,

    #[command(flatten)]
    allowed: AllowedArgs,

    /// Set the time of every file of the source to SECS, in seconds since 1970 [default of SECS:
    /// the time of -T]
    #[arg(long, hide_short_help = true, value_name = "SECS", num_args = 0..=1, require_equals = true, allow_hyphen_values = true)]
    all_time: Option<Option<i64>>,

    /// All files of the source belong to root
    #[arg(long)]
    all_root: bool,

    /// Time of the patch, in seconds since 1970
    ///
    /// The default is now, or $SOURCE_DATE_EPOCH.
    #[arg(short = 'T', long, value_name = "SECS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// Compare the result with the source first
    ///
    /// Before the patch is written or applied.
    #[arg(long)]
    verify: bool,

    /// Print the summary as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) shown: OutputArgs,
}

impl ChangeArgs {
    /// The library options to change `image` by `source`.
    pub(super) fn options(&self, image: &Path, source: &Path) -> Result<CreateOptions, Failure> {
        let mut options = CreateOptions::new(source);
        let new = &mut options.build;
        new.source.format = SourceFormat::detect(source).without_subject()?;
        new.run.workers = self.encoding.workers;
        new.run.strict = is_strict();
        new.output.verify = self.verify;
        new.image.build_time = self.time.map_or_else(source_date_epoch, |time| Ok(Some(time)))?;
        new.attributes.all_time = all_time(self.all_time, self.time)?;
        (new.attributes.force_uid, new.attributes.force_gid) =
            (self.all_root.then_some(0), self.all_root.then_some(0));
        options.encoding = self.encoding.for_image(image)?;
        self.allowed.set(&mut options);
        Ok(options)
    }
}

impl EncodingArgs {
    /// The encoding of new data for `image`.
    pub(super) fn for_image(&self, image: &Path) -> Result<Encoding, Failure> {
        let opened = Image::open(FileSource::open(image, 0).without_subject()?).about(image)?;
        Ok(match self.compression(opened.superblock().block_size)? {
            None => Encoding::AsOld,
            Some(None) => Encoding::Stored,
            Some(Some(compression)) => Encoding::With(compression),
        })
    }

    /// The compression that the options select: `None`: as in the old image; `Some(None)`: no
    /// compression.
    #[allow(
        clippy::option_option,
        reason = "no option, and the option none, mean different things"
    )]
    pub(super) fn compression(
        &self,
        block: ferofs::build::BlockSize,
    ) -> Result<Option<Option<ferofs::build::Compression>>, Failure> {
        let Some(name) = self.compress.as_deref() else { return Ok(None) };
        let mut settings = Settings::default();
        settings.cluster = self.cluster_size;
        let compression = settings.set("-z", name).and_then(|()| settings.compression(block));
        compression.map(Some).map_err(refused)
    }
}
