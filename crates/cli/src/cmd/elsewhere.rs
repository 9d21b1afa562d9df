//! The command on other systems than Linux: it reads images. Options and output are those of Linux,
//! as far as they are there.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use ferofs::escape::Escaped;
use ferofs::extract::{Options, Summary, extract_portable, write_tar};
use ferofs::read::FileSource;
use ferofs::read::names::{bytes_of, path_of};
use ferofs::verity::{Seal, appended_position, check_end, verify_all};
use ferofs::{Error, IoError};
use indicatif::HumanBytes;

use super::{cat, check, inspect, ls};
use crate::args::image::ImageArgs;
use crate::args::seal::RootArgs;
use crate::args::{byte_size, threads};
use crate::exit::{About, FAILURE, Failure, OUTPUT_FAILURE, Outcome};
use crate::print::output::{OutputArgs, message, print_line, wants_summary};
use crate::print::progress::{CountedSource, Display};

/// Bytes of an archive that are written at a time.
const BUFFER: usize = 1 << 20;

/// What the command does.
pub(super) const ABOUT: &str = "Check, list, show and extract EROFS images. On Linux, ferofs also builds, mounts, compares and patches them";

#[derive(Subcommand)]
pub(crate) enum Command {
    Check(check::Args),
    Inspect(inspect::Args),
    Extract(ExtractArgs),
    Ls(ls::Args),
    Verity(VerityArgs),
    Cat(cat::Args),
    #[command(external_subcommand)]
    OfLinux(Vec<OsString>),
}

/// Extract an image to a new directory or to a tar archive
///
/// A directory gets the directories, files with their content, modification times and hard links of
/// the image. A file that nobody may write is read-only; owners, other permissions and extended
/// attributes are not kept. Symbolic links, devices, pipes and sockets are not made: each is
/// reported, and the exit code is 1. So is a name that this file system takes for another one, as
/// `A` and `a`. In names that Windows does not allow, U+F000 is added to the characters that it
/// does not allow. A tar archive keeps everything.
#[derive(clap::Args)]
pub(crate) struct ExtractArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to extract to: an empty one, or one that does not exist
    #[arg(required_unless_present = "tar")]
    dir: Option<PathBuf>,

    /// Write a tar archive instead of a directory; `-` is standard output. Files are not replaced
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    tar: Option<PathBuf>,

    /// Start at this file or directory of the image [default: /]
    #[arg(long)]
    path: Option<PathBuf>,

    /// Number of worker threads of an archive, 1 or more [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Check images against hash trees
#[derive(clap::Args)]
pub(crate) struct VerityArgs {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Verify(VerifyArgs),
}

/// Check each block of an image against a root hash
#[derive(clap::Args)]
struct VerifyArgs {
    /// The image
    image: PathBuf,

    #[command(flatten)]
    root: RootArgs,

    /// File with the hash tree [default: the image itself]
    #[arg(long, value_name = "FILE")]
    hash_file: Option<PathBuf>,

    /// Position of the hash tree's superblock in its file, in bytes [default: after the image's
    /// last block; 0 with --hash-file]
    #[arg(long, value_name = "BYTES", value_parser = byte_size::argument::<u64>)]
    hash_offset: Option<u64>,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Extract(args) => extract(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Verity(VerityArgs { command: Verb::Verify(args) }) => verify(&args),
        Command::Cat(args) => cat::run(&args),
        Command::OfLinux(words) => {
            let name = words.first().map(PathBuf::from).unwrap_or_default();
            let reason = "on this system, ferofs has only check, inspect, ls, cat, extract and verity verify; the other commands need Linux";
            Err(Failure::about(&name, reason))
        }
    }
}

