//! `ferofs patch create`, `compose` and `add`: the commands that make a change from a new tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferofs::build::{Activity, Progress, SourceFormat};
use ferofs::patch::{self, CreateOptions, PatchSummary};
use indicatif::HumanBytes;

use super::args::{ChangeArgs, EncodingArgs, TrailingArgs};
use super::show;
use crate::args::exclude::ExcludeArgs;
use crate::args::image::refuse_as_output;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{message, print_line};
use crate::print::progress::Display;
use crate::print::verbosity::{OutputArgs, wants_summary};
use crate::signals::{GRACE_PERIOD, GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Create a patch that turns an image into a new one
///
/// The old image may be any image that Linux mounts from one device. It does not change.
#[derive(clap::Args)]
pub(super) struct CreateArgs {
    /// The old image
    old: PathBuf,

    /// The new tree: an image, a directory, or a tar archive
    new: PathBuf,

    /// The patch to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    change: ChangeArgs,

    /// Do not rewrite a directory if only the inode number of its parent changes. The patch is smaller, and Linux accepts
    /// it, but programs that check images report a wrong `..` entry
    #[arg(long)]
    loose_parents: bool,

    /// Make a patch that programs with other versions of the compressors can apply: it contains compressed data, not what to
    /// compress, and is larger
    #[arg(long)]
    portable: bool,

    /// Keep a file of the old image as it is if it differs from the new one only in these attributes: times, owner, mode,
    /// xattrs
    #[arg(long, value_name = "WHAT,...", value_enum, value_delimiter = ',', conflicts_with = "verify")]
    ignore: Vec<Ignored>,

    #[command(flatten)]
    excludes: ExcludeArgs,
}

/// An attribute that does not count as a change.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Ignored {
    Times,
    Owner,
    Mode,
    Xattrs,
}

/// Create one patch that leads from an image to what a chain of patches shows
///
/// The patches are applied to BASE in memory, one after the other. The new patch sends and appends nothing that only the states
/// between had, and its result has one more state than BASE, with the time of the last patch. Patches that were made for the
/// result of the chain do not fit the result of the new patch, as it is another image.
#[derive(clap::Args)]
pub(super) struct ComposeArgs {
    /// The image that the first patch is for. It does not change
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// The patches, in the order in which they are applied
    #[arg(value_name = "PATCH", required = true)]
    patches: Vec<PathBuf>,

    /// The patch to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    encoding: EncodingArgs,

    /// Use only features that BASE already has, so that every kernel that mounts it mounts the new image
    #[arg(long)]
    keep_features: bool,

    /// Do not rewrite a directory if only the inode number of its parent changes. The patch is smaller, and Linux accepts
    /// it, but programs that check images report a wrong `..` entry
    #[arg(long)]
    loose_parents: bool,

    /// Make a patch that programs with other versions of the compressors can apply: it contains compressed data, not what to
    /// compress, and is larger
    #[arg(long)]
    portable: bool,

    /// Set the time of the patch, in seconds since 1970 [default: that of the last patch]
    #[arg(short = 'T', long, value_name = "SECS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// Compare the result with what the chain shows before the patch is written
    #[arg(long)]
    verify: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Add a directory or a tar archive to the tree of an image, in place
///
/// Files replace files of the same name; existing directories keep their other entries. The change is atomic: after a
/// power failure the image shows either the old tree or the new one. `ferofs patch rollback` goes back to the old tree.
#[derive(clap::Args)]
pub(super) struct AddArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The source to add: a directory or a tar archive
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    #[command(flatten)]
    change: ChangeArgs,

    /// Do not rewrite a directory if only the inode number of its parent changes. The image grows less, and Linux accepts
    /// it, but programs that check images report a wrong `..` entry
    #[arg(long)]
    loose_parents: bool,

    #[command(flatten)]
    trailing: TrailingArgs,
}

pub(super) fn create(args: &CreateArgs) -> Outcome {
    args.change.shown.apply();
    let mut options = args.change.options(&args.old, &args.new)?;
    options.build.source.excludes = args.excludes.excludes()?;
    options.loose_parents = args.loose_parents;
    options.portable = args.portable;
    let ignored = |what| args.ignore.contains(&what);
    options.ignore.times = ignored(Ignored::Times);
    options.ignore.owner = ignored(Ignored::Owner);
    options.ignore.mode = ignored(Ignored::Mode);
    options.ignore.xattrs = ignored(Ignored::Xattrs);
    refuse_as_output(&args.output, &[&args.old, &args.new])?;
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD)?;
    let display = show_progress(&options);
    let created = patch::create(&args.old, &options, &args.output).about(&args.old);
    drop(display);
    let created = created?;
    print_created(&created, args.change.json)?;
    Ok(0)
}

pub(super) fn compose(args: &ComposeArgs) -> Outcome {
    args.shown.apply();
    let mut options = CreateOptions::new(&args.base);
    options.build.run.workers = args.encoding.workers;
    options.build.output.verify = args.verify;
    options.build.image.build_time = args.time;
    options.encoding = args.encoding.for_image(&args.base)?;
    options.keep_features = args.keep_features;
    options.loose_parents = args.loose_parents;
    options.portable = args.portable;
    let inputs: Vec<&Path> = std::iter::once(&args.base).chain(&args.patches).map(PathBuf::as_path).collect();
    refuse_as_output(&args.output, &inputs)?;
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD)?;
    let display = show_progress(&options);
    let created = patch::compose(&args.base, &args.patches, &options, &args.output);
    drop(display);
    // The errors of a patch name it.
    let created = match created {
        Err(error @ ferofs::Error::InPatch { .. }) => return Err(Failure::without_subject(error)),
        created => created.about(&args.base)?,
    };
    print_created(&created, args.json)?;
    Ok(0)
}

pub(super) fn add(args: &AddArgs) -> Outcome {
    args.change.shown.apply();
    let mut options = args.change.options(&args.image, &args.source)?;
    options.loose_parents = args.loose_parents;
    if !matches!(options.build.source.format, SourceFormat::Directory | SourceFormat::Archive) {
        return Err(Failure::about(&args.source, "not a directory and not a tar archive: use ferofs build"));
    }
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD_IN_PLACE)?;
    let display = show_progress(&options);
    let added = patch::add(&args.image, &options, args.trailing.trailing()).about(&args.image);
    drop(display);
    match added? {
        Some(added) => print_created(&added, args.change.json)?,
        None if args.change.json => print_line!("null")?,
        None if wants_summary() => print_line!("nothing to add: the image has all of it already")?,
        None => {}
    }
    Ok(0)
}

/// Shows how far the comparison of the new tree with the old image is, if standard error is a terminal.
fn show_progress(options: &CreateOptions) -> Option<Display> {
    show_build(&options.build.run.progress)
}

pub(super) fn show_build(progress: &Arc<Progress>) -> Option<Display> {
    let progress = Arc::clone(progress);
    Display::on_terminal(move |bar| {
        let (found, read) =
            (progress.found.load(Ordering::Relaxed), progress.timings.spent(Activity::Read).bytes);
        bar.set_message(format!("{found} files found, {} read", HumanBytes(read)));
    })
}

/// Prints the warnings and the summary of a new patch or a change.
fn print_created(created: &PatchSummary, json: bool) -> Result<(), Failure> {
    for warning in &created.warnings {
        message!("{warning}");
    }
    if json {
        print_line!("{}", show::created_json(created))?;
    } else if wants_summary() {
        print_line!("{}", show::created_text(created))?;
    }
    Ok(())
}
