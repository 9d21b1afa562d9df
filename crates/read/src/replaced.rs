//! Files that replace others.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Gives `file` the owner and the permissions of the file that it will replace, if there is one: a private image stays private.
///
/// # Errors
/// The reason why the permissions cannot be set. Only root can give files to others, so another owner is no error.
pub fn keep_access(file: &File, replaced: &Path) -> io::Result<()> {
    let Ok(old) = std::fs::metadata(replaced) else { return Ok(()) };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
    }
    match old.mode() & 0o777 {
        permissions if permissions == new.mode() & 0o777 => Ok(()),
        permissions => file.set_permissions(Permissions::from_mode(permissions)),
    }
}
