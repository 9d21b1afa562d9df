//! Arguments that name the seal of an image: the root hash, and where the hash tree is.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use ferofs::read::{FileSource, Source};
use ferofs::verity::{Digest, ParseDigestError, Seal, appended_position, check_end};

use crate::args::{IMAGE, byte_size};
use crate::exit::{About, Failure};

/// The options that give the root hash.
const ROOT: &str = "root-hash";
/// The longest file with a root hash, in bytes. With a line break, it has at most 129.
const ROOT_FILE_MAX: u64 = 1024;

#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct SealArgs {
    /// Verify each block that is read, against this root hash
    ///
    /// 64 or 128 hexadecimal digits, as `ferofs verity format` and veritysetup print them.
    #[arg(help_heading = IMAGE, long = "roothash", value_name = "HEX", group = ROOT)]
    pub(crate) root: Option<Digest>,

    /// The same, with the root hash in a file
    ///
    /// `--roothash-file` of `ferofs build` and of `ferofs verity format` writes such a file.
    #[arg(help_heading = IMAGE, long = "roothash-file", value_name = "FILE", group = ROOT, value_parser = root_file())]
    pub(crate) root_of_file: Option<Digest>,

    /// File with the hash tree [default: the image itself]
    #[arg(help_heading = IMAGE, hide_short_help = true, long, value_name = "FILE", requires = ROOT)]
    pub(crate) hash_file: Option<PathBuf>,

    /// Position of the hash tree's superblock in its file, in bytes [default: after the image's
    /// last block; 0 with --hash-file]
    #[arg(help_heading = IMAGE, hide_short_help = true, long, value_name = "BYTES", requires = ROOT, value_parser = byte_size::argument::<u64>)]
    pub(crate) hash_offset: Option<u64>,
}

/// The root hash of a command that needs one.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RootArgs {
    /// The root hash: 64 or 128 hexadecimal digits
    roothash: Option<Digest>,

    /// The same, in a file
    ///
    /// `--roothash-file` of `ferofs build` and of `ferofs verity format` writes such a file.
    #[arg(long, value_name = "FILE", value_parser = root_file())]
    roothash_file: Option<Digest>,
}

impl RootArgs {
    pub(crate) fn root(&self) -> Result<Digest, Failure> {
        // The parser wants one of them.
        self.roothash
            .or(self.roothash_file)
            .ok_or_else(|| Failure::complete("no root hash is given"))
    }
}

/// The open file with the hash tree, which is not decoded yet.
pub(crate) struct OpenSeal {
    root: Digest,
    path: PathBuf,
    file: FileSource,
    /// `None`: after the image's last block.
    position: Option<u64>,
}

/// Reads a file with a root hash. A process of a mount takes what the first one has read.
pub(crate) fn read_root(path: &Path) -> Result<Digest, String> {
    #[cfg(target_os = "linux")]
    if let Some(root) = super::hidden::root_hash() {
        return root.parse().map_err(|error: ParseDigestError| error.to_string());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(ROOT_FILE_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    text.trim_end().parse().map_err(|error: ParseDigestError| error.to_string())
}

fn root_file() -> impl TypedValueParser<Value = Digest> {
    OsStringValueParser::new().try_map(|path| read_root(path.as_ref()))
}

impl SealArgs {
    pub(crate) fn root(&self) -> Option<Digest> {
        self.root.or(self.root_of_file)
    }

    /// Opens the file with the hash tree. The image is at `image`, `offset` bytes after the start
    /// of its file.
    pub(crate) fn open(&self, image: &Path, offset: u64) -> Result<Option<OpenSeal>, Failure> {
        let Some(root) = self.root() else { return Ok(None) };
        let (path, start, position) = match &self.hash_file {
            Some(path) => (path.as_path(), 0, Some(self.hash_offset.unwrap_or(0))),
            None => (image, offset, self.hash_offset),
        };
        let file = FileSource::open(path, start).without_subject()?;
        Ok(Some(OpenSeal { root, path: path.to_owned(), file, position }))
    }
}

impl OpenSeal {
    /// Gives `image` the checks of the seal.
    pub(crate) fn verified<S: Source + 'static>(
        self,
        image: S,
    ) -> Result<impl Source + 'static, Failure> {
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
