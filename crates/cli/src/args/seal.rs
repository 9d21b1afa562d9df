//! Arguments that name the seal of an image: the root hash, and where the hash tree is.

use std::path::{Path, PathBuf};

use ferofs::read::{FileSource, Source};
use ferofs::verity::{Digest, Seal, appended_position, check_end};

use crate::args::byte_size;
use crate::exit::{About, Failure};

#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct SealArgs {
    /// Verify each block of the image when it is read, against this root hash: 64 or 128 hexadecimal digits, as `ferofs verity
    /// format` and veritysetup print them
    #[arg(long = "roothash", value_name = "HEX")]
    pub(crate) root: Option<Digest>,

    /// File with the hash tree [default: the image itself]
    #[arg(long, value_name = "FILE", requires = "root")]
    pub(crate) hash_file: Option<PathBuf>,

    /// Position of the hash tree's superblock in its file, in bytes [default: after the image's last block; 0 with --hash-file]
    #[arg(long, value_name = "BYTES", requires = "root", value_parser = byte_size::argument::<u64>)]
    pub(crate) hash_offset: Option<u64>,
}

/// The open file with the hash tree, which is not decoded yet.
pub(crate) struct OpenSeal {
    root: Digest,
    path: PathBuf,
    file: FileSource,
    /// `None`: after the image's last block.
    position: Option<u64>,
}

impl SealArgs {
    /// Opens the file with the hash tree. The image is at `image`, `offset` bytes after the start of its file.
    pub(crate) fn open(&self, image: &Path, offset: u64) -> Result<Option<OpenSeal>, Failure> {
        let Some(root) = self.root else { return Ok(None) };
        let (path, start, position) = match &self.hash_file {
            Some(path) => (path.as_path(), 0, Some(self.hash_offset.unwrap_or(0))),
            None => (image, offset, self.hash_offset),
        };
        let file = FileSource::open(path, start).map_err(Failure::without_subject)?;
        Ok(Some(OpenSeal { root, path: path.to_owned(), file, position }))
    }
}

impl OpenSeal {
    /// Gives `image` the checks of the seal.
    pub(crate) fn verified<S: Source + 'static>(self, image: S) -> Result<impl Source + 'static, Failure> {
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
