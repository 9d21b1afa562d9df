//! `ferofs delta`: makes, shows and applies exact deltas.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use ferofs::patch::{DeltaFile, DeltaOptions, create_delta, part_file};
use ferofs::read::{Cancel, Count, Hex};
use indicatif::HumanBytes;
use serde_json::json;

use crate::args::other_format::unusable_update;
use crate::args::outputs::refuse_as_output;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::args::signature::{RequiredSignature, SignArgs};
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, json_text, print_line, wants_summary};
use crate::print::progress::Display;
use crate::signals::{GRACE_PERIOD, cancel_on_signals};

/// Make an exact new image from an old one and a small delta
///
/// The new image comes out byte for byte, with its hash tree, so that its signature stays valid.
/// The old image is only read. `ferofs patch` changes an image in place instead.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(CreateArgs),
    Apply(ApplyArgs),
    Show(ShowArgs),
    Sign(DeltaSignArgs),
}

/// Create a delta between two images
///
/// Any program may have made them.
#[derive(clap::Args)]
struct CreateArgs {
    /// The old image
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The new image
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// The delta to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Zstandard's level: lower ones are faster, and give longer deltas
    #[arg(long, value_name = "N", default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,

    /// Let other versions of ferofs and all processors apply the delta
    ///
    /// It contains the compressed data that changed, not what to compress, and is larger.
    #[arg(long)]
    portable: bool,

    /// Threads [default: the number of processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Print the summary as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Make the new image from the old one and a delta
///
/// The SHA-256 of the old image is compared before the first byte is written, that of the new image
/// at the end, and each MiB has a digest, which is compared before it is written. The new image is
/// written in order.
#[derive(clap::Args)]
struct ApplyArgs {
    /// The old image: a file or a device, which is only read
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The delta, or - for standard input
    #[arg(value_name = "DELTA")]
    delta: PathBuf,

    /// The new image: a file, a device or a pipe, or - for standard output
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Keep the right bytes that an interrupted command left
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    signature: RequiredSignature,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Print the summary as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Show the images of a delta, and the memory for applying it
#[derive(clap::Args)]
struct ShowArgs {
    /// The delta, or - for standard input
    #[arg(value_name = "DELTA")]
    delta: PathBuf,

    /// Print one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// Sign a delta
///
/// The signature is PKCS #7, detached, in DER, of a digest (BLAKE3) as text. It covers the digests
/// of both images and of each MiB of the new one, the root hash, and the memory. openssl signs. The
/// key may have a password.
#[derive(clap::Args)]
struct DeltaSignArgs {
    /// The delta
    #[arg(value_name = "DELTA")]
    delta: PathBuf,

