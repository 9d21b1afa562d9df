//! The errors of seals.

use std::io;

use ferofs_read::IoError;

/// The result of work with a seal.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a seal cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A parameter is out of its range.
    #[error("{parameter}: {problem}")]
    Parameter {
        /// The parameter.
        parameter: &'static str,
        /// The problem, and the valid values.
        problem: &'static str,
    },
    /// The superblock before a hash tree is not sound.
    #[error("verity superblock: {0}")]
    Superblock(&'static str),
    /// A file ends before what it should have: it was probably cut off.
    #[error(
        "{what} ends at byte {need} or later, but the file at byte {have}: it is cut off, so copy it again, or it is not the file of \
         this seal"
    )]
    Short {
        /// The part that is missing, in whole or in part.
        what: &'static str,
        /// Bytes that the file would need.
        need: u64,
        /// Bytes of the file.
        have: u64,
    },
    /// A file that ends where its hash tree would start.
    #[error(
        "no hash tree follows the image: it was never sealed, its tree is in another file (--hash-file), or it is cut off after its last block"
    )]
    NoTree,
    /// The file is not an EROFS image.
    #[error("no superblock of EROFS")]
    NoImage,
    /// Bytes do not have the digest that the tree promises.
    #[error(transparent)]
    Integrity(#[from] IntegrityError),
    /// The threads did not do their work.
    #[error(transparent)]
    Threads(#[from] ferofs_threads::Error),
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| IoError::unnamed(action, source).into()
    }

    /// The error of a read of a source that may verify its bytes.
    pub(crate) fn of_read(action: &'static str, error: io::Error) -> Self {
        match error.get_ref().and_then(|error| error.downcast_ref::<IntegrityError>()) {
            Some(integrity) => Self::Integrity(*integrity),
            None => Self::io(action)(error),
        }
    }
}

/// For sources that verify their bytes. An [`IntegrityError`] stays one, and an error of the system
/// keeps its kind.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Integrity(error) => error.into(),
            Error::Io(IoError { ref source, .. }) => Self::new(source.kind(), error),
            error => Self::other(error),
        }
    }
}

/// A block does not have the digest that the hash tree promises: the block or the tree was changed.
///
/// Reads of a [`crate::VerifiedSource`] return it within an [`io::Error`] of the kind
/// `InvalidData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} block {block} (byte {position}) does not have the digest of the hash tree", if *.is_hash { "hash" } else { "data" })]
#[non_exhaustive]
pub struct IntegrityError {
    /// It is a block of the tree, not of the image.
    pub is_hash: bool,
    /// The block's number in the image or in the tree.
    pub block: u64,
    /// The position of its first byte in the image or in the tree.
    pub position: u64,
}

impl IntegrityError {
    /// The error within `error`, if it has one.
    #[must_use]
    pub fn within(error: &ferofs_read::Error) -> Option<&Self> {
        match error {
            ferofs_read::Error::Io(error) => error.source.get_ref()?.downcast_ref(),
            _ => None,
        }
    }
}

impl From<IntegrityError> for io::Error {
    fn from(error: IntegrityError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
