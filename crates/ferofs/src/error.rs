//! The error of this crate's operations. Errors of its parts become variants that programs can
//! match, or [`Error::Other`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ferofs_read::escape::Escaped;
pub use ferofs_read::{Corruption, IoError, LimitKind};
#[cfg(feature = "patch")]
pub use ferofs_update::{AfterFailure, PatchFault};

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The image breaks a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The image may be sound but needs what this version does not have.
    #[error("unsupported: {0}")]
    Unsupported(Corruption),
    /// Reading the image takes more than an image of its size may need: it is damaged, or made to
    /// exhaust its reader.
    #[error("{what} (limit {limit}; --work-limit raises it)")]
    Limit {
        /// The quantity that exceeds its limit.
        what: LimitKind,
        /// The limit.
        limit: u64,
    },
    /// An option's value is out of its range, or options exclude each other.
    #[error("{option}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The reason.
        problem: &'static str,
    },
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
    /// Another failure.
    #[error("{source}")]
    #[non_exhaustive]
    Other {
        /// What failed.
        kind: OtherKind,
        /// The failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What failed in an [`Error::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherKind {
    /// The image has no file of this name.
    NotFound,
    /// A file of the image has another type than the operation needs, or too many symbolic links
    /// lead to it.
    Path,
    /// An image cannot be built from its source.
    Build,
    /// A change of an image, such as a patch.
    Change,
    /// A setting is unknown or invalid.
    Setting,
    /// A seal cannot be made or used.
    Seal,
    /// The image does not agree with its hash tree: a block has another digest, or bytes are
    /// missing.
    Unverified,
    /// fakeroot or another library shows other owners, and this program cannot see them.
    Preload,
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

    /// A failure without a variant of its own.
    fn other(kind: OtherKind, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Other { kind, source: Box::new(error) }
    }

    /// The failure of threads.
    pub(crate) fn of_threads(error: ferofs_threads::Error) -> Self {
        match error {
            ferofs_threads::Error::NotStarted(source) => {
                IoError::unnamed("start a thread", source).into()
            }
            ferofs_threads::Error::Ended => Self::Interrupted,
        }
    }

    /// Whether all further work on the image fails in the same way: it was cancelled, a limit was
    /// reached, or there is no memory.
    #[must_use]
    pub fn ends_all(&self) -> bool {
        match self {
            Self::Interrupted | Self::Limit { .. } => true,
            Self::Io(error) => error.source.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    /// The broken rule of the format, if the image is the cause.
    #[must_use]
    pub const fn corruption(&self) -> Option<&Corruption> {
        match self {
            Self::Corrupt(corruption) | Self::Unsupported(corruption) => Some(corruption),
            _ => None,
        }
    }
}

impl From<ferofs_read::Error> for Error {
    fn from(error: ferofs_read::Error) -> Self {
        use ferofs_read::Error as Read;
        match error {
            Read::Io(error) => Self::Io(error),
            Read::Corrupt(corruption) => Self::Corrupt(corruption),
            Read::Unsupported(corruption) => Self::Unsupported(corruption),
            Read::Limit { what, limit } => Self::Limit { what, limit },
            Read::Option { option, problem } => Self::Option { option, problem },
            Read::Interrupted => Self::Interrupted,
            Read::NotFound(_) => Self::other(OtherKind::NotFound, error),
            error => Self::other(OtherKind::Path, error),
        }
    }
}

impl From<ferofs_verity::Error> for Error {
    fn from(error: ferofs_verity::Error) -> Self {
        use ferofs_verity::Error as Verity;
        match error {
            Verity::Io(error) => Self::Io(error),
            Verity::Threads(error) => Self::of_threads(error),
            Verity::Integrity(_) | Verity::Short { .. } => {
                Self::other(OtherKind::Unverified, error)
            }
            error => Self::other(OtherKind::Seal, error),
        }
    }
}

#[cfg(feature = "host")]
impl From<ferofs_host::PreloadError> for Error {
    fn from(error: ferofs_host::PreloadError) -> Self {
        Self::other(OtherKind::Preload, error)
    }
}

#[cfg(feature = "build")]
impl From<ferofs_write::Error> for Error {
    fn from(error: ferofs_write::Error) -> Self {
        use ferofs_write::Error as Write;
        match error {
            Write::Io(error) => Self::Io(error),
            Write::Threads(error) => Self::of_threads(error),
            Write::Read(error) => error.into(),
            Write::Preload(error) => error.into(),
            Write::Option { option, problem } => Self::Option { option, problem },
            Write::SourceChanged(path) => Self::SourceChanged(path),
            Write::Interrupted => Self::Interrupted,
            #[cfg(feature = "patch")]
            Write::Patch(fault) => Self::Patch(fault),
            #[cfg(feature = "patch")]
            Write::Apply(error) => error.into(),
            Write::Settings(_) | Write::Params(_) => Self::other(OtherKind::Setting, error),
            error => Self::other(OtherKind::Build, error),
        }
    }
}

#[cfg(feature = "patch")]
impl From<ferofs_update::Error> for Error {
    fn from(error: ferofs_update::Error) -> Self {
        use ferofs_update::Error as Patch;
        match error {
            Patch::Io(error) => Self::Io(error),
            Patch::Threads(error) => Self::of_threads(error),
            Patch::Read(error) => error.into(),
            Patch::Patch(fault) => Self::Patch(fault),
            Patch::Interrupted => Self::Interrupted,
            error => Self::other(OtherKind::Change, error),
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