    #[command(flatten)]
    sign: SignArgs,
}

impl Args {
    pub(crate) const fn is_apply(&self) -> bool {
        matches!(self.command, Command::Apply(_))
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Create(args) => create(args),
        Command::Apply(args) => apply(args),
        Command::Show(args) => show(args),
        Command::Sign(args) => {
            args.sign.sign(&signed_text(&open(&args.delta)?), &[&args.delta])?;
            Ok(0)
        }
    }
}

fn create(args: &CreateArgs) -> Outcome {
    ferofs_threads::return_large_buffers();
    args.shown.apply();
    if let Some(dir) = [&args.old, &args.new].into_iter().find(|path| path.is_dir()) {
        let reason =
            "is a directory: a delta is made of two images, and `ferofs build` makes one of it";
        return Err(Failure::about(dir, reason));
    }
    refuse_as_output(&args.output, &[&args.old, &args.new])?;
    args.overwrite.check(&args.output, OutputKind::Delta)?;
    let mut options = DeltaOptions::default();
    options.level = args.level;
    options.portable = args.portable;
    options.run.workers = args.workers;
    cancel_on_signals(&options.run.cancel, GRACE_PERIOD)?;
    let made = create_delta(&args.old, &args.new, &options, &args.output);
    let made = made.without_subject()?;
    if args.json {
        let object = json!({
            "delta": made.len, "new": made.new_size, "copied": made.copied, "encoded": made.encoded,
            "carried": made.carried, "hash_tree": made.tree, "memory": made.memory,
        });
        print_line!("{}", json_text(&object))?;
    } else if wants_summary() {
        let [len, new, copied] = [made.len, made.new_size, made.copied].map(HumanBytes);
        print_line!(
            "{len} for a new image of {new}, of which {copied} are copied from the old one"
        )?;
        if made.carried > 0 {
            let (carried, encoded) = (HumanBytes(made.carried), HumanBytes(made.encoded));
            print_line!(
                "{encoded} of pclusters are encoded again; {carried} are carried as they are, because no \
                 compressor here makes them, or because that takes too long"
            )?;
        }
    }
    Ok(0)
}

/// Opens a delta, and reads its header.
fn open(path: &Path) -> Result<DeltaFile, Failure> {
    DeltaFile::open(path).map_err(|error| unusable_update(error, path))
}

/// The text that a signature is of.
fn signed_text(delta: &DeltaFile) -> String {
    Hex(&delta.delta().digest()).to_string()
}

fn apply(args: &ApplyArgs) -> Outcome {
    args.shown.apply();
    let is_stream = args.new.as_os_str() == "-";
    if !is_stream {
        refuse_as_output(&args.new, &[&args.old, &args.delta])?;
    }
    let delta = open(&args.delta)?;
    args.signature.check(&signed_text(&delta))?;
    let cancel = Cancel::default();
    cancel_on_signals(&cancel, GRACE_PERIOD)?;
    let (done, total) = (Arc::new(Count::default()), HumanBytes(delta.delta().header().new_size));
    let shown = Arc::clone(&done);
    let display = Display::on_terminal(move |bar| {
        let done = HumanBytes(shown.get());
        bar.set_message(format!("{done} of {total} written"));
    });
    let written = |len| done.set(len);
    let force = args.overwrite.is_forced();
    let applied = delta.apply(&args.old, &args.new, args.resume, force, written, &cancel);
    drop(display);
    let applied = applied.map_err(|error| {
        let failure = Failure::without_subject(error);
        // A MiB is written when it is complete. No part file is left if no space is.
        match part_file(&args.new) {
            _ if is_stream || done.get() < 1 << 20 => failure,
            None => failure.with_hint("NEW is incomplete: --resume continues there"),
            Some(part) if part.exists() => failure.with_hint(match args.new.exists() {
                true => "NEW is as before, and --resume continues",
                false => "NEW does not exist yet, and --resume continues",
            }),
            Some(_) => failure,
        }
    })?;
    if is_stream {
        return Ok(0);
    }
    if args.json {
        print_line!("{}", json_text(&json!({ "new": applied.len, "resumed": applied.resumed })))?;
    } else if wants_summary() {
        let (len, resumed) = (HumanBytes(applied.len), HumanBytes(applied.resumed));
        print_line!("{len} written and compared; {resumed} of these were there before")?;
    }
    Ok(0)
}

fn show(args: &ShowArgs) -> Outcome {
    let mut delta = open(&args.delta)?;
    delta.check_length().without_subject()?;
    let header = delta.delta().header();
    let root = header.seal.as_ref().map(|seal| Hex(&seal.root).to_string());
    let (old, new) = (Hex(&header.old_digest).to_string(), Hex(&header.new_digest).to_string());
    if args.json {
        let object = json!({
            "old": { "bytes": header.old_size, "sha256": old },
            "new": { "bytes": header.new_size, "sha256": new, "root_hash": root },
            "memory": header.memory, "digest": signed_text(&delta),
        });
        print_line!("{}", json_text(&object))?;
        return Ok(0);
    }
    print_line!("old image   {} bytes, SHA-256 {old}", header.old_size)?;
    print_line!("new image   {} bytes, SHA-256 {new}", header.new_size)?;
    if let Some(root) = root {
        print_line!("root hash   {root}")?;
    }
    print_line!("memory      at most {} to apply", HumanBytes(header.memory))?;
    print_line!("digest      {}", signed_text(&delta))?;
    Ok(0)
}
