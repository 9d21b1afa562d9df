//! `check`: checks an image against the rules of the format.

use std::path::Path;

use ferofs::check::{Options, check_until_stopped};
use ferofs::escape::Escaped;
use ferofs::read::{FileSource, Image};

use crate::failure::{About, Failure, Outcome, message, print};

/// Exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;
pub(crate) const USAGE: u8 = 16;

/// Prints what is wrong with `image`. `deep`: decodes all data, too.
pub(crate) fn run(image: &Path, deep: bool) -> Outcome {
    let opened = FileSource::open(image, 0).and_then(Image::open).about(image).map_err(|failure| {
        let code = if failure.is_damage() { ERRORS_LEFT } else { OPERATIONAL_ERROR };
        failure.with_code(code)
    })?;
    let mut options = Options::default();
    options.content = deep;
    let (report, result) = check_until_stopped(&opened, &options);
    for line in report.lines(opened.superblock().block_size) {
        message(&format_args!("{}: {line}", Escaped::path(image)));
    }
    result.map_err(|error| Failure::about(image, error).with_code(OPERATIONAL_ERROR))?;
    if !report.is_sound() {
        return Ok(ERRORS_LEFT);
    }
    let sound = if deep { "sound" } else { "metadata sound; content not read (--deep)" };
    print(&format!("{}: {sound}, {} inodes", Escaped::path(image), report.inodes))
        .map_err(|failure| failure.with_code(OPERATIONAL_ERROR))
}
