//! The error of building an image: I/O, a source that cannot be read or stored, or an option out of
//! range. Also warnings, which `--strict` makes errors.

pub(crate) mod faults;
pub(crate) mod settings;

use std::path::{Path, PathBuf};
use std::{fmt, io};

use ferofs_format::FormatError;
use ferofs_read::IoError;
use ferofs_read::escape::{Escaped, PathPrefix};

/// The result of building.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The threads did not do their work.
    #[error(transparent)]
    Threads(#[from] ferofs_threads::Error),
    /// An image that is a source, or the image that was just built, could not be read.
    #[error(transparent)]
    Read(ferofs_read::Error),
    /// A source file changed while it was read.
    #[error("{}: changed while being read, or has another length than its size says: build again, or leave it out", Escaped::path(.0))]
    SourceChanged(PathBuf),
    /// An archive is malformed, or contains something that an image cannot store.
    #[error("{}: at byte {offset}: {}{fault}", Escaped::path(archive), PathPrefix(member.as_deref()))]
    Archive {
        /// The archive.
        archive: PathBuf,
        /// The member concerned, if it has a name.
        member: Option<PathBuf>,
        /// Where its header is, in bytes of the decompressed archive.
        offset: u64,
        /// The reason.
        fault: faults::TarFault,
    },
    /// An OCI image layout is malformed or incomplete.
    #[error("{}: {}{fault}", Escaped::path(layout), BlobPrefix(blob.as_deref()))]
    Oci {
        /// The layout.
        layout: PathBuf,
        /// The digest of the blob, if the fault is in one.
        blob: Option<String>,
        /// The reason.
        fault: crate::error::faults::OciFault,
    },
    /// A file of a source, such as an image, cannot be read.
    #[error("{}: {source}", Escaped::path(path))]
    InSource {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// The reason.
        source: Box<Self>,
    },
    /// An entry of a source cannot be inserted into the tree.
    #[error("{}: {fault}", Escaped::path(path))]
    Entry {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// The reason.
        fault: crate::error::faults::EntryFault,
    },
    /// A file of a source cannot become part of an image.
    #[error("{}: {problem}", Escaped::path(path))]
    InvalidSource {
        /// The file concerned: the source, and the path in it.
        path: PathBuf,
        /// The reason.
        problem: &'static str,
    },
    /// Something in the source cannot be stored in an image.
    #[error("{}: {what} {value} is too large (limit {limit})", Escaped::path(path))]
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
    /// `verify` found that the image differs from the source: a bug, or faulty memory.
    #[error(
        "{}: its {what} in the image differs from the source; the image was removed",
        Escaped::path(path)
    )]
    VerifyMismatch {
        /// The file concerned.
        path: PathBuf,
        /// The difference.
        what: &'static str,
    },
    /// The self-check could not parse an inode or directory block before writing it: a bug, or
    /// faulty memory.
    #[error(
        "internal error: the encoded inode of {inode} is invalid: {source}; no image was written"
    )]
    SelfCheck {
        /// The path of the inode, in the image.
        inode: String,
        /// The rule that it breaks.
        source: FormatError,
    },
    /// The fs_config file, a table of owners and modes, has no entry for a file.
    #[error("{}: not in the fs_config file", Escaped::path(.0))]
    NotInFsConfig(PathBuf),
    /// The image would have 2^32 blocks or more, and no addresses for them.
    #[error(
        "2^32 blocks or more need wide addresses (-E 48bit, for Linux 6.15 and newer), or larger blocks (-b)"
    )]
    TooManyBlocks,
    /// An option's value is out of its range.
    #[error("{option}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The reason.
        problem: &'static str,
    },
    /// fakeroot or another library shows other owners, and this program cannot see them.
    #[error(transparent)]
    Preload(#[from] ferofs_host::PreloadError),
    /// A setting is wrong.
    #[error(transparent)]
    Settings(settings::SettingsError),
    /// The format cannot express a value of the image.
    #[error("the image cannot be written: {0}")]
    Layout(FormatError),
    /// A compressor does not support these parameters.
    #[error("{0}")]
    Params(ferofs_codec::ParamsError),
    /// A compressor failed.
    #[error("compressing failed: {0}")]
    Encode(ferofs_codec::EncodeError),
    /// There were warnings, which [`crate::RunOptions::strict`] makes errors.
    #[error("{}; --strict makes warnings errors", Joined(.0))]
    Warnings(Vec<Warning>),
    /// A patch, or an image's history, cannot be used.
    #[cfg(feature = "patch")]
    #[error(transparent)]
    Patch(#[from] ferofs_update::PatchFault),
    /// One of several patches cannot be used.
    #[cfg(feature = "patch")]
    #[error("{}: {cause}", Escaped::path(path))]
    InPatch {
        /// The file of the patch.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: Box<Error>,
    },
    /// A patch could not be applied, or another change of an image failed.
    #[cfg(feature = "patch")]
    #[error(transparent)]
    Apply(ferofs_update::Error),
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An I/O failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io(IoError::new(action, path, source))
    }

    /// An I/O failure of `action` on something without a name.
    pub fn io_unnamed(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io(IoError::unnamed(action, source))
    }

    /// Whether a source's file could not be opened or read. Call it only for errors of reading a
    /// source: errors of writing have the same type.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Io(_) => true,
            // A damaged file of an image, or a read error of the image.
            Self::InSource { source, .. } => match &**source {
                Self::Read(error) => error.corruption().is_some(),
                error => matches!(error, Self::Io(_)),
            },
            _ => false,
        }
    }
}

