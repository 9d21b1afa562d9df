//! The files beside an image in which other programs look for its seal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ferofs::NewFile;
use ferofs::verity::Digest;

use crate::exit::{About, Concerning, Failure, warn};
use ferofs::escape::Escaped;

/// A program that looks for seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sidecar {
    /// NAME.verity with the hash tree and NAME.roothash with the root hash, for IMAGE NAME.raw
    Systemd,
    /// IMAGE.dmverity with the root hash and the position of the hash tree, which follows the image
    Containerd,
}

impl Sidecar {
    /// The file of the hash tree, if it is not in the image.
    pub(super) fn hash_file(self, image: &Path) -> Option<PathBuf> {
        (self == Self::Systemd).then(|| image.with_extension("verity"))
    }

    /// The file that names the root hash.
    pub(super) fn root_file(self, image: &Path) -> PathBuf {
        match self {
            Self::Systemd => image.with_extension("roothash"),
            Self::Containerd => {
                let mut name = OsString::from(image);
                name.push(".dmverity");
                name.into()
            }
        }
    }

    /// Writes the file that names the root hash.
    pub(super) fn write(self, image: &Path, root: Digest, position: u64) -> Result<(), Failure> {
        let text = match self {
            Self::Systemd => root.to_string(),
            Self::Containerd => {
                serde_json::json!({ "roothash": root.to_string(), "hashoffset": position })
                    .to_string()
            }
        };
        write(&self.root_file(image), &text)
    }
}

/// Warns of a seal beside `image`, which is about to change.
pub(in crate::cmd) fn warn_of_seal(image: &Path) -> Result<(), Failure> {
    let roots = [Sidecar::Systemd, Sidecar::Containerd].map(|sidecar| sidecar.root_file(image));
    let beside =
        Sidecar::Systemd.hash_file(image).into_iter().chain(roots).find(|path| path.exists());
    beside.map_or(Ok(()), |path| {
        let path = Escaped::path(&path);
        warn(format_args!(
            "{path}: is a seal of the image as it was: make it again (ferofs verity format)"
        ))
    })
}

/// Writes a file, which gets its name when it is complete.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;

    let mut file = NewFile::create(path).without_subject()?;
    file.write_all(text.as_bytes()).concerning(path)?;
    file.finish().without_subject()
}
