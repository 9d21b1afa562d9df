//! Directories for a test's files, under the build's own target directory and not /tmp, which may be small, without
//! xattrs, or mounted `nodev`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A fresh directory, removed when the value goes.
///
/// # Panics
/// When it cannot be made.
pub fn scratch() -> TempDir {
    // A deep tree in it is removed by holding a descriptor a level.
    crate::need::many_open_files();
    let parent = target_dir().join("tmp");
    let made = std::fs::create_dir_all(&parent).and_then(|()| TempDir::new_in(&parent));
    match made {
        Ok(dir) => dir,
        Err(error) => panic!("{}: {error}", parent.display()),
    }
}

/// Cargo's target directory, found from the running program: target/PROFILE/PROGRAM or target/PROFILE/deps/PROGRAM.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let profile = exe.ancestors().skip(1).find(|dir| dir.file_name().is_some_and(|name| name != "deps"));
    profile.and_then(Path::parent).unwrap_or(Path::new("target")).to_owned()
}
