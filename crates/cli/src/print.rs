//! Output for people: messages, names of files, progress.

pub(crate) mod color;
pub(crate) mod output;
pub(crate) mod progress;

use std::path::Path;

use ferofs::escape::Escaped;
use ferofs::read::names::bytes_of;

/// A path in an image, with a leading slash. Names in a hostile image may contain control sequences
/// of a terminal; they are escaped.
pub(crate) fn shown(path: &Path) -> String {
    format!("/{}", Escaped::path(path))
}

/// A path in an image for JSON, with a leading slash.
pub(crate) fn json_path(path: &Path) -> String {
    format!("/{}", String::from_utf8_lossy(&bytes_of(path.as_os_str())))
}
