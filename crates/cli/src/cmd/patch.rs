//! `ferofs patch`: creates, shows and applies patches, and manages the history of an image.

mod show;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use ferofs::build::{Activity, Progress, SourceFormat, build};
use ferofs::patch::{
    CreateOptions, Encoding, FileMedium, Patch, PatchSummary, Repaired, TrailingData, add, apply, create,
    log, repair, rollback, squash_options,
};
use ferofs::read::{FileSource, Hex, Image};
use indicatif::HumanBytes;

use crate::args::byte_size;
use crate::args::compression::CompressionOptions;
use crate::args::exclude::ExcludeArgs;
use crate::args::image::refuse_as_output;
use crate::args::signature::{self, SignArgs};
use crate::cmd::build::{all_time, source_date_epoch};
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{message, print_line};
use crate::print::progress::Display;
use crate::print::verbosity::{OutputArgs, wants_summary};
use crate::signals::{GRACE_PERIOD, GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Update an image in place with a small patch, go back to an earlier state, and show the history
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Box<CreateArgs>),
    Add(Box<AddArgs>),
    Show(ShowArgs),
    Apply(ApplyArgs),
    Sign(PatchSignArgs),
    Log(LogArgs),
    Rollback(RollbackArgs),
    Repair(RepairArgs),
    Squash(Box<SquashArgs>),
}

/// Options about the encoding of new data.
#[derive(clap::Args)]
struct EncodingArgs {
    /// Compress new data with this algorithm; `ferofs build --help` lists the values [default: as most data of the old
    /// image]
    #[arg(short = 'z', long, value_name = "X[,LEVEL]")]
    compress: Option<String>,

    /// Largest compressed size of a pcluster: a multiple of the block size, up to 1M
    /// [default: the block size; without -z as in the old image]
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = byte_size::argument::<u32>, requires = "compress")]
    cluster_size: Option<u32>,

    /// Number of worker threads, 1 or more; the result does not depend on it [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

/// The option about data behind the image.
#[derive(clap::Args)]
struct TrailingArgs {
    /// Let the image grow over data behind it in its file or block device, for example a footer, a hash tree or an
    /// archive. This data is lost, even if the change fails
    #[arg(long)]
    grow_over: bool,
}

impl TrailingArgs {
    const fn trailing(&self) -> TrailingData {
        if self.grow_over { TrailingData::Overwrite } else { TrailingData::Keep }
    }
}

/// Options of the commands that create a change from a source.
#[derive(clap::Args)]
struct ChangeArgs {
    #[command(flatten)]
    encoding: EncodingArgs,

    /// Use only features that the image already has, so that every kernel that mounts the old image mounts the new one
    #[arg(long)]
    keep_features: bool,

    /// Set the time of every file of the source to SECS, in seconds since 1970 [default of SECS: the time of -T]
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true, allow_hyphen_values = true)]
    all_time: Option<Option<i64>>,

    /// Set the owner and the group of all files of the source to root
    #[arg(long)]
    all_root: bool,

    /// Set the time of the patch, in seconds since 1970 [default: now, or $SOURCE_DATE_EPOCH]
    #[arg(short = 'T', long, value_name = "SECS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// Compare the result with the source before the patch is written or applied
    #[arg(long)]
    verify: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Create a patch that turns an image into a new one
///
/// The old image may be any image that Linux mounts from one device. It does not change.
#[derive(clap::Args)]
struct CreateArgs {
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

/// Add a directory or a tar archive to the tree of an image, in place
///
/// Files replace files of the same name; existing directories keep their other entries. The change is atomic: after a
/// power failure the image shows either the old tree or the new one. `ferofs patch rollback` goes back to the old tree.
#[derive(clap::Args)]
struct AddArgs {
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

/// Show the image that a patch applies to, its size, and what makes up the size
#[derive(clap::Args)]
struct ShowArgs {
    /// The patch
    patch: PathBuf,

