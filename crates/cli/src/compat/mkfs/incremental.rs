//! `mkfs.erofs --incremental`: adds a source to the tree of an existing image, in place.
//!
//! Options about the image as a whole, such as its UUID, are refused. Without `-z`, new data is
//! encoded as most data of the image.

use ferofs::build::{Options, SourceFormat};
use ferofs::patch::{CreateOptions, Encoding, TrailingData, add};

use super::args::Args;
use super::{Refusal, refusal};
use crate::args::image::ImageArgs;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::message;
use crate::signals::{GRACE_PERIOD_IN_PLACE, cancel_on_signals};

impl Args {
    /// With `--incremental`, refuses sources and options that it does not support.
    pub(super) fn refuse_for_incremental(&self, format: SourceFormat) -> Result<(), Refusal> {
        let Some(mode) = &self.incremental else { return Ok(()) };
        let refuse = |reason: &str| Err(refusal("--incremental", mode.clone(), reason));
        match format {
            SourceFormat::Image => {
                return refuse(
                    "EROFS images can only be merged into a new image: remove --incremental",
                );
            }
            SourceFormat::Oci => return refuse("not supported for OCI images"),
            SourceFormat::Tar if mode == "rvsp" => {
                return refuse("only a new image can reserve space for data: use --clean=rvsp");
            }
            SourceFormat::Tar if !matches!(self.tar.as_deref(), None | Some("f")) => {
                return refuse("the data must go into the image: use --tar=f");
            }
            SourceFormat::Tar
                if !self.exclude_path.is_empty() || !self.exclude_regex.is_empty() =>
            {
                return refuse(
                    "a tar archive is added as a whole: remove --exclude-path and --exclude-regex",
                );
            }
            SourceFormat::Tar | SourceFormat::Directory => {}
            _ => return refuse("not supported for this kind of source"),
        }
        let given = [
            ("--clean", self.clean.is_some()),
            ("-U", self.uuid.is_some()),
            ("-L", self.label.is_some()),
            ("-m", self.metadata.is_some()),
            ("--zD", self.compress_directories.is_some()),
            ("--chunksize", self.chunksize.is_some()),
            ("--blobdev", self.blobdev.is_some()),
            ("--offset", self.offset > 0),
            ("--file-contexts", self.file_contexts.is_some()),
            ("--fs-config-file", self.fs_config_file.is_some()),
            ("--xattr-inode-digest", self.xattr_inode_digest.is_some()),
            ("--skip-unreadable", self.skip_unreadable),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                refuse(&format!("an existing image keeps its settings: remove {option}"))
            }
            None => Ok(()),
        }
    }

    /// Adds the source to the image.
    pub(super) fn add_to_image(&self, options: Options) -> Outcome {
        let image = ImageArgs::of(self.image.clone()).open()?;
        let block = image.superblock().block_size;
        if block != options.image.block_size {
            let problem = format!("has blocks of {} bytes: give -b {0}", block.bytes());
            return Err(Failure::about(&self.image, problem));
        }
        drop(image);
        cancel_on_signals(&options.run.cancel, GRACE_PERIOD_IN_PLACE)?;
        let mut wanted = CreateOptions::new(&options.source.path);
        if !self.compressor.is_empty() {
            wanted.encoding =
                options.data.compression.clone().map_or(Encoding::Stored, Encoding::With);
        }
        wanted.build = options;
        let added = add(&self.image, &wanted, TrailingData::Keep).about(&self.image)?;
        let warnings = added.iter().flat_map(|added| &added.warnings);
        for warning in warnings.filter(|warning| !super::hides(warning)) {
            message!("{warning}");
        }
        Ok(0)
    }
}
