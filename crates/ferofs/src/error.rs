//! The one error of this crate: I/O, a corrupt image, an image beyond us, or the caller's mistake.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::escape::Escaped;
use ferofs_format::{BytePos, Fault, FormatError, Nid, Structure};

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{}{action}: {source}", PathPrefix(path.as_deref()))]
    Io {
        /// What was tried, as a verb: "open", "read".
        action: &'static str,
        /// The file concerned, if it has a name.
        path: Option<PathBuf>,
        /// The reason.
        source: io::Error,
    },
    /// An extended attribute could not be set.
    #[error("{}: set attribute {name}: {source}", Escaped::path(path))]
    Xattr {
        /// The file concerned.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The image breaks a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The image may be sound but needs what this version does not have.
    #[error("unsupported: {0}")]
    Unsupported(Corruption),
    /// A name that does not exist.
    #[error("{}: no such file or directory", Escaped::path(.0))]
    NotFound(PathBuf),
    /// A path through something that is no directory.
    #[error("{}: not a directory", Escaped::path(.0))]
    NotADirectory(PathBuf),
    /// Content was asked of something that is no regular file.
    #[error("{}: not a regular file", Escaped::path(.0))]
    NotAFile(PathBuf),
    /// More symbolic links than a lookup follows.
    #[error("{}: too many levels of symbolic links", Escaped::path(.0))]
    TooManyLinks(PathBuf),
    /// A source file changed while it was read.
    #[error("{}: changed while being read", Escaped::path(.0))]
    SourceChanged(PathBuf),
    /// An archive is malformed, or holds what no image can.
    #[error("{}: {}{fault} (at byte {offset})", Escaped::path(archive), PathPrefix(member.as_deref()))]
    Archive {
        /// The archive.
        archive: PathBuf,
        /// The member concerned, if it has a name.
        member: Option<PathBuf>,
        /// Where its header is, in bytes of the plain archive.
        offset: u64,
        /// What is wrong.
        fault: crate::build::ArchiveFault,
    },
    /// An OCI image layout is malformed, or lacks what is needed.
    #[error("{}: {}{fault}", Escaped::path(layout), BlobPrefix(blob.as_deref()))]
    Oci {
        /// The layout.
        layout: PathBuf,
        /// The digest of the blob concerned, if it is one.
        blob: Option<String>,
        /// What is wrong.
        fault: crate::build::OciFault,
    },
    /// A file of a source, such as an image, cannot be read.
    #[error("{}: {source}", Escaped::path(path))]
    InSource {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// The reason.
        source: Box<Error>,
    },
    /// An entry of a source cannot be where it says.
    #[error("{}: {fault}", Escaped::path(path))]
    Misplaced {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// What is wrong.
        fault: crate::build::Misplaced,
    },
    /// A file of a source is what no image can be made of.
    #[error("{}: {problem}", Escaped::path(path))]
    Layer {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// Something in the source cannot be stored in an image.
    #[error("{}: {what} {value} does not fit (limit {limit})", Escaped::path(path))]
    DoesNotFit {
        /// The file concerned.
        path: PathBuf,
        /// The quantity.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The largest value that fits.
        limit: u64,
    },
    /// What was built is not what the source has: a bug, or bad memory.
    #[error(
        "{}: its {what} in the image is another than in the source; the image is not kept",
        Escaped::path(path)
    )]
    NotTheSource {
        /// The file concerned.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// What is about to be written does not read as it should: a bug, or bad memory.
    #[error(
        "internal error: the inode of {inode} as it would be written is not readable: {source}; no image is written"
    )]
    SelfCheck {
        /// The path of the inode, in the image.
        inode: String,
        /// The rule that it breaks.
        source: FormatError,
    },
    /// A file that the table of owners and modes says nothing of.
    #[error("{}: not in the fs_config file", Escaped::path(.0))]
    NotConfigured(PathBuf),
    /// An option's value is out of its range.
    #[error("{option}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What is wrong, and what is right.
        problem: &'static str,
    },
    /// A socket, which a tar archive cannot hold.
    #[error("{}: a socket is left out of the archive", Escaped::path(.0))]
    SocketInTar(PathBuf),
    /// A glob pattern that is none.
    #[error("pattern {pattern}: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Something in the image to be built is beyond what the format can say.
    #[error("the image cannot be written: {0}")]
    Layout(FormatError),
    /// A compressor does not take these parameters.
    #[error("{0}")]
    Params(ferofs_codec::ParamsError),
    /// A compressor failed.
    #[error("compressing failed: {0}")]
    Encode(ferofs_codec::EncodeError),
    /// A patch, or an image's history, cannot be used.
    #[error(transparent)]
    Patch(#[from] crate::patch::PatchFault),
    /// Changing an image failed after its first write.
    #[error("{cause}; {left}")]
    Unfinished {
        /// Why it failed.
        cause: Box<Error>,
        /// The state of the image.
        left: Left,
    },
    /// Reading the image takes more than its size explains: it is damaged, or made to exhaust its reader.
    #[error("{what} (limit {limit}; --work-limit raises it)")]
    Limit {
        /// What there is too much of.
        what: crate::read::Limited,
        /// The limit.
        limit: u64,
    },
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// The state of an image after a change that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Left {
    /// What was written was taken back.
    #[error("the image is as before")]
    AsBefore,
    /// The superblock is the old one; bytes that were written could not be taken back.
    #[error(
        "the image shows the old tree; bytes that it does not use were written and could not be restored: the next change \
         of the image, or `ferofs patch repair`, removes them"
    )]
    Remains,
    /// The superblock's sector could not be written, and the old one could not be written back.
    #[error(
        "the superblock may be the old one, the new one, or damaged: `ferofs patch log` shows the image's state, and \
         `ferofs patch repair` restores a damaged superblock"
    )]
    EitherSuperblock,
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

    /// The same failure, of a change that left an image in the state `left`.
    pub(crate) fn unfinished(self, left: Left) -> Self {
        Self::Unfinished { cause: Box::new(self), left }
    }

    /// Whether all further work on the image fails in the same way: it was cancelled, or a limit is reached.
    #[must_use]
    pub const fn ends_all(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Limit { .. })
    }

    /// Whether a source's file could not be opened or read. It is asked of errors of reading a source only: errors of
    /// writing have the same form.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            // A file of an image that is damaged, or that the image's medium does not give.
            Self::InSource { source, .. } => {
                matches!(**source, Self::Io { .. } | Self::Corrupt(_) | Self::Unsupported(_))
            }
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

struct PathPrefix<'a>(Option<&'a Path>);

impl fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, "{}: ", Escaped::path(path)),
            None => Ok(()),
        }
    }
}

struct BlobPrefix<'a>(Option<&'a str>);

impl fmt::Display for BlobPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |blob| write!(f, "blob {blob}: "))
    }
}

/// A broken rule, and where in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The structure that is malformed.
    pub structure: Structure,
    /// The rule.
    pub fault: Fault,
    /// Where in the image, if it has a place there.
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

    /// Adds the position, unless a nearer one is known.
    #[must_use]
    pub const fn at(mut self, pos: BytePos) -> Self {
        if self.pos.is_none() {
            self.pos = Some(pos);
        }
        self
    }

    /// Adds the inode, unless a nearer one is known.
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
pub(crate) trait Locate<T> {
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
