//! Output for people: messages, names of files, progress.

pub(crate) mod color;
pub(crate) mod output;
pub(crate) mod progress;

use std::path::Path;

use ferofs::escape::Escaped;

/// A path in an image, with a leading slash. Names in a hostile image may contain control sequences of a terminal; they are escaped.
pub(crate) fn shown(path: &Path) -> String {
    format!("/{}", Escaped::path(path))
}
