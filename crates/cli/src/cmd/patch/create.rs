//! `ferofs patch create`, `compose` and `add`: the commands that make a change from a new tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::build::{Activity, Progress};
use ferofs::escape::Escaped;
use ferofs::patch::{self, CreateOptions, PatchFile, PatchSummary};
use ferofs::read::Cancel;
use indicatif::HumanBytes;

use super::args::{AllowedArgs, ChangeArgs, EncodingArgs, PortableArgs, TrailingArgs};
use super::show;
use crate::args::exclude::ExcludeArgs;
use crate::args::outputs::refuse_as_output;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::cmd::verity::sidecar::warn_of_seal;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, wants_summary};
use crate::print::output::{json_text, message, print_line};
use crate::print::progress::Display;
use crate::signals::{GRACE_PERIOD, GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Create a patch that turns an image into a new one
///
/// The old image may be any image that Linux mounts from one device. It does not change. With
/// several old images, the file has one patch for each, and `ferofs patch apply` takes the one that
/// fits.
#[derive(clap::Args)]
pub(super) struct CreateArgs {
    /// The old image, or several, and then the new tree: an image, a directory, or a tar archive
    #[arg(value_names = ["OLD", "NEW"], num_args = 2.., required = true)]
    paths: Vec<PathBuf>,

    /// The patch to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    form: PortableArgs,

    /// Keep files that differ only in this
    ///
    /// A file of the old image stays as it is if it differs from the new one at the same path only
    /// in these attributes.
    #[arg(
        long,
        value_name = "WHAT,...",
        value_enum,
        value_delimiter = ',',
        conflicts_with = "verify"
    )]
    ignore: Vec<Ignored>,

    #[command(flatten)]
    excludes: ExcludeArgs,

    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    overwrite: OverwriteArgs,
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
/// The patches are applied to BASE in memory, one after the other. The new patch sends and appends
/// nothing that only the states between had, and its result has one more state than BASE, with the
/// time of the last patch. Patches that were made for the result of the chain do not fit the result
/// of the new patch, as it is another image.
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
    overwrite: OverwriteArgs,

    #[command(flatten)]
    encoding: EncodingArgs,

    #[command(flatten)]
    allowed: AllowedArgs,

    #[command(flatten)]
    form: PortableArgs,

    /// Set the time of the patch, in seconds since 1970 [default: that of the last patch]
    #[arg(short = 'T', long, value_name = "SECS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// Compare the result with what the chain shows before the patch is written
    #[arg(long)]
    verify: bool,

    /// Print the summary as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Add a directory or a tar archive to the tree of an image, in place
///
/// Files replace files of the same name; existing directories keep their other entries. Nothing is
/// removed: whiteouts in an archive (`.wh.NAME`) are added as files. The change is atomic: after a
/// power failure the image shows either the old tree or the new one. `ferofs patch rollback` goes
/// back to the old tree.
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

    #[command(flatten)]
    trailing: TrailingArgs,
}

pub(super) fn create(args: &CreateArgs) -> Outcome {
    ferofs_threads::return_large_buffers();
    args.change.shown.apply();
    let Some((new, old)) = args.paths.split_last() else { return Ok(0) };
    if old.len() > 1 && new.as_os_str() == "-" {
        return Err(Failure::about(
            new,
            "standard input can be read only once: give one old image",
        ));
    }
    let inputs: Vec<&Path> = args.paths.iter().map(PathBuf::as_path).collect();
    refuse_as_output(&args.output, &inputs)?;
    args.overwrite.check(&args.output, OutputKind::Patch)?;
    let mut all = Vec::with_capacity(old.len());
    for old in old {
        all.push(args.options(old, new)?);
    }
    // One signal ends all of them.
    let cancel = Cancel::default();
    cancel_on_signals(&cancel, GRACE_PERIOD)?;
    // The patches are made at the same time: they say which image they lead to by its time, too.
    let now = all.iter().find_map(|options| options.build.image.build_time);
    let now = now.unwrap_or_else(ferofs::build::now);
    let mut file = PatchFile::create(&args.output).without_subject()?;
    let mut created = Vec::with_capacity(old.len());
    for (old, mut options) in old.iter().zip(all) {
        options.build.run.cancel = cancel.clone();
        options.build.image.build_time = Some(now);
        let display = show_progress(&options);
        let appended = file.append(old, &options).about(old);
        drop(display);
        created.push((old, appended?));
    }
    file.finish().without_subject()?;
    match &created[..] {
        [(_, created)] => print_created(created, args.change.json)?,
        _ => print_several(&created, args.change.json)?,
    }
    Ok(0)
}

