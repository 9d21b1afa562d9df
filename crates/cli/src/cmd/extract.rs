//! `ferofs extract`: writes the tree of an image to a directory or a tar archive, and its metadata
//! to files.

mod metadata_file;

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ferofs::extract::{Existing, Options, Selection, Summary, extract, write_tar};
use ferofs::read::{Image, Inode, Nid};
use ferofs::{Error, IoError, NewFile};
use indicatif::HumanBytes;

use super::paths;
use crate::args::image::ImageArgs;
use crate::args::outputs::{refuse_as_outputs, writes_below};
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{About, FAILURE, Failure, OUTPUT_FAILURE, Outcome, warn};
use crate::print::output::{OutputArgs, wants_summary};
use crate::print::output::{is_strict, message, print_line};
use crate::print::progress::Display;
use ferofs::escape::Escaped;

/// Extract an image to a directory or to a tar archive
///
/// Nothing is written outside the directory. If a file fails, the program reports it, continues
/// with the other files, and ends with exit code 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to extract to; it is created if it does not exist
    #[arg(required_unless_present_any = ["tar", "metadata"])]
    dir: Option<PathBuf>,

    /// Files or patterns to extract ('/etc/*.conf')
    ///
    /// As --include: quote patterns, because the shell does not see the files of the image. A file
    /// that has exactly this name is taken instead of what the pattern matches.
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,

    /// Write a tar archive; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "overwrite", "skip_existing"])]
    tar: Option<PathBuf>,

    /// Also write the metadata of all files to FILE; `-` is standard output
    ///
    /// May be given several times. If the name of FILE, without its extension, ends in fs_config or
    /// filesystem_config, it gets Android's fs_config form; if it ends in file_contexts, Android's
    /// file_contexts form; otherwise JSON.
    #[arg(long, value_name = "FILE")]
    metadata: Vec<PathBuf>,

    /// Directory on which the tree will be mounted; --metadata writes Android's paths below it
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PATH",
        default_value = "/",
        requires = "metadata"
    )]
    mount_point: PathBuf,

    #[command(flatten)]
    from: FromArgs,

    #[command(flatten)]
    select: SelectArgs,

    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,

    /// Continue an interrupted extraction
    ///
    /// Keep files with the right type, size, time, owner and permissions, and replace the others.
    #[arg(long, conflicts_with = "overwrite")]
    skip_existing: bool,

    /// Do not set owners, as without root
    ///
    /// Nor setuid and setgid bits, and file capabilities.
    #[arg(long)]
    no_preserve_owner: bool,

    /// Apply the umask, and set no ACLs
    #[arg(long)]
    no_preserve_perms: bool,

    /// Do not set extended attributes
    #[arg(long)]
    no_xattrs: bool,

    /// Number of worker threads, 1 or more [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    workers: Option<NonZeroUsize>,

    #[command(flatten)]
    outputs: OverwriteArgs,

    #[command(flatten)]
    shown: OutputArgs,
}

/// Selects where in the image to start.
#[derive(clap::Args, Debug)]
pub(crate) struct FromArgs {
    /// Start at this file or directory [default: /]
    #[arg(long)]
    pub(crate) path: Option<PathBuf>,

    /// Start at the inode with this number, decimal or hexadecimal with 0x
    #[arg(long, hide_short_help = true, value_name = "NID", conflicts_with = "path", value_parser = nid)]
    pub(crate) nid: Option<u64>,
}