/// A part of the source that is not in the image, or may be incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// It could not be read; only with [`crate::SourceOptions::skip_unreadable`].
    #[error("left out: {0}")]
    Skipped(Error),
    /// Another name of a file that could not be read.
    #[error("{}: left out: another name of {}", Escaped::path(name), Escaped::path(of))]
    SkippedName {
        /// The name.
        name: PathBuf,
        /// The name whose warning says why.
        of: PathBuf,
    },
    /// An exclude matches no file: a path, a regular expression or a pattern.
    #[error("{pattern}: excludes nothing: no path below the source matches it")]
    UnusedExclude {
        /// The exclude.
        pattern: String,
    },
    /// A priority is for a file that the image does not have.
    #[error("{}: has a priority, but the image has no such file", Escaped::path(path))]
    UnusedPriority {
        /// The path, in the image.
        path: PathBuf,
    },
    /// The expression of a compress hint matches no regular file.
    #[error("{pattern}: the compress hint is for no file: no path in the image matches it")]
    UnusedHint {
        /// The expression.
        pattern: String,
    },
    /// An extended attribute that EROFS cannot store.
    #[error("{}: attribute {name} left out", Escaped::path(path))]
    UnsupportedXattr {
        /// The file.
        path: PathBuf,
        /// The attribute's name.
        name: String,
    },
    /// Owners that this user namespace does not map: the first file of one. Others are not
    /// reported.
    #[error(
        "{}: owner {uid}, group {gid}: this user namespace does not map its real owner, nor perhaps that of other files; \
         build outside of the namespace, or choose owners (--all-root, --force-uid, --force-gid)",
        Escaped::path(path)
    )]
    UnmappedOwner {
        /// The file.
        path: PathBuf,
        /// The owner that it gets in the image.
        uid: u32,
        /// The group that it gets in the image.
        gid: u32,
    },
    /// A file that the build writes: the image, its extra device, or another one of
    /// [`crate::OutputOptions::others`].
    #[error("{}: left out of the tree: this command writes it", Escaped::path(path))]
    OwnOutput {
        /// The file.
        path: PathBuf,
    },
    /// An image that is built like an earlier one has no bytes of it.
    #[error("{}: nothing of this earlier image was kept: {why}", Escaped::path(image))]
    NothingKept {
        /// The earlier image.
        image: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// A directory of procfs or of another file system whose files do not tell their size.
    #[error(
        "{}: the files of this file system show a size of 0, so they are stored without content; leave it out with \
         --one-file-system or --exclude, or copy it first",
        Escaped::path(path)
    )]
    SizeLess {
        /// The directory.
        path: PathBuf,
    },
    /// An archive's member of a type that no standard defines.
    #[error("{}: left out: unknown type {kind:?}", Escaped::path(path))]
    UnknownMember {
        /// The member.
        path: PathBuf,
        /// Its type.
        kind: char,
    },
    /// An archive without members: up to 10 KiB of zeroes.
    #[error("{}: an archive without members: the image is empty", Escaped::path(archive))]
    EmptyArchive {
        /// The archive.
        archive: PathBuf,
    },
    /// An archive of a container image that is read as an ordinary archive.
    #[error(
        "{}: an archive of a container image: its parts become the files. Give --from oci (mkfs.erofs: --oci) for the files of the container; one \
         in a directory of the archive first needs tar -C DIR -cf FILE ., and skopeo's dir: needs skopeo copy dir:DIR oci:LAYOUT",
        Escaped::path(archive)
    )]
    ContainerArchive {
        /// The archive.
        archive: PathBuf,
    },
    /// An archive that ends with one block of zeroes instead of two. Bytes after it are left out.
    #[error(
        "{}: a single block of zeroes at byte {offset}: bytes after it are left out",
        Escaped::path(archive)
    )]
    SingleZeroBlock {
        /// The archive.
        archive: PathBuf,
        /// Where the block is.
        offset: u64,
    },
    /// Bytes that are not gzip follow the gzip data of an archive.
    #[error("{}: bytes after the gzip data are left out", Escaped::path(archive))]
    BytesAfterGzip {
        /// The archive.
        archive: PathBuf,
    },
    /// An archive without its end mark: it may be truncated.
    #[error("{}: no end of archive at byte {offset}: it may be incomplete", Escaped::path(archive))]
    NoEndOfArchive {
        /// The archive.
        archive: PathBuf,
        /// Where the end should be.
        offset: u64,
    },
}

