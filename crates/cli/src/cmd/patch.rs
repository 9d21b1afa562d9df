//! `ferofs patch`: creates, shows and applies patches, and manages the history of an image.

mod apply;
mod args;
mod create;
mod show;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use ferofs::build::build;
use ferofs::patch::{
    FileMedium, Patch, Repaired, log, repair, rollback, squash_in_place, squash_options,
};
use ferofs::read::{FileSource, Hex};
use indicatif::HumanBytes;

use self::args::{EncodingArgs, TrailingArgs};
use crate::args::outputs::{is_same_file, refuse_as_output};
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::args::signature::SignArgs;
use crate::cmd::verity::sidecar::warn_of_seal;
use crate::cmd::write::source_date_epoch;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, wants_summary};
use crate::print::output::{is_strict, json_text, message, print_line};
use crate::signals::{GRACE_PERIOD, cancel_on_signals};

/// Update images in place with patches, and go back
///
/// A patch is small: it has what is new. The history of an image stays in it, until `ferofs patch
/// squash` writes an image without it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Box<create::CreateArgs>),
    Compose(Box<create::ComposeArgs>),
    Add(Box<create::AddArgs>),
    Show(ShowArgs),
    Apply(apply::ApplyArgs),
    Sign(PatchSignArgs),
    Log(LogArgs),
    Rollback(RollbackArgs),
    Repair(RepairArgs),
    Squash(Box<SquashArgs>),
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
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// Sign a patch
///
/// The signature is PKCS #7, detached, in DER, of the patch's digest (BLAKE3) as text. openssl
/// signs. The key may have a password.
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
    #[arg(help_heading = OUTPUT, long)]
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

    /// Number of the state, as `ferofs patch log` prints it [default: the state before the current
    /// one]
    #[arg(long, value_name = "N")]
    to: Option<u64>,

    #[command(flatten)]
    trailing: TrailingArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Restore a damaged superblock from the history, and remove the remains of an interrupted change
///
/// This works for images that were patched or whose first patch was interrupted. Other images have
/// no copy of their superblock.
#[derive(clap::Args)]
struct RepairArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Write a new image with the current tree of an image, without its history
///
/// With --in-place, the new image replaces the file. It is built beside the old one, compared with
/// it and synced first, so the old one stays if anything fails. This needs space for both.
#[derive(clap::Args)]
struct SquashArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The new image
    #[arg(value_name = "OUT", required_unless_present = "in_place")]
    out: Option<PathBuf>,

    /// Put the new image in the place of IMAGE, which is a regular file, with its owner, group and
    /// permissions
    #[arg(long, conflicts_with = "out")]
    in_place: bool,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    #[command(flatten)]
    encoding: EncodingArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    run_command(&args.command).map_err(|failure| match failure.is_no_image() {
        true => failure.with_hint(
            "an image that is patched starts at the first byte of its file: there is no --offset",
        ),
        false => failure,
    })
}

fn run_command(command: &Command) -> Outcome {
    match command {
        Command::Create(args) => create::create(args),
        Command::Compose(args) => create::compose(args),
        Command::Add(args) => create::add(args),
        Command::Show(args) => show::run(&args.patch, args.files, args.json),
        Command::Apply(args) => apply::run(args),
        Command::Sign(args) => run_sign(args),
        Command::Log(args) => run_log(args),
        Command::Rollback(args) => run_rollback(args),
        Command::Repair(args) => run_repair(args),
        Command::Squash(args) => run_squash(args),
    }
}

fn run_sign(args: &PatchSignArgs) -> Outcome {
    let patch = Patch::open(&args.patch).about(&args.patch)?;
    args.sign.sign(&Hex(&patch.digest()).to_string(), &[&args.patch])?;
    Ok(0)
}

fn run_log(args: &LogArgs) -> Outcome {
    let source = FileSource::open(&args.image, 0).without_subject()?;
    let states = log(&source).about(&args.image)?;
    let text =
        if args.json { json_text(&show::log_json(&states)) } else { show::log_text(&states) };
    print_line!("{text}")?;
    Ok(0)
}

fn run_rollback(args: &RollbackArgs) -> Outcome {
    args.shown.apply();
    let medium = FileMedium::open(&args.image).about(&args.image)?;
    warn_of_seal(&args.image)?;
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
    match &args.out {
        Some(out) if out.is_file() && is_same_file(out, &args.image) => {
            return Err(Failure::about(
                out,
                "is the image itself: --in-place replaces it, and loses its history",
            ));
        }
        Some(out) => {
            refuse_as_output(out, &[&args.image])?;
            args.overwrite.check(out, OutputKind::Image { offset: 0 })?;
        }
        None => warn_of_seal(&args.image)?,
    }
    let mut options = squash_options(&args.image).about(&args.image)?;
    options.run.workers = args.encoding.workers;
    options.run.strict = is_strict();
    if let Some(compression) = args.encoding.compression(options.image.block_size)? {
        options.data.compression = compression;
    }
    cancel_on_signals(&options.run.cancel, GRACE_PERIOD)?;
    let display = create::show_build(&options.run.progress);
    let before = std::fs::metadata(&args.image).map_or(0, |metadata| metadata.len());
    let built = match &args.out {
        Some(out) => build(&options, out),
        None => squash_in_place(&args.image, &options),
    };
    drop(display);
    let summary = built.about(&args.image)?;
    for warning in &summary.warnings {
        message!("{warning}");
    }
    if wants_summary() {
        let (after, before) = (HumanBytes(summary.bytes_out), HumanBytes(before));
        print_line!("{after} of an image without history, instead of {before}")?;
    }
    Ok(0)
}
