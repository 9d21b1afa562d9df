//! `verify`: checks each block of an image against the root hash of dm-verity. `mount` reads through the same checks.

use std::path::{Path, PathBuf};

use ferofs::read::{FileSource, Source};
use ferofs::verity::{Digest, Seal, VerifiedSource, appended_position, check_end, verify_all};

use crate::args::SealArgs;
use crate::failure::{About, Failure, Outcome, summary};

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
    pub(crate) fn verified<S: Source>(self, image: S) -> Result<VerifiedSource<S, FileSource>, Failure> {
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
