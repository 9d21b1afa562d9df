//! The errors of remote images.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferofs_format::FormatError;
use ferofs_read::{FileSource, IoError};

/// The result of work with a remote image.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a remote image cannot be opened, fetched or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not name a remote image.
    #[error("{location}: {problem}")]
    Location {
        /// The text, without its password.
        location: String,
        /// The problem.
        problem: &'static str,
    },
    /// Credentials cannot be read.
    #[error("{}: {problem}", path.display())]
    Credentials {
        /// The file or the program that should give them.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The server does not give the bytes.
    #[error("{location}: {error}")]
    Fetch {
        /// The location, without passwords and signatures.
        location: String,
        /// The reason.
        error: FetchError,
    },
    /// A document of a server or of the cache cannot be used.
    #[error("{location}: {document}: {problem}")]
    Document {
        /// Its location.
        location: String,
        /// Its kind: "manifest", "index", "token".
        document: &'static str,
        /// The problem.
        problem: String,
    },
    /// A file of the cache or of the caller cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The image is one of containers, without a layer that is an EROFS image.
    #[error(
        "{location}: its layers ({layers}) are tar archives, which cannot be mounted: `ferofs pull` makes an image of them in a file, `ferofs convert` one in the registry"
    )]
    TarLayers {
        /// The location.
        location: String,
        /// The number of layers.
        layers: usize,
    },
    /// The object does not start as an EROFS image does.
    #[error("{location}: {error} (byte {})", ferofs_format::superblock::OFFSET)]
    NoImage {
        /// The location.
        location: String,
        /// The reason.
        error: FormatError,
        /// The first bytes of the object, by which another format is recognised.
        first_bytes: Vec<u8>,
    },
    /// The image was never found at this location. The cache has it from another one.
    #[error(
        "{0}; the cache has the image with this root hash from another location: --offline uses it"
    )]
    OnlyInCache(Box<Error>),
    /// The file is not an EROFS image that can be stored as a layer, or not an access profile.
    #[error("{}: {problem}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A part of the object does not come, or cannot be stored.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The hash tree of the image cannot be used.
    #[error(transparent)]
    Verity(#[from] ferofs_verity::Error),
}

/// Why a reader does not get its bytes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The reason.
    pub text: Arc<str>,
    /// Whether the time was over.
    pub is_timeout: bool,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = if failure.is_timeout { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
        Self::new(kind, failure)
    }
}

/// Why a range was not fetched.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct FetchError {
    /// The reason.
    pub kind: FetchErrorKind,
    /// Bytes at the start of the range that arrived before the error.
    pub received: usize,
}

impl Error {
    /// The error of a server.
    pub(crate) fn fetch(location: &str, kind: FetchErrorKind) -> Self {
        Self::Fetch { location: location.to_owned(), error: kind.into() }
    }

    /// A document that cannot be used.
    pub(crate) fn document(
        location: &str,
        document: &'static str,
        problem: impl Into<String>,
    ) -> Self {
        Self::Document { location: location.to_owned(), document, problem: problem.into() }
    }

    /// The failure of `action` on the file `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| IoError::new(action, path, source).into()
    }
}

/// Opens a file of the caller.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn open_file(path: &Path) -> Result<FileSource> {
    FileSource::open(path, 0).map_err(|error| match error {
        ferofs_read::Error::Io(error) => error.into(),
        other => Error::io("open", path)(io::Error::other(other)),
    })
}

impl From<FetchErrorKind> for FetchError {
    fn from(kind: FetchErrorKind) -> Self {
        Self { kind, received: 0 }
    }
}

/// The reasons why a range was not fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchErrorKind {
    /// Status 401: the credentials are wrong or not enough.
    #[error("the server asks for other credentials (status 401)")]
    Unauthorized,
    /// Status 401, and no credentials were sent.
    #[error(
        "the server asks for credentials (status 401), and none were found: `docker login HOST` or `podman login HOST` stores those of a registry, --user, --token-file or --netrc give others"
    )]
    NoCredentials,
    /// Status 403: not allowed, or a signature that has expired.
    #[error("the server refuses access (status 403)")]
    Forbidden,
    /// Status 404 or 410.
    #[error("the server does not have it (status {0})")]
    NotFound(u16),
    /// Status 429: too many requests.
    #[error("the server asks for fewer requests (status 429)")]
    Throttled {
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// Status 500 to 599.
    #[error("the server failed (status {status})")]
    Server {
        /// The status.
        status: u16,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// Another status.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// Status 200: the server sends the complete object instead of the range.
    #[error(
        "the server does not serve ranges (status 200 instead of 206): fetch the file with another program, or put it on a server that does"
    )]
    NoRanges,
    /// The answer is about another range than the one asked for.
    #[error("the server sent another range: {0}")]
    WrongRange(String),
    /// The body ended early.
    #[error("the answer ended early")]
    Short,
    /// The object is another one than when it was opened.
    #[error("the object on the server has changed")]
    Changed,
    /// The name of the server cannot be resolved.
    #[error("the server's name cannot be resolved: {0}")]
    Name(String),
    /// The connection failed.
    #[error("connection: {0}")]
    Connection(io::Error),
    /// No secure connection: a certificate or the protocol is wrong.
    #[error("TLS: {0}")]
    Tls(String),
    /// The deadline passed.
    #[error("no answer in time")]
    Timeout,
    /// The bytes do not have the digest that they should have.
    #[error("the bytes do not have the expected digest")]
    Digest,
    /// The caller allows no requests.
    #[error("it is not in the cache, and the server is not asked (--offline)")]
    Offline,
    /// The answer breaks the protocol.
    #[error("{0}")]
    Protocol(String),
}

impl FetchErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        !matches!(
            self,
            Self::Unauthorized
                | Self::NoCredentials
                | Self::Forbidden
                | Self::NotFound(_)
                | Self::Status(_)
                | Self::NoRanges
                | Self::Changed
                | Self::Tls(_)
                | Self::Offline
        )
    }

    /// How long the server asks to wait before the next request.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
