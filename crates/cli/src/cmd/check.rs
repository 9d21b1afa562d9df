//! `ferofs check`: checks an image against the rules of the format.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use ferofs::check::{Finding, Options, Report, check_until_stopped};
use ferofs::read::Image;
use serde_json::json;

use crate::args::byte_size::human;
use crate::args::image::{ImageArgs, ImageName};
use crate::exit::{FSCK_USAGE, Failure, Outcome};
use crate::print::json_path;
use crate::print::output::{OUTPUT, json_text, message, print_line};
use crate::print::progress::Display;
use ferofs::escape::Escaped;

/// Exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;

/// Check images
///
/// Checks every inode, directory, extended attribute and map, and finds bytes that two structures
/// use. With --deep, decodes all data too. Repairs nothing. Exit codes are those of fsck(8): 0 the
/// image is sound, 4 it is damaged, 8 it could not be read or the check stopped at a limit, 16
/// wrong usage. Of several images, each is checked, and the largest code counts.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// More images, which are checked with the same options
    #[arg(value_name = "IMAGE")]
    more: Vec<ImageName>,

    /// Decode all data, too
    ///
    /// EROFS has no checksums of data: changed bytes that still decode are found only with
    /// --roothash.
    #[arg(long)]
    deep: bool,

    /// Print the report of each image as one JSON object, on a line of its own
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    /// Number of worker threads, 1 or more [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Print only findings; no progress and no summary
    #[arg(help_heading = OUTPUT, short, long, conflicts_with = "json")]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut worst = 0;
    for name in std::iter::once(&args.image.path).chain(&args.more) {
        worst = worst.max(run_one(args, &ImageArgs { path: name.clone(), ..args.image.clone() })?);
    }
    Ok(worst)
}

fn run_one(args: &Args, image_args: &ImageArgs) -> Outcome {
    let path = &image_args.path;
    let mut options = Options::default();
    (options.workers, options.content) = (args.workers, args.deep);
    let display = (!args.quiet).then(|| show_progress(&options)).flatten();
    let outcome = check_opened(image_args.open(), &options);
    drop(display);
    let (image, report) = match outcome {
        CheckOutcome::Complete(image, report) => (image, report),
        CheckOutcome::Stopped(image, report, error) => {
            if args.json {
                let mut object = to_json(path, &image, &report, args.deep);
                object["sound"] = false.into();
                object["refused"] = error.to_string().into();
                print_result(format_args!("{}", json_text(&object)))?;
            } else {
                print_findings(path, &image, &report);
            }
            message!("{}: {error}", Escaped::path(path));
            return Ok(OPERATIONAL_ERROR);
        }
        CheckOutcome::NotOpened(code, reason) => {
            if args.json {
                let object =
                    json!({ "image": path.to_string_lossy(), "sound": false, "refused": reason });
                print_result(format_args!("{}", json_text(&object)))?;
            }
            return Ok(code);
        }
    };
    if args.json {
        print_result(format_args!("{}", json_text(&to_json(path, &image, &report, args.deep))))?;
    } else {
        print_findings(path, &image, &report);
        if report.is_sound() && !args.quiet {
            print_summary(path, &report, args.deep)?;
        }
    }
    Ok(if report.is_sound() { 0 } else { ERRORS_LEFT })
}

fn show_progress(options: &Options) -> Option<Display> {
    let progress = Arc::clone(&options.progress);
    Display::on_terminal(move |bar| {
        bar.set_message(format!("{} files found", progress.inodes.get()));
    })
}

/// The result of [`check_opened`].
pub(crate) enum CheckOutcome {
    /// The check is complete.
    Complete(Box<Image>, Report),
    /// The check stopped at an error, for example a limit; the report has the findings until then.
    /// The caller prints both.
    Stopped(Box<Image>, Report, ferofs::Error),
    /// The image could not be opened. The reason is printed already; these are the exit code and
    /// the reason.
    NotOpened(u8, String),
}

/// Checks an image that was opened, or prints why that failed.
pub(crate) fn check_opened(opened: Result<Image, Failure>, options: &Options) -> CheckOutcome {
    let opened = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            message!("{failure}");
            let code = match () {
                () if failure.is_damage() => ERRORS_LEFT,
                () if failure.is_usage() => FSCK_USAGE,
                () => OPERATIONAL_ERROR,
            };
            return CheckOutcome::NotOpened(code, failure.to_string());
        }
    };
    let (report, result) = check_until_stopped(&opened, options);
    match result {
        Ok(()) => CheckOutcome::Complete(Box::new(opened), report),
        Err(error) => CheckOutcome::Stopped(Box::new(opened), report, error),
    }
}

/// Prints a line for each finding: the file, what is wrong, and where.
pub(crate) fn print_findings(path: &Path, image: &Image, report: &Report) {
    for line in report.lines(image.superblock().block_size) {
        message!("{}: {line}", Escaped::path(path));
    }
}

/// Prints a line of the result. If this fails, the check failed: its result is lost.
fn print_result(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    print_line!("{text}").map_err(|error| Failure::from(error).with_code(OPERATIONAL_ERROR))
}

fn print_summary(path: &Path, report: &Report, deep: bool) -> Result<(), Failure> {
    let (sound, content) = match deep {
        true => ("sound", format!(", {} decoded", human(report.content_bytes))),
        false => ("metadata sound; content not read (--deep)", String::new()),
    };
    let unreferenced = match report.unreferenced_blocks {
        0 => String::new(),
        blocks => format!(", {blocks} blocks unreferenced"),
    };
    print_result(format_args!(
        "{}: {sound}, {} files in {} directories{content}{unreferenced}",
        Escaped::path(path),
        report.inodes.saturating_sub(report.directories),
        report.directories,
    ))
}

fn to_json(path: &Path, image: &Image, report: &Report, deep: bool) -> serde_json::Value {
    let block_size = image.superblock().block_size;
    let list = |findings: &[Finding]| -> serde_json::Value {
        findings
            .iter()
            .map(|Finding { path, corruption, content, also, .. }| {
                json!({
                    "path": json_path(path),
                    "rule": corruption.fault.rule(),
                    "structure": corruption.structure.to_string(),
                    "message": corruption.fault.to_string(),
                    "position": corruption.pos.map(|pos| pos.get()),
                    "block": corruption.pos.map(|pos| pos.block(block_size).get()),
                    "nid": corruption.nid.map(|nid| nid.get()),
                    "content": content.as_ref().map(|content| [content.start, content.end]),
                    "also": also.as_deref().map(json_path),
                })
            })
            .collect()
    };
    json!({
        "image": path.to_string_lossy(),
        "sound": report.is_sound(),
        "content_read": deep,
        "inodes": report.inodes,
        "directories": report.directories,
        "content_bytes": report.content_bytes,
        "unreferenced_blocks": report.unreferenced_blocks,
        "findings": list(&report.findings),
        "warnings": list(&report.warnings),
        "unlisted": report.unlisted,
    })
}
