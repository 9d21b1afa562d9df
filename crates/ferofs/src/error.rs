//! The error of this crate's operations. It wraps those of reading and building.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(feature = "patch")]
pub use ferofs_patch::{AfterFailure, PatchFault};
use ferofs_read::escape::Escaped;
pub use ferofs_read::{Corruption, IoError};

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An image could not be read.
    #[error(transparent)]
    Read(ferofs_read::Error),
    /// fakeroot or another library shows other owners, and this program cannot see them.
    #[cfg(feature = "host")]
    #[error(transparent)]
    Preload(#[from] ferofs_host::PreloadError),
    /// An image could not be built.
    #[cfg(feature = "build")]
    #[error(transparent)]
    Build(ferofs_write::Error),
    /// A seal cannot be made or used, or a block does not have the digest that it promises.
    #[error(transparent)]
    Verity(#[from] ferofs_verity::Error),
    /// An extended attribute could not be set.
    #[error("{}: set attribute {name}: {source}", Escaped::path(path))]
    Xattr {
        /// The file concerned.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// An extended attribute that cannot be set at the target, by this user or on this file system.
    #[error("{}{}: attribute {name} is lost: {source}", Escaped::path(path), AndMore(*files))]
    XattrLost {
        /// The first file without it.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The number of files without it.
        files: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Hard links that the target refuses: these files are copies.
    #[error("{}{}: copied instead of linked: {source}", Escaped::path(path), AndMore(*files))]
    LinksCopied {
        /// The first copy.
        path: PathBuf,
        /// The number of copies.
        files: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A source file changed while it was read.
    #[error("{}: changed while being read", Escaped::path(.0))]
    SourceChanged(PathBuf),
    /// A socket: tar has no type for it.
    #[error("{}: a socket is left out of the archive", Escaped::path(.0))]
    SocketInTar(PathBuf),
    /// A glob pattern is invalid.
    #[error("pattern {pattern}: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason why it is invalid.
        problem: String,
    },
    /// A patch, or an image's history, cannot be used.
    #[cfg(feature = "patch")]
    #[error(transparent)]
    Patch(#[from] PatchFault),
    /// A patch could not be applied, or another change of an image failed.
    #[cfg(feature = "patch")]
    #[error(transparent)]
    Apply(ferofs_patch::Error),
    /// A signature cannot be made, or is refused.
    #[cfg(feature = "signature")]
    #[error("{}: {problem}", Escaped::path(path))]
    Signature {
        /// The signature, the key or the certificate at fault.
        path: PathBuf,
        /// The reason.
        problem: SignatureProblem,
    },
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// Why a signature cannot be made, or is refused.
#[cfg(feature = "signature")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureProblem {
    /// The file is not what it should be.
    #[error("{0}")]
    Not(&'static str),
    /// A certificate that openssl does not take, and why.
    #[error("no sound certificate: {0}")]
    BadCertificate(String),
    /// The key of a certificate is too short.
    #[error("the key is too weak: {name} with {bits} bits, at least {needed} are needed")]
    WeakKey {
        /// The algorithm, as openssl names it.
        name: String,
        /// Its bits.
        bits: u32,
        /// The bits that such a key must have.
        needed: u32,
    },
    /// Collisions are known for the digest, or it is too short.
    #[error("the digest {0} is too weak")]
    WeakDigest(String),
    /// The key does not belong to this certificate.
    #[error("not the key of the certificate {}", Escaped::path(.0))]
    OtherKey(PathBuf),
    /// There is no program `openssl`.
    #[error("signatures need openssl, which is not installed")]
    NoOpenSsl,
    /// openssl failed with this message, for example because the signature is wrong.
    #[error("{0}")]
    OpenSsl(String),
}

impl Error {
    /// An I/O failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io(IoError::new(action, path, source))
    }

    /// A failure of a signature, a key or a certificate in the file `path`.
    #[cfg(feature = "signature")]
    pub(crate) fn signature(path: &Path, problem: SignatureProblem) -> Self {
        Self::Signature { path: path.to_owned(), problem }
    }

    /// Whether all further work on the image fails in the same way: it was cancelled, a limit was
    /// reached, or there is no memory.
    #[must_use]
    pub fn ends_all(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Io(error) => error.source.kind() == io::ErrorKind::OutOfMemory,
            Self::Read(error) => error.ends_all(),
            _ => false,
        }
    }

    /// The broken rule of the format, if the image is the cause.
    #[must_use]
    pub const fn corruption(&self) -> Option<&Corruption> {
        match self {
            Self::Read(error) => error.corruption(),
            _ => None,
        }
    }
}

/// I/O errors and interruptions of all crates become the same variants here, so that callers match
/// one.
impl From<ferofs_read::Error> for Error {
    fn from(error: ferofs_read::Error) -> Self {
        match error {
            ferofs_read::Error::Io(error) => Self::Io(error),
            ferofs_read::Error::Interrupted => Self::Interrupted,
            error => Self::Read(error),
        }
    }
}

#[cfg(feature = "build")]
impl From<ferofs_write::Error> for Error {
    fn from(error: ferofs_write::Error) -> Self {
        match error {
            ferofs_write::Error::Io(error) => Self::Io(error),
            ferofs_write::Error::Interrupted => Self::Interrupted,
            ferofs_write::Error::SourceChanged(path) => Self::SourceChanged(path),
            ferofs_write::Error::Read(error) => Self::Read(error),
            ferofs_write::Error::Preload(error) => Self::Preload(error),
            #[cfg(feature = "patch")]
            ferofs_write::Error::Patch(fault) => Self::Patch(fault),
            #[cfg(feature = "patch")]
            ferofs_write::Error::Apply(error) => Self::Apply(error),
            error => Self::Build(error),
        }
    }
}

#[cfg(feature = "patch")]
impl From<ferofs_patch::Error> for Error {
    fn from(error: ferofs_patch::Error) -> Self {
        match error {
            ferofs_patch::Error::Io(error) => Self::Io(error),
            ferofs_patch::Error::Interrupted => Self::Interrupted,
            ferofs_patch::Error::Read(error) => Self::Read(error),
            ferofs_patch::Error::Patch(fault) => Self::Patch(fault),
            error => Self::Apply(error),
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
            ferofs_threads::Error::NotStarted(source) => {
                IoError::unnamed("start a thread", source).into()
            }
            ferofs_threads::Error::Ended => Self::Interrupted,
        }
    }
}

/// The files after the first one.
struct AndMore(u64);

impl fmt::Display for AndMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.saturating_sub(1) {
            0 => Ok(()),
            1 => f.write_str(" and 1 more file"),
            files => write!(f, " and {files} more files"),
        }
    }
}
