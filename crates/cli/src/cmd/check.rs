//! `ferofs check`: an image held against the format's rules.

use std::num::NonZeroUsize;
use std::path::Path;

use ferofs::check::{Finding, Options, Report, check, rule};
use serde_json::json;

use super::image::ImageArgs;
use crate::exit::Outcome;

/// Exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;

/// Check an image
///
/// Every inode, directory, attribute and map is looked at, and all content is decoded. Exit codes are
/// those of fsck(8): 0 the image is sound, 4 it is not, 8 it could not be read, 2 wrong usage.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Look at the maps of files, but do not decode their content
    #[arg(long)]
    no_content: bool,

    /// Report as one JSON object
    #[arg(long)]
    json: bool,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = Options { workers: args.workers, content: !args.no_content };
    let report = match examine(&args.image, &options)? {
        Examined::Opened(report) => report,
        Examined::Refused(code) => return Ok(code),
    };
    if args.json {
        println!("{}", to_json(&report));
    } else {
        print_findings(&args.image.path, &report);
    }
    Ok(if report.findings.is_empty() { 0 } else { ERRORS_LEFT })
}

/// How far a check came.
pub(crate) enum Examined {
    /// To a report.
    Opened(Report),
    /// The image could not even be opened: that was printed, and this is the exit code.
    Refused(u8),
}

/// Opens an image and checks it.
pub(crate) fn examine(image: &ImageArgs, options: &Options) -> Result<Examined, crate::exit::Failure> {
    let opened = match image.open() {
        Ok(opened) => opened,
        Err(failure) => {
            eprintln!("ferofs: {failure}");
            let code = if failure.is_damage() { ERRORS_LEFT } else { OPERATIONAL_ERROR };
            return Ok(Examined::Refused(code));
        }
    };
    match check(&opened, options) {
        Ok(report) => Ok(Examined::Opened(report)),
        Err(error) => {
            eprintln!("ferofs: {}: {error}", image.path.display());
            Ok(Examined::Refused(OPERATIONAL_ERROR))
        }
    }
}

/// Prints a line for each finding.
pub(crate) fn print_findings(image: &Path, report: &Report) {
    for Finding { path, corruption } in &report.findings {
        eprintln!("ferofs: {}: /{}: {corruption}", image.display(), path.display());
    }
}

fn to_json(report: &Report) -> serde_json::Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|Finding { path, corruption }| {
            json!({
                "path": format!("/{}", path.display()),
                "rule": rule(&corruption.fault),
                "structure": corruption.structure.to_string(),
                "message": corruption.fault.to_string(),
                "position": corruption.pos.map(|pos| pos.get()),
                "nid": corruption.nid.map(|nid| nid.get()),
            })
        })
        .collect();
    json!({
        "sound": report.findings.is_empty(),
        "inodes": report.inodes,
        "content_bytes": report.content_bytes,
        "findings": findings,
    })
}
