//! `ferofs extract`: an image's tree, made anew in a directory.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferofs::extract::{Options, extract};

use super::image::ImageArgs;
use crate::exit::{About, FAILURE, Failure, Outcome};

/// Extract an image to a directory
///
/// Nothing is ever written outside the directory. A file that fails is reported, and the others go on;
/// the exit code then is 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to extract to; made if need be
    dir: PathBuf,

    /// Extract what is below this directory of the image
    #[arg(long, default_value = "/")]
    path: PathBuf,

    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,

    /// Leave owners as they come; always so without root
    #[arg(long)]
    no_preserve_owner: bool,

    /// Leave permissions as they come
    #[arg(long)]
    no_preserve_perms: bool,

    /// Leave out extended attributes
    #[arg(long)]
    no_xattrs: bool,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let defaults = Options::default();
    let options = Options {
        workers: args.workers,
        overwrite: args.overwrite,
        owners: defaults.owners && !args.no_preserve_owner,
        permissions: !args.no_preserve_perms,
        xattrs: !args.no_xattrs,
        ..defaults
    };
    execute(&args.image, &args.path, &args.dir, &options)
}

/// Extracts the directory `from` of an image to `target`.
pub(crate) fn execute(image: &ImageArgs, from: &Path, target: &Path, options: &Options) -> Outcome {
    let opened = image.open()?;
    let root = opened.resolve(from, true).about(&image.path)?;
    if !root.is_dir() {
        return Err(Failure::about(&image.path, ferofs::Error::NotADirectory(from.to_owned())));
    }
    super::cancel_on_signals(&options.cancel)?;
    let complain = |path: &Path, error: &ferofs::Error| {
        // Errors of the system name the path themselves.
        match error.corruption() {
            Some(_) => eprintln!("ferofs: {}: {}: {error}", image.path.display(), path.display()),
            None => eprintln!("ferofs: {error}"),
        }
    };
    let summary = extract(&opened, &root, target, options, &complain).map_err(Failure::from_named)?;
    Ok(if summary.failures == 0 { 0 } else { FAILURE })
}
