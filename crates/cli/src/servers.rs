//! Images on servers: everything of the command that needs `ferofs-remote`. Built with the feature `remote` only.
//!
//! [`image`] opens such an image for any command, [`mount`] mounts it, and the other modules are subcommands and what they share.

pub(crate) mod args;
mod cache;
mod convert;
mod form;
mod image;
mod layers;
pub(crate) mod mount;
mod pull;
mod push;
mod scratch;
mod transfer;
mod upper_layer;

use clap::Subcommand;

use crate::exit::Outcome;

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
