//! `ferofs patch apply`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs::patch::{FileMedium, Patch, apply};
use ferofs::read::{FileSource, Hex};

use super::args::TrailingArgs;
use crate::args::signature;
use crate::exit::{About, Outcome};
use crate::print::output::print_line;
use crate::print::progress::Display;
use crate::print::verbosity::{OutputArgs, wants_summary};
use crate::signals::{GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Apply a patch to an image, in place
///
/// The change is atomic: after a power failure the image shows either the old tree or the new one.
#[derive(clap::Args)]
pub(super) struct ApplyArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The patch, or - for standard input
    #[arg(value_name = "PATCH")]
    patch: PathBuf,

    /// Change nothing unless this is a signature of the patch by one of the certificates of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    signature: Option<PathBuf>,

    /// A trusted certificate, in PEM; may be given several times
    #[arg(long, value_name = "FILE", requires = "signature")]
    cert: Vec<PathBuf>,

    #[command(flatten)]
    trailing: TrailingArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(super) fn run(args: &ApplyArgs) -> Outcome {
    args.shown.apply();
    let patch = match args.patch.as_os_str() == "-" {
        true => patch_from_stdin().about(Path::new("standard input"))?,
        false => Patch::open(&args.patch).about(&args.patch)?,
    };
    if let Some(path) = &args.signature {
        signature::check(&Hex(&patch.digest()).to_string(), path, &args.cert)?;
    }
    let medium = FileMedium::open(&args.image).about(&args.image)?;
    let cancel = Arc::new(AtomicBool::new(false));
    cancel_on_signals(&cancel, GRACE_PERIOD_IN_PLACE)?;
    let display = Display::on_terminal(|bar| bar.set_message("checking the image, and writing what changes"));
    let applied = apply(&medium, &patch, args.trailing.trailing(), &cancel);
    drop(display);
    applied.about(&args.image)?;
    if wants_summary() {
        print_line!("the image has the new tree, which the next mount shows")?;
    }
    Ok(0)
}

/// Stores the patch in a temporary file: nothing of it may be used before its digest, which comes last, was checked.
fn patch_from_stdin() -> Result<Patch, ferofs::Error> {
    let failed = |e| ferofs::Error::io_unnamed("store the patch in a temporary file", e);
    let mut file = tempfile::tempfile().map_err(failed)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file).map_err(failed)?;
    Patch::new(Box::new(FileSource::new(file, 0).map_err(failed)?))
}
