//! Whether a file is this user's own, and still has the name that it was opened with.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether only this user can write to it.
pub(crate) fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// Whether `file` has the name `path`. After flock(2) it may have lost it: the process that had the
/// lock may have renamed or removed the file.
pub(crate) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
