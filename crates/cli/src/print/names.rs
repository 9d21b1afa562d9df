//! Prints file names. Names in a hostile image may contain control sequences of a terminal; they are escaped.

use std::path::Path;

use ferofs::escape::Escaped;

/// Prints `path` with a leading slash; control characters are escaped.
pub(crate) fn shown(path: &Path) -> String {
    format!("/{}", Escaped::path(path))
}
