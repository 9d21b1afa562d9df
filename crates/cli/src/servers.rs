//! Images on servers: everything of the command that needs `ferofs-serve`. Built with the feature
//! `remote` only.
//!
//! [`ImageArgs::open_remote`] opens such an image for any command, [`mount`] mounts it, and the
//! other modules are subcommands and what they share.

pub(crate) mod args;
mod cache;
mod convert;
mod form;
mod layers;
pub(crate) mod mount;
mod pull;
mod push;
mod scratch;
mod transfer;
mod upper_layer;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use ferofs::read::Source;

use crate::args::image::{ImageArgs, ImageSource, OpenFiles};
use crate::exit::{Failure, Outcome};

/// The subcommands for images on servers.
#[derive(Subcommand)]
pub(crate) enum Command {
    Push(push::Args),
    Pull(pull::Args),
    Convert(Box<convert::Args>),
    Cache(cache::Args),
}

impl Command {
    /// Runs the subcommand.
    pub(crate) fn run(&self) -> Outcome {
        match self {
            Self::Push(args) => push::run(args),
            Self::Pull(args) => pull::run(args),
            Self::Convert(args) => convert::run(args),
            Self::Cache(args) => cache::run(args),
        }
    }
}

impl ImageArgs {
    /// Opens an image on a server, which this process fetches, and the files of these patches.
    pub(crate) fn open_remote(&self, patches: &[PathBuf]) -> Result<OpenFiles, Failure> {
        self.check_remote()?;
        let image = self.servers.open_image(&self.path.given, &self.seal)?;
        let fetcher = Arc::new(self.servers.fetcher(&image, true)?);
        let source = image.source(fetcher, self.servers.patience()).map_err(Failure::complete)?;
        self.with_source(source.into(), patches)
    }

    /// Fails for options that an image on a server cannot have.
    fn check_remote(&self) -> Result<(), Failure> {
        if self.offset != 0 || self.seal.hash_file.is_some() {
            let reason = "an image on a server has neither --offset nor --hash-file";
            return Err(Failure::usage(&self.path, reason));
        }
        Ok(())
    }

    /// Whether the arguments have a password, a token or a signature.
    fn has_secrets(&self) -> bool {
        *self.path != *self.path.given || self.servers.remote.has_secrets()
    }
}

/// What `ferofs-serve` opens: the bytes, and whether it verifies them.
impl From<(Arc<dyn Source>, bool)> for ImageSource {
    fn from((bytes, is_verified): (Arc<dyn Source>, bool)) -> Self {
        Self { bytes, seal: None, has_end_to_check: is_verified }
    }
}
