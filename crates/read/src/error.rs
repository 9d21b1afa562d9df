//! The error of reading an image: I/O, a corrupt image, an image that needs what this version does
//! not have, or a wrong request.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::escape::{Escaped, PathPrefix};
use ferofs_format::{BytePos, Fault, FormatError, Nid, Structure};

/// The result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be read.
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
    /// A name that does not exist.
    #[error("{}: no such file or directory", Escaped::path(.0))]
    NotFound(PathBuf),
    /// A path through something that is not a directory.
    #[error("{}: not a directory", Escaped::path(.0))]
    NotADirectory(PathBuf),
    /// A read of content from something that is not a regular file.
    #[error("{}: not a regular file", Escaped::path(.0))]
    NotAFile(PathBuf),
    /// More symbolic links than a lookup follows.
    #[error("{}: too many levels of symbolic links", Escaped::path(.0))]
    TooManyLinks(PathBuf),
    /// An option's value is out of its range.
    #[error("{option}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The problem, and the valid values.
        problem: &'static str,
    },
    /// Reading the image takes more than an image of its size may need: it is damaged, or made to
    /// exhaust its reader.
    #[error("{what} (limit {limit}; --work-limit raises it)")]
    Limit {
        /// The quantity that exceeds its limit.
        what: LimitKind,
        /// The limit.
        limit: u64,
    },
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// The operating system refused something.
#[derive(Debug, thiserror::Error)]
#[error("{}{action}: {source}", PathPrefix(path.as_deref()))]
#[non_exhaustive]
pub struct IoError {
    /// The operation, as a verb: "open", "read".
    pub action: &'static str,
    /// The file concerned, if it has a name.
    pub path: Option<PathBuf>,
    /// The reason.
    pub source: io::Error,
}

impl IoError {
    /// The failure of `action` on the file `path`.
    pub fn new(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::unnamed(action, source).about(path)
    }

    /// The failure of `action` on something without a name.
    pub fn unnamed(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self { action, path: None, source: source.into() }
    }

    /// Adds the file concerned, unless it is known.
    #[must_use]
    pub fn about(mut self, path: impl AsRef<Path>) -> Self {
        self.path.get_or_insert_with(|| path.as_ref().to_owned());
        self
    }
}

impl Error {
    /// The system could not read the image.
    pub(crate) fn unreadable(source: io::Error) -> Self {
        IoError::unnamed("read image", source).into()
    }

    /// Whether all further work on the image fails in the same way: it was cancelled, a limit is
    /// reached, or there is no memory.
    #[must_use]
    pub fn ends_all(&self) -> bool {
        match self {
            Self::Interrupted | Self::Limit { .. } => true,
            Self::Io(error) => error.source.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    /// The broken rule, when the image is to blame.
    #[must_use]
    pub const fn corruption(&self) -> Option<&Corruption> {
        match self {
            Self::Corrupt(corruption) | Self::Unsupported(corruption) => Some(corruption),
            _ => None,
        }
    }
}

/// A quantity with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Reads of metadata, decoding and copying.
    Work,
    /// Names in directories, and other things that are kept in memory while a command runs.
    Names,
    /// The work of one request.
    Request,
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Work => "the image causes more work than an image of its size may need",
            Self::Names => {
                "the image has more directory entries than an image of its size can have"
            }
            Self::Request => "one request causes more work than a request may need",
        })
    }
}

/// A broken rule, and its position in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The structure that is malformed.
    pub structure: Structure,
    /// The rule.
    pub fault: Fault,
    /// The position in the image, if it has one.
    pub pos: Option<BytePos>,
    /// The inode concerned.
    pub nid: Option<Nid>,
}

impl std::error::Error for Corruption {}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.structure, self.fault)?;
        match (self.nid, self.pos) {
            (Some(nid), Some(pos)) => write!(f, " ({nid}, {pos})"),
            (Some(nid), None) => write!(f, " ({nid})"),
            (None, Some(pos)) => write!(f, " ({pos})"),
            (None, None) => Ok(()),
        }
    }
}

impl Corruption {
    /// A broken rule without a place yet.
    #[must_use]
    pub const fn new(structure: Structure, fault: Fault) -> Self {
        Self { structure, fault, pos: None, nid: None }
    }

    /// Whether there is no EROFS image at the place where it was looked for.
    #[must_use]
    pub const fn is_no_image(&self) -> bool {
        matches!(self.fault, Fault::Magic(_))
    }

    /// Adds the position, unless a more precise one is known.
    #[must_use]
    pub const fn at(mut self, pos: BytePos) -> Self {
        if self.pos.is_none() {
            self.pos = Some(pos);
        }
        self
    }

    /// Adds the inode, unless a more precise one is known.
    #[must_use]
    pub const fn of(mut self, nid: Nid) -> Self {
        if self.nid.is_none() {
            self.nid = Some(nid);
        }
        self
    }
}

impl From<FormatError> for Corruption {
    fn from(error: FormatError) -> Self {
        Self::new(error.structure, error.fault)
    }
}

/// Gives a format error its place in the image.
#[doc(hidden)]
pub trait Locate<T> {
    /// The structure starts at `base` in the image.
    fn located_at(self, base: BytePos) -> Result<T>;
    /// The structure belongs to `nid`, somewhere without a position of its own.
    fn located_in(self, nid: Nid) -> Result<T>;
}

impl<T> Locate<T> for Result<T, FormatError> {
    fn located_at(self, base: BytePos) -> Result<T> {
        self.map_err(|error| {
            let pos = base.checked_add(error.offset).unwrap_or(base);
            let unsupported = error.fault.is_unsupported();
            let corruption = Corruption::from(error).at(pos);
            if unsupported { Error::Unsupported(corruption) } else { Error::Corrupt(corruption) }
        })
    }

    fn located_in(self, nid: Nid) -> Result<T> {
        self.map_err(|error| Corruption::from(error).of(nid).into())
    }
}

/// Adds the inode to errors of deeper layers.
pub(crate) trait OfInode<T> {
    /// The failure concerns `nid`.
    fn of_inode(self, nid: Nid) -> Result<T>;
}

impl<T> OfInode<T> for Result<T> {
    fn of_inode(self, nid: Nid) -> Result<T> {
        self.map_err(|error| match error {
            Error::Corrupt(corruption) => Error::Corrupt(corruption.of(nid)),
            Error::Unsupported(corruption) => Error::Unsupported(corruption.of(nid)),
            other => other,
        })
    }
}
