//! Names for people: what a hostile image calls its files must not steer a terminal.

use std::path::Path;

use ferofs::escape::Escaped;

/// `path` from the root on, so that no character of it steers a terminal.
pub(crate) fn shown(path: &Path) -> String {
    format!("/{}", Escaped::path(path))
}