    /// List every changed file and the bytes that it adds, largest first
    #[arg(long)]
    files: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Apply a patch to an image, in place
///
/// The change is atomic: after a power failure the image shows either the old tree or the new one.
#[derive(clap::Args)]
struct ApplyArgs {
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

/// Sign a patch
///
/// The signature is PKCS #7, detached, in DER, of the patch's digest (BLAKE3) as text. openssl signs. The key may have a password.
#[derive(clap::Args)]
struct PatchSignArgs {
    /// The patch
    #[arg(value_name = "PATCH")]
    patch: PathBuf,

    #[command(flatten)]
    sign: SignArgs,
}

/// List the states in the history of an image
#[derive(clap::Args)]
struct LogArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Make an earlier state of an image current
///
/// The later states stay in the image, so that a second rollback can undo this one.
#[derive(clap::Args)]
struct RollbackArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Number of the state, as `ferofs patch log` prints it [default: the state before the current one]
    #[arg(long, value_name = "N")]
    to: Option<u64>,

    #[command(flatten)]
    trailing: TrailingArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Restore a damaged superblock from the history, and remove the remains of an interrupted change
///
/// This works for images that were patched or whose first patch was interrupted. Other images have no copy of their
/// superblock.
#[derive(clap::Args)]
struct RepairArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Write a new image with the current tree of an image, without its history
#[derive(clap::Args)]
struct SquashArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The new image
    #[arg(value_name = "OUT")]
    out: PathBuf,

