//! Builds an image, and prints what `ferofs build` and `mkfs.erofs` print.

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::IoError;
use ferofs::build::{Options, Settings, SourceData, SourceFormat, Summary, Warning, build};
use ferofs::escape::Escaped;
use ferofs::patch::{LikeOptions, build_like};
use ferofs::seal::{BuildSeal, BuiltSeal};
use indicatif::HumanBytes;

use super::seal::SealArgs;
use super::summary;
use crate::args::outputs::refuse_as_output;
use crate::cmd::linux::Requirement;
use crate::exit::{Failure, OUTPUT_FAILURE, Outcome};
use crate::print::output::{json_text, message, print_line};
use crate::print::progress::Display;
use crate::signals::{GRACE_PERIOD, cancel_on_signals};

/// Selects what [`execute`] prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrintOptions<'a> {
    /// No progress and no summary.
    pub(crate) quiet: bool,
    /// The summary is one JSON object.
    pub(crate) json: bool,
    /// The summary is printed even if standard output is not a terminal.
    pub(crate) verbose: bool,
    /// The summary includes the time of each activity, and is printed even if standard output is
    /// not a terminal.
    pub(crate) timings: bool,
    /// Warnings that are not printed.
    pub(crate) hides: fn(&Warning) -> bool,
    /// The settings of the image, for the summary.
    pub(crate) settings: Option<&'a Settings>,
}

/// Builds an image. Shows a progress bar if standard error is a terminal, and a summary if standard
/// output is a terminal. `like` names an earlier image that the new one is built like; `sealed` is
/// the seal of the image, if it gets one, and its files.
pub(crate) fn execute(
    options: &Options,
    image: &Path,
    like: Option<&LikeOptions>,
    sealed: Option<(&BuildSeal, &SealArgs)>,
    printed: PrintOptions<'_>,
) -> Outcome {
    refuse_sources_as_output(options, image)?;
    cancel_on_signals(&options.run.cancel, GRACE_PERIOD)?;
    let interactive = !printed.quiet && std::io::stderr().is_terminal();
    let progress = Arc::clone(&options.run.progress);
    let display =
        interactive.then(|| Display::start(move |bar| summary::show_progress(bar, &progress)));
    let result = match like {
        Some(like) => build_like(options, like, image),
        None => build(options, image),
    };
    drop(display);
    let summary = result.map_err(|error| {
        let is_output = image == Path::new("-")
            && matches!(&error, ferofs::build::Error::Io(IoError { action: "write", path: Some(path), .. }) if path.as_os_str() == "standard output");
        let may_skip = like.is_none() && !options.source.skip_unreadable;
        let is_unreadable = may_skip && is_unreadable(&error, options, image);
        let failure = Failure::without_subject(error);
        if is_output {
            failure.with_code(OUTPUT_FAILURE)
        } else if is_unreadable {
            failure.with_hint("--skip-unreadable leaves out what cannot be read")
        } else {
            failure
        }
    })?;
    for warning in summary.warnings.iter().filter(|warning| !(printed.hides)(warning)) {
        message!("{warning}");
    }
    if let Some(like) = like.filter(|_| summary.bytes_kept > 0 && !printed.quiet) {
        let (old, bytes) = (Escaped::path(&like.image), HumanBytes(summary.bytes_kept));
        message!(
            "{old}: kept {bytes} of this earlier image, the content of {} files",
            summary.files_kept
        );
    }
    sealed.map_or(Ok(()), |(seal, args)| args.finish(seal))?;
    let built = sealed.and_then(|(seal, _)| seal.built());
    print_summary(&summary, built.as_ref(), options, image, printed, interactive)?;
    Ok(0)
}

/// Whether a file of the source cannot be read, so that leaving it out helps.
fn is_unreadable(error: &ferofs::build::Error, options: &Options, image: &Path) -> bool {
    use ferofs::build::Error::{InSource, Io, Read};
    match error {
        Io(IoError { action: "open" | "read", path: Some(path), source, .. }) => {
            let is_below = path != image && *path != options.source.path;
            let is_broken = source.raw_os_error() == Some(libc::EIO);
            is_below && (is_broken || source.kind() == std::io::ErrorKind::PermissionDenied)
        }
        InSource { source, .. } => matches!(&**source, Read(error) if error.corruption().is_some()),
        _ => false,
    }
}

/// The image may replace a source image, whose files it contains. Any other source would be lost:
/// an archive, an image whose data the new one refers to, and a device, which is written in place.
pub(super) fn refuse_sources_as_output(options: &Options, image: &Path) -> Result<(), Failure> {
    let in_place =
        std::fs::metadata(image).is_ok_and(|metadata| metadata.file_type().is_block_device());
    let keeps_data = options.source.data == SourceData::External;
    if options.source.format == SourceFormat::Image && !keeps_data && !in_place {
        return Ok(());
    }
    let sources = std::iter::once(&options.source.path).chain(&options.source.upper_layers);
    refuse_as_output(image, &sources.map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Prints the summary that `printed` selects, on standard output if it is a terminal or if an
/// option asks for the summary.
fn print_summary(
    summary: &Summary,
    seal: Option<&BuiltSeal>,
    options: &Options,
    image: &Path,
    printed: PrintOptions<'_>,
    interactive: bool,
) -> Result<(), Failure> {
    let timings = &options.run.progress.timings;
    let requirement = Requirement::of(options).with_features(summary.incompat);
    let form = printed.settings.map(|settings| (settings, requirement));
    let text = match printed {
        PrintOptions { json: true, .. } => json_text(&summary::json(summary, seal, timings, form)),
        PrintOptions { timings: true, .. } => {
            format!("{}\n{}", summary::text(summary, form), summary::timings(summary, timings))
        }
        PrintOptions { quiet: false, .. } => summary::text(summary, form),
        PrintOptions { quiet: true, .. } => return Ok(()),
    };
    // Standard output contains the image itself, so the summary goes to standard error.
    if image == Path::new("-") {
        if printed.json || printed.timings || printed.verbose || interactive {
            // Not `message!`, which prints one line. An error here cannot be reported.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
        }
    } else if printed.json || printed.timings || printed.verbose || std::io::stdout().is_terminal()
    {
        print_line!("{text}")?;
    }
    Ok(())
}