impl CreateArgs {
    /// The library options for a patch from `old` to `new`.
    fn options(&self, old: &Path, new: &Path) -> Result<CreateOptions, Failure> {
        let mut options = self.change.options(old, new)?;
        options.build.source.excludes = self.excludes.excludes()?;
        options.portable = self.form.portable;
        let ignored = |what| self.ignore.contains(&what);
        options.ignore.times = ignored(Ignored::Times);
        options.ignore.owner = ignored(Ignored::Owner);
        options.ignore.mode = ignored(Ignored::Mode);
        options.ignore.xattrs = ignored(Ignored::Xattrs);
        Ok(options)
    }
}

pub(super) fn compose(args: &ComposeArgs) -> Outcome {
    args.shown.apply();
    let mut options = CreateOptions::new(&args.base);
    options.build.run.workers = args.encoding.workers;
    options.build.output.verify = args.verify;
    options.build.image.build_time = args.time;
    options.encoding = args.encoding.for_image(&args.base)?;
    args.allowed.set(&mut options);
    options.portable = args.form.portable;
    let inputs: Vec<&Path> =
        std::iter::once(&args.base).chain(&args.patches).map(PathBuf::as_path).collect();
    refuse_as_output(&args.output, &inputs)?;
    args.overwrite.check(&args.output, OutputKind::Patch)?;
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD)?;
    let display = show_progress(&options);
    let created = patch::compose(&args.base, &args.patches, &options, &args.output);
    drop(display);
    // The errors of a patch name it.
    let created = match created {
        Err(error @ ferofs::build::Error::InPatch { .. }) => {
            return Err(Failure::without_subject(error));
        }
        created => created.about(&args.base)?,
    };
    print_created(&created, args.json)?;
    Ok(0)
}

pub(super) fn add(args: &AddArgs) -> Outcome {
    args.change.shown.apply();
    let options = args.change.options(&args.image, &args.source)?;
    if !options.build.source.format.can_be_added() {
        return Err(Failure::about(
            &args.source,
            "not a directory and not a tar archive: use ferofs build",
        ));
    }
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD_IN_PLACE)?;
    let display = show_progress(&options);
    warn_of_seal(&args.image)?;
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

/// Shows how far the comparison of the new tree with the old image is, if standard error is a
/// terminal.
fn show_progress(options: &CreateOptions) -> Option<Display> {
    show_build(&options.build.run.progress)
}

pub(super) fn show_build(progress: &Arc<Progress>) -> Option<Display> {
    let progress = Arc::clone(progress);
    Display::on_terminal(move |bar| {
        let (found, read) = (progress.found.get(), progress.timings.spent(Activity::Read).bytes);
        bar.set_message(format!("{found} files found, {} read", HumanBytes(read)));
    })
}

/// Prints the warnings and the summary of a new patch or a change.
fn print_created(created: &PatchSummary, json: bool) -> Result<(), Failure> {
    for warning in &created.warnings {
        message!("{warning}");
    }
    if json {
        print_line!("{}", json_text(&show::created_json(created)))?;
    } else if wants_summary() {
        print_line!("{}", show::created_text(created))?;
    }
    Ok(())
}

/// As [`print_created`], for a file with a patch for each of these images.
fn print_several(created: &[(&PathBuf, PatchSummary)], json: bool) -> Result<(), Failure> {
    for (old, summary) in created {
        for warning in &summary.warnings {
            message!("{warning}");
        }
        if !json && wants_summary() {
            print_line!("{}: {}", Escaped::path(old), show::created_text(summary))?;
        }
    }
    if json {
        let patches: Vec<_> =
            created.iter().map(|(_, summary)| show::created_json(summary)).collect();
        print_line!("{}", json_text(&serde_json::json!({ "patches": patches })))?;
    }
    Ok(())
}