/// Selects the names to extract.
#[derive(clap::Args)]
struct SelectArgs {
    /// Extract only what this pattern matches
    ///
    /// And everything below it; may be given several times. Patterns are as in a .gitignore file at
    /// the start of the extraction: `/etc/passwd` (or `./etc/passwd`) is this path, `*.so` and
    /// `doc` are names at any depth, `/usr/lib/` is only a directory, `*` matches within one name,
    /// `**` across names
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Leave out what this pattern matches
    ///
    /// And everything below it; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.shown.apply();
    let mut options = Options::default();
    options.workers = args.workers;
    options.existing = match (args.overwrite, args.skip_existing) {
        (true, _) => Existing::Replace,
        (_, true) => Existing::SkipSame,
        _ => Existing::Refuse,
    };
    options.owners &= !args.no_preserve_owner;
    options.permissions = !args.no_preserve_perms;
    options.xattrs = !args.no_xattrs;
    if args.dir.as_deref() == Some(Path::new("-")) {
        let reason = "a directory cannot be written to standard output; write an archive: --tar - (./- is a directory named -)";
        return Err(Failure::usage(Path::new("-"), reason));
    }
    let outputs: Vec<&Path> = args.tar.iter().chain(&args.metadata).map(PathBuf::as_path).collect();
    refuse_as_outputs(&outputs, &[&args.image.path])?;
    refuse_below_target(args.dir.as_deref(), &outputs)?;
    for file in args.metadata.iter().filter(|file| *file != Path::new("-")) {
        args.outputs.check(file, metadata_file::kind(file))?;
    }
    args.tar.iter().try_for_each(|archive| args.outputs.check(archive, OutputKind::Tar))?;
    let image = args.image.open()?;
    let name = &args.image.path;
    let from = args.from.find(&image).about(name)?;
    let named = paths::patterns(&image, &from, &args.patterns);
    let include = [&named[..], &paths::patterns(&image, &from, &args.select.include)].concat();
    let exclude = paths::patterns(&image, &from, &args.select.exclude);
    options.select = Selection::new(&include, &exclude).without_subject()?;
    let mut code = 0;
    for file in &args.metadata {
        let print_error = |path: &Path, error: &Error| print_error(name, path, error);
        // A progress of its own: its count of failures gives the exit code of this file.
        let mut options = options.clone();
        options.progress = Default::default();
        code = code.max(metadata_file::write(
            &image,
            &from,
            file,
            &args.mount_point,
            &options,
            &print_error,
        )?);
    }
    if let Some(archive) = &args.tar {
        code = code.max(execute_tar(name, &image, &from, &args.from.name(), archive, &options)?);
    }
    if let Some(dir) = &args.dir {
        let target = if from.is_dir() { dir.clone() } else { dir.join(args.from.name()) };
        code = code.max(execute(name, &image, &from, &target, &options)?);
    }
    warn_of_unused(&options)?;
    // A file that is named must exist, as for `ls`, `cat` and tar(1).
    let unused = options.select.unused();
    let is_missing = named.iter().any(|pattern| unused.contains(pattern));
    Ok(if is_missing { code.max(FAILURE) } else { code })
}

/// A file of the image could have the name of an output in the target.
fn refuse_below_target(target: Option<&Path>, outputs: &[&Path]) -> Result<(), Failure> {
    let Some(Ok(target)) = target.map(std::fs::canonicalize) else { return Ok(()) };
    let is_file = |output: &&&Path| **output != Path::new("-");
    match outputs.iter().filter(is_file).find(|output| writes_below(output, &target)) {
        Some(output) => {
            Err(Failure::about(output, "lies in the directory to extract to; choose another one"))
        }
        None => Ok(()),
    }
}

/// Warns of patterns that matched nothing.
fn warn_of_unused(options: &Options) -> Result<(), Failure> {
    let unused = options.select.unused();
    unused
        .iter()
        .try_for_each(|pattern| warn(format_args!("{pattern}: no name in the image matches it")))
}

/// Extensions of archives that tar(1) compresses.
const COMPRESSED: [&str; 8] = ["gz", "tgz", "xz", "txz", "zst", "tzst", "bz2", "lz4"];

/// Writes `from` to the tar archive `archive`.
fn execute_tar(
    name: &Path,
    image: &Image,
    from: &Inode,
    file: &Path,
    archive: &Path,
    options: &Options,
) -> Outcome {
    crate::signals::cancel_on_signals(&options.cancel, crate::signals::GRACE_PERIOD)?;
    let to_stdout = archive == Path::new("-");
    let extension = archive.extension().unwrap_or_default();
    if COMPRESSED.iter().any(|compressed| extension == *compressed) {
        let hint = "--tar - writes to standard output, which gzip, xz or zstd can compress";
        warn(format_args!("{}: the archive is not compressed; {hint}", Escaped::path(archive)))?;
    }
    let write = |out: &mut dyn Write| {
        let _display = display(image, options);
        let summary = write_tar(image, from, file, out, options, &|path, error| {
            print_error(name, path, error)
        });
        summary.map_err(|error| {
            if matches!(error, Error::Io(IoError { path: Some(_), .. })) {
                // The path is that of a file in the image.
                return Failure::about(name, error);
            }
            let is_output = to_stdout && error.corruption().is_none();
            Failure::about(archive, error).with_code(if is_output {
                OUTPUT_FAILURE
            } else {
                FAILURE
            })
        })
    };
    let summary = if to_stdout {
        // Not `Stdout`, which takes a lock and searches for line ends: the writes are large
        // already.
        write(&mut File::from(std::io::stdout().as_fd().try_clone_to_owned()?))?
    } else {
        let mut out = NewFile::create(archive).without_subject()?;
        let summary = write(&mut out)?;
        if is_strict() {
            // Before the archive gets its name.
            warn_of_unused(options)?;
        }
        out.finish().without_subject()?;
        summary
    };
    Ok(if summary.failures == 0 { 0 } else { FAILURE })
}

