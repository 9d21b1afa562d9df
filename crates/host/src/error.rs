//! The error of this crate.

use std::io;
use std::path::{Path, PathBuf};

use ferofs_read::escape::PathPrefix;

/// The result of work on files.
pub type Result<T, E = IoError> = std::result::Result<T, E>;

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
        Self { action, path: Some(path.as_ref().to_owned()), source: source.into() }
    }

    /// The failure of `action` on something without a name.
    pub fn unnamed(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self { action, path: None, source: source.into() }
    }
}