fn extract(args: &ExtractArgs) -> Outcome {
    args.shown.apply();
    let mut options = Options::default();
    options.workers = args.workers;
    let image = args.image.open()?;
    let path = args.path.as_deref().unwrap_or(Path::new("/"));
    let from = image.resolve(path, true).about(&args.image.path)?;
    let name =
        path.file_name().map(|name| path_of(bytes_of(name).into_owned())).unwrap_or_default();
    let (progress, total) = (options.progress.clone(), image.superblock().inodes);
    let display = Display::on_terminal(move |bar| {
        let (names, bytes) = (progress.names.get(), progress.bytes.get());
        bar.set_message(format!("{names} of about {total} files, {}", HumanBytes(bytes)));
    });
    let print_error = |path: &Path, error: &Error| match error {
        Error::Io(IoError { path: Some(_), .. })
        | Error::XattrLost { .. }
        | Error::SocketInTar(_) => {
            message!("{error}")
        }
        _ => message!("{}: {}: {error}", Escaped::path(&args.image.path), Escaped::path(path)),
    };
    let summary = match (&args.tar, &args.dir) {
        (Some(archive), _) => {
            let write =
                |out: &mut dyn Write| write_tar(&image, &from, &name, out, &options, &print_error);
            to_archive(&args.image.path, archive, write)?
        }
        (None, Some(dir)) => {
            let target = if from.is_dir() { dir.clone() } else { dir.join(&name) };
            extract_portable(&image, &from, &target, &options, &print_error).without_subject()?
        }
        // The parser refuses it.
        (None, None) => return Ok(FAILURE),
    };
    drop(display);
    if args.tar.is_none() && wants_summary() {
        print_line!("{} files with {}", summary.names, HumanBytes(summary.bytes))?;
    }
    Ok(if summary.failures == 0 { 0 } else { FAILURE })
}

/// Gives `write` the new file `archive`, or standard output for `-`.
fn to_archive(
    image: &Path,
    archive: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Summary, Error>,
) -> Result<Summary, Failure> {
    let to_stdout = archive == Path::new("-");
    let failed = |error: Error| {
        if matches!(error, Error::Io(IoError { path: Some(_), .. })) {
            // The path is that of a file in the image.
            return Failure::about(image, error);
        }
        let is_output = to_stdout && error.corruption().is_none();
        Failure::about(archive, error).with_code(if is_output { OUTPUT_FAILURE } else { FAILURE })
    };
    if to_stdout {
        return write(&mut BufWriter::with_capacity(BUFFER, io::stdout().lock())).map_err(failed);
    }
    let created = OpenOptions::new().write(true).create_new(true).open(archive);
    let mut file =
        created.map_err(|e| Failure::without_subject(Error::io("create", archive, e)))?;
    let written = write(&mut file).map_err(failed);
    if written.is_err() {
        // A part of an archive must not pass for one. If it cannot be removed, the message about
        // the failure is there.
        drop(file);
        let _ = std::fs::remove_file(archive);
    }
    written
}

fn verify(args: &VerifyArgs) -> Outcome {
    args.shown.apply();
    let open = |path: &Path| FileSource::open(path, 0).without_subject();
    let path = args.hash_file.as_deref().unwrap_or(&args.image);
    let (image, file) = (open(&args.image)?, open(path)?);
    let position = match (args.hash_offset, &args.hash_file) {
        (Some(position), _) => position,
        (None, Some(_)) => 0,
        (None, None) => appended_position(&file).about(path)?,
    };
    let seal = Seal::read(&file, position).about(path)?;
    let image = CountedSource::new(image, "verified");
    let verified = seal.verified(image, file, args.root.root()?).about(&args.image)?;
    check_end(&verified).about(&args.image)?;
    verify_all(&verified, threads(args.threads)).about(&args.image)?;
    if wants_summary() {
        print_line!("{} blocks agree with the root hash", seal.superblock.data_blocks)?;
    }
    Ok(0)
}

/// Paths in an image as they are: patterns need the builder.
pub(super) mod paths {
    use std::path::{Path, PathBuf};

    use ferofs::read::Image;

    use crate::exit::Failure;

    #[expect(clippy::unnecessary_wraps, reason = "on Linux, patterns can be wrong")]
    pub(crate) fn expand(_: &Image, _: &Path, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        Ok(paths.to_vec())
    }
}
