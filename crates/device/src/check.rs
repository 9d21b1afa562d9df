//! `check`: checks an image against the rules of the format. `verify`: checks each block of an
//! image against the root hash of dm-verity; `mount` reads through the same checks.

use std::path::{Path, PathBuf};

use ferofs::check::{Options, check_until_stopped};
use ferofs::escape::Escaped;
use ferofs::read::{FileSource, Image, Source};
use ferofs::verity::{Digest, Seal, VerifiedSource, appended_position, check_end, verify_all};

use crate::args::SealArgs;
use crate::failure::{About, Failure, Outcome, message, print, summary};

/// Checks each block of `image`.
pub(crate) fn verify(image: &Path, args: &SealArgs) -> Outcome {
    let source = FileSource::open(image, 0).about(image)?;
    let verified = OpenSeal::open(image, args)?.verified(source)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    verify_all(&verified, threads).about(image)?;
    summary("all blocks agree with the root hash")
}

/// The open file with the hash tree, which is not decoded yet.
pub(crate) struct OpenSeal {
    root: Digest,
    path: PathBuf,
    file: FileSource,
    /// `None`: after the image's last block.
    position: Option<u64>,
}

impl OpenSeal {
    /// Opens the file with the hash tree of `image`.
    pub(crate) fn open(image: &Path, args: &SealArgs) -> Result<Self, Failure> {
        let (path, position) = match &args.hash_file {
            Some(path) => (path.as_path(), Some(args.hash_offset.unwrap_or(0))),
            None => (image, args.hash_offset),
        };
        let file = FileSource::open(path, 0).about(path)?;
        Ok(Self { root: args.root, path: path.to_owned(), file, position })
    }

    /// Gives `image` the checks of the seal.
    pub(crate) fn verified<S: Source>(
        self,
        image: S,
    ) -> Result<VerifiedSource<S, FileSource>, Failure> {
        let position = match self.position {
            Some(position) => position,
            None => appended_position(&self.file).about(&self.path)?,
        };
        let seal = Seal::read(&self.file, position).about(&self.path)?;
        let verified = seal.verified(image, self.file, self.root).about(&self.path)?;
        check_end(&verified).about(&self.path)?;
        Ok(verified)
    }
}

/// Exit codes of fsck(8).
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;
pub(crate) const USAGE: u8 = 16;

/// Prints what is wrong with `image`. `deep`: decodes all data, too.
pub(crate) fn run(image: &Path, deep: bool) -> Outcome {
    let opened =
        FileSource::open(image, 0).and_then(Image::open).about(image).map_err(|failure| {
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
    let files = report.inodes.saturating_sub(report.directories);
    print(&format!(
        "{}: {sound}, {files} files in {} directories",
        Escaped::path(image),
        report.directories
    ))
    .map_err(|failure| failure.with_code(OPERATIONAL_ERROR))
}