/// I/O failures and interruptions keep their variants, so that callers need not look into
/// [`Error::Read`] for them.
impl From<ferofs_read::Error> for Error {
    fn from(error: ferofs_read::Error) -> Self {
        match error {
            ferofs_read::Error::Io(error) => Self::Io(error),
            ferofs_read::Error::Interrupted => Self::Interrupted,
            error => Self::Read(error),
        }
    }
}

/// Without memory, the error is one of the system.
impl From<ferofs_codec::EncodeError> for Error {
    fn from(error: ferofs_codec::EncodeError) -> Self {
        match error {
            ferofs_codec::EncodeError::Memory => {
                Self::io_unnamed("compress", io::ErrorKind::OutOfMemory)
            }
            error => Self::Encode(error),
        }
    }
}

#[cfg(feature = "patch")]
impl From<ferofs_update::Error> for Error {
    fn from(error: ferofs_update::Error) -> Self {
        match error {
            ferofs_update::Error::Io(error) => Self::Io(error),
            ferofs_update::Error::Interrupted => Self::Interrupted,
            ferofs_update::Error::Read(error) => Self::Read(error),
            ferofs_update::Error::Patch(fault) => Self::Patch(fault),
            error => Self::Apply(error),
        }
    }
}

struct Joined<'a>(&'a [Warning]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(number, warning)| {
            let between = if number == 0 { "" } else { "; " };
            write!(f, "{between}{warning}")
        })
    }
}

struct BlobPrefix<'a>(Option<&'a str>);

impl fmt::Display for BlobPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |blob| write!(f, "blob {blob}: "))
    }
}