    #[command(flatten)]
    encoding: EncodingArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Create(args) => run_create(args),
        Command::Add(args) => run_add(args),
        Command::Show(args) => show::run(&args.patch, args.files, args.json),
        Command::Apply(args) => run_apply(args),
        Command::Sign(args) => run_sign(args),
        Command::Log(args) => run_log(args),
        Command::Rollback(args) => run_rollback(args),
        Command::Repair(args) => run_repair(args),
        Command::Squash(args) => run_squash(args),
    }
}

fn run_create(args: &CreateArgs) -> Outcome {
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
    let created = create(&args.old, &options, &args.output).about(&args.old);
    drop(display);
    let created = created?;
    print_created(&created, args.change.json)?;
    Ok(0)
}

fn run_add(args: &AddArgs) -> Outcome {
    args.change.shown.apply();
    let mut options = args.change.options(&args.image, &args.source)?;
    options.loose_parents = args.loose_parents;
    if !matches!(options.build.source.format, SourceFormat::Directory | SourceFormat::Archive) {
        return Err(Failure::about(&args.source, "not a directory and not a tar archive: use ferofs build"));
    }
    cancel_on_signals(&options.build.run.cancel, GRACE_PERIOD_IN_PLACE)?;
    let display = show_progress(&options);
    let added = add(&args.image, &options, args.trailing.trailing()).about(&args.image);
    drop(display);
    match added? {
        Some(added) => print_created(&added, args.change.json)?,
        None if args.change.json => print_line!("null")?,
        None if wants_summary() => print_line!("nothing to add: the image has all of it already")?,
        None => {}
    }
    Ok(0)
}

impl ChangeArgs {
    /// The library options to change `image` by `source`.
    fn options(&self, image: &Path, source: &Path) -> Result<CreateOptions, Failure> {
        let mut options = CreateOptions::new(source);
        let new = &mut options.build;
        new.source.format = SourceFormat::detect(source).map_err(Failure::without_subject)?;
        new.run.workers = self.encoding.workers;
        new.output.verify = self.verify;
        new.image.build_time = self.time.map_or_else(source_date_epoch, |time| Ok(Some(time)))?;
        new.attributes.all_time = all_time(self.all_time, self.time)?;
        (new.attributes.force_uid, new.attributes.force_gid) =
            (self.all_root.then_some(0), self.all_root.then_some(0));
        options.encoding = self.encoding.for_image(image)?;
        options.keep_features = self.keep_features;
        Ok(options)
    }
}

/// Shows how far the comparison of the new tree with the old image is, if standard error is a terminal.
fn show_progress(options: &CreateOptions) -> Option<Display> {
    show_build(&options.build.run.progress)
}

fn show_build(progress: &Arc<Progress>) -> Option<Display> {
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

fn run_apply(args: &ApplyArgs) -> Outcome {
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

fn run_sign(args: &PatchSignArgs) -> Outcome {
    let patch = Patch::open(&args.patch).about(&args.patch)?;
    args.sign.sign(&Hex(&patch.digest()).to_string(), &[&args.patch])?;
    Ok(0)
}

fn run_log(args: &LogArgs) -> Outcome {
    let source = FileSource::open(&args.image, 0).map_err(Failure::without_subject)?;
    let states = log(&source).about(&args.image)?;
    let text = if args.json { show::log_json(&states).to_string() } else { show::log_text(&states) };
    print_line!("{text}")?;
    Ok(0)
}

fn run_rollback(args: &RollbackArgs) -> Outcome {
    args.shown.apply();
    let medium = FileMedium::open(&args.image).about(&args.image)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = source_date_epoch()?.unwrap_or(i64::try_from(now).unwrap_or(i64::MAX));
    let state = rollback(&medium, args.to, args.trailing.trailing(), time).about(&args.image)?;
    if wants_summary() {
        print_line!("state {state} is current again")?;
    }
    Ok(0)
}

fn run_repair(args: &RepairArgs) -> Outcome {
    let medium = FileMedium::open(&args.image).about(&args.image)?;
    match repair(&medium).about(&args.image)? {
        Repaired::Nothing => print_line!("nothing to repair")?,
        Repaired::Leftovers => print_line!("removed the remains of an interrupted change")?,
        Repaired::Superblock(state) => print_line!("restored the superblock of state {state}")?,
    }
    Ok(0)
}

fn run_squash(args: &SquashArgs) -> Outcome {
    args.shown.apply();
    let mut options = squash_options(&args.image).about(&args.image)?;
    options.run.workers = args.encoding.workers;
    if let Some(compression) = args.encoding.compression(&args.image, options.image.block_size)? {
        options.data.compression = compression;
    }
    cancel_on_signals(&options.run.cancel, GRACE_PERIOD)?;
    let display = show_build(&options.run.progress);
    let built = build(&options, &args.out);
    drop(display);
    let summary = built.about(&args.image)?;
    if wants_summary() {
        print_line!("{} of an image without history", HumanBytes(summary.bytes_out))?;
    }
    Ok(0)
}

impl EncodingArgs {
    /// The encoding of new data for `image`.
    fn for_image(&self, image: &Path) -> Result<Encoding, Failure> {
        let opened =
            Image::open(FileSource::open(image, 0).map_err(Failure::without_subject)?).about(image)?;
        Ok(match self.compression(image, opened.superblock().block_size)? {
            None => Encoding::AsOld,
            Some(None) => Encoding::Stored,
            Some(Some(compression)) => Encoding::With(compression),
        })
    }

    /// The compression that the options select: `None`: as in the old image; `Some(None)`: no compression.
    #[allow(clippy::option_option, reason = "no option, and the option none, mean different things")]
    fn compression(
        &self,
        image: &Path,
        block: ferofs::build::BlockSize,
    ) -> Result<Option<Option<ferofs::build::Compression>>, Failure> {
        let Some(name) = self.compress.as_deref() else { return Ok(None) };
        let refuse = |(option, reason)| Failure::about(image, format!("{option}: {reason}"));
        let setting = CompressionOptions {
            compressors: Some(name).filter(|name| *name != "none"),
            pcluster: self.cluster_size,
            ..CompressionOptions::default()
        };
        let compression = setting.compression(block).map_err(refuse)?;
        Ok(Some(compression))
    }
}