/// Extracts `from` to `target`. Shows progress if standard error is a terminal, and a summary if
/// standard output is one, unless options say otherwise.
pub(crate) fn execute(
    name: &Path,
    image: &Image,
    from: &Inode,
    target: &Path,
    options: &Options,
) -> Outcome {
    crate::signals::cancel_on_signals(&options.cancel, crate::signals::GRACE_PERIOD)?;
    let display = display(image, options);
    let result =
        extract(image, from, target, options, &|path, error| print_error(name, path, error));
    drop(display);
    if let more @ 1.. = EXISTING.load(Ordering::Relaxed).saturating_sub(EXISTING_LINES) {
        message!("{}: {more} more files exist already", Escaped::path(target));
    }
    let summary = result.map_err(|error| match &error {
        Error::Io(error) if is_full(&error.source) => {
            let hint =
                format!("{error}; when there is space, `ferofs extract --skip-existing` continues");
            Failure::about(target, hint)
        }
        _ => Failure::without_subject(error),
    })?;
    if wants_summary() {
        let skipped = match summary.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} existed already"),
        };
        let Summary { files, directories, bytes, .. } = summary;
        print_line!("{files} files in {directories} directories, {}{skipped}", HumanBytes(bytes))?;
    }
    Ok(if summary.failures == 0 { 0 } else { FAILURE })
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Starts the progress line, if standard error is a terminal.
fn display(image: &Image, options: &Options) -> Option<Display> {
    let (progress, total) = (options.progress.clone(), image.superblock().inodes);
    Display::on_terminal(move |bar| {
        let names = progress.names.get() + progress.skipped.get();
        let bytes = HumanBytes(progress.bytes.get());
        bar.set_message(format!("{names} of about {total} names, {bytes}"));
    })
}

/// Names that exist already.
static EXISTING: AtomicU64 = AtomicU64::new(0);
/// The first of them get a line each: a second extraction to the same place would print thousands.
const EXISTING_LINES: u64 = 10;

/// Reports a file that failed.
fn print_error(image: &Path, path: &Path, error: &Error) {
    // Errors of the system contain the path already, but for those of reading the image.
    match error {
        Error::Io(IoError { path: None, .. }) => {}
        Error::Io(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => {
            return match EXISTING.fetch_add(1, Ordering::Relaxed) {
                0 => message!("{error}; --overwrite replaces files that exist"),
                1..EXISTING_LINES => message!("{error}"),
                _ => {}
            };
        }
        error if error.corruption().is_some() => {}
        error => return message!("{error}"),
    }
    message!("{}: {}: {error}", Escaped::path(image), Escaped::path(path));
}

impl FromArgs {
    /// The inode to start at.
    pub(crate) fn find(&self, image: &Image) -> Result<Inode, ferofs::read::Error> {
        match self.nid {
            Some(nid) => image.inode(Nid::new(nid)),
            None => image.resolve(self.path.as_deref().unwrap_or(Path::new("/")), true),
        }
    }

    /// The name to give to an extracted file that is not a directory.
    fn name(&self) -> PathBuf {
        let name = self.path.as_deref().and_then(Path::file_name).map(PathBuf::from);
        name.unwrap_or_else(|| self.nid.unwrap_or_default().to_string().into())
    }
}

/// Parses a nid: decimal, or hexadecimal after `0x`.
pub(crate) fn nid(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}
