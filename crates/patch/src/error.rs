//! The error of this crate. It wraps that of reading.

mod fault;

use std::io;
use std::path::{Path, PathBuf};

pub use self::fault::PatchFault;
use ferofs_format::FormatError;
use ferofs_read::Corruption;
use ferofs_read::escape::PathPrefix;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation with a patch or an image's history failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the operating system failed.
    #[error("{}{action}: {source}", PathPrefix(path.as_deref()))]
    Io {
        /// The operation, as a verb: "open", "read".
        action: &'static str,
        /// The file concerned, if it has a name.
        path: Option<PathBuf>,
        /// The system's error.
        source: io::Error,
    },
    /// An image could not be read.
    #[error(transparent)]
    Read(ferofs_read::Error),
    /// A patch, or an image's history, cannot be used.
    #[error(transparent)]
    Patch(#[from] PatchFault),
    /// The format cannot express a value of the image.
    #[error("the image cannot be written: {0}")]
    Layout(#[from] FormatError),
    /// A compressor does not support the parameters in the patch.
    #[error("{0}")]
    Params(#[from] ferofs_codec::ParamsError),
    /// A compressor failed.
    #[error("compressing failed: {0}")]
    Encode(#[from] ferofs_codec::EncodeError),
    /// A later patch of a file with several patches cannot be used. The image is in the state after the ones before it that fit.
    #[error("patch {number} of the file: {cause} ({applied} before it are applied)")]
    InSequence {
        /// The number of the patch in the file, from 1 on.
        number: usize,
        /// The number of patches before it that were applied.
        applied: u64,
        /// The reason.
        cause: Box<Error>,
    },
    /// A change of an image failed after its first write.
    #[error("{cause}; {image}")]
    Unfinished {
        /// Why it failed.
        cause: Box<Error>,
        /// The state of the image now.
        image: AfterFailure,
    },
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// The state of an image after a change that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AfterFailure {
    /// All writes were undone.
    #[error("the image is as before")]
    Unchanged,
    /// The superblock is the old one. What was written stays, so that the same change continues there.
    #[error(
        "the image shows the old tree; the same command continues where this one stopped, and `repair` removes \
         what was written"
    )]
    Resumable,
    /// The superblock is the old one, but other writes could not be undone.
    #[error(
        "the image shows the old tree; bytes that it does not use were written and could not be restored: the next change \
         of the image, or `repair`, removes them"
    )]
    Leftovers,
    /// Writing the superblock's sector failed, and writing the old one back failed, too.
    #[error("the superblock may be the old one, the new one, or damaged: `repair` restores a damaged one")]
    UncertainSuperblock,
}

impl Error {
    /// An I/O failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: Some(path.as_ref().to_owned()), source: source.into() }
    }

    /// An I/O failure of `action` on something without a name.
    pub fn io_unnamed(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: None, source: source.into() }
    }

    /// Whether the error is about the file with the patch, not about the image.
    #[must_use]
    pub const fn is_about_patch(&self) -> bool {
        match self {
            Self::InSequence { .. } => true,
            Self::Patch(fault) => matches!(
                fault,
                PatchFault::NotAPatch
                    | PatchFault::Version(_)
                    | PatchFault::Length { .. }
                    | PatchFault::Damaged
                    | PatchFault::Malformed(_)
            ),
            _ => false,
        }
    }

    /// This failure of a change, with the state of the image after it.
    pub(crate) fn unfinished(self, image: AfterFailure) -> Self {
        Self::Unfinished { cause: Box::new(self), image }
    }
}

/// I/O errors and interruptions of all crates become the same variants here, so that callers match one.
impl From<ferofs_read::Error> for Error {
    fn from(error: ferofs_read::Error) -> Self {
        match error {
            ferofs_read::Error::Io { action, path, source } => Self::Io { action, path, source },
            ferofs_read::Error::Interrupted => Self::Interrupted,
            error => Self::Read(error),
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Read(corruption.into())
    }
}

impl From<ferofs_threads::Error> for Error {
    fn from(error: ferofs_threads::Error) -> Self {
        match error {
            ferofs_threads::Error::NotStarted(source) => Self::io_unnamed("start a thread", source),
            ferofs_threads::Error::Ended => Self::Interrupted,
        }
    }
}
