//! Temporary directories for tests. They are in cargo's target directory and not in /tmp, which may be small, without xattrs, or mounted
//! `nodev`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Creates a temporary directory. Dropping the value removes it.
///
/// # Panics
/// When it cannot be created.
pub fn scratch() -> TempDir {
    // Removing a deep tree in it needs a descriptor per level.
    crate::need::many_open_files();
    let parent = target_dir().join("tmp");
    let created = std::fs::create_dir_all(&parent).and_then(|()| TempDir::new_in(&parent));
    match created {
        Ok(dir) => dir,
        Err(error) => panic!("{}: {error}", parent.display()),
    }
}

/// Cargo's target directory, derived from the path of the running program: target/PROFILE/PROGRAM or target/PROFILE/deps/PROGRAM.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let profile = exe.ancestors().skip(1).find(|dir| dir.file_name().is_some_and(|name| name != "deps"));
    profile.and_then(Path::parent).unwrap_or(Path::new("target")).to_owned()
}
