//! Temporary directories for tests: in memory where that is possible, or in cargo's target
//! directory. None is in /tmp, which may be small, without xattrs, or mounted `nodev`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{StatVfsMountFlags, XattrFlags};
use tempfile::TempDir;

use crate::run;

/// Directories here are in memory.
const MEMORY: &str = "/dev/shm";
/// Free bytes that tests want in memory. They use much less.
const ENOUGH_MEMORY: u64 = 4 << 30;

/// Creates a temporary directory on disk. Dropping the value removes it.
///
/// # Panics
/// When it cannot be created.
pub fn scratch() -> TempDir {
    // Removing a deep tree in it needs a descriptor per level.
    crate::need::many_open_files();
    let parent = target_dir().join("tmp");
    let created = fs::create_dir_all(&parent).and_then(|()| TempDir::new_in(&parent));
    match created {
        Ok(dir) => dir,
        Err(error) => panic!("{}: {error}", parent.display()),
    }
}

/// Creates a temporary directory in memory, or on disk if memory is short or lacks a feature.
/// Dropping the value removes it. Tests create and delete many files: ext4 takes several times as
/// long for that, because it searches for inodes that were not deleted recently.
///
/// # Panics
/// When it cannot be created.
pub fn scratch_in_memory() -> TempDir {
    static IS_SUITABLE: OnceLock<bool> = OnceLock::new();
    crate::need::many_open_files();
    let created = || TempDir::with_prefix_in("ferofs-", MEMORY).ok();
    // Asked for each directory: other programs also use memory.
    let has_room = run::proc_bytes("/proc/meminfo", "MemAvailable:").unwrap_or(0) >= ENOUGH_MEMORY
        && rustix::fs::statvfs(MEMORY)
            .is_ok_and(|space| space.f_bavail * space.f_frsize >= ENOUGH_MEMORY);
    let dir = if has_room { created() } else { None };
    dir.filter(|dir| *IS_SUITABLE.get_or_init(|| has_all_features(dir.path())))
        .unwrap_or_else(scratch)
}

/// Whether tests can create device nodes, programs and all kinds of xattrs in `dir`.
fn has_all_features(dir: &Path) -> bool {
    let refused = StatVfsMountFlags::NODEV | StatVfsMountFlags::NOEXEC;
    let set = |name: &str| rustix::fs::setxattr(dir, name, b"x", XattrFlags::empty()).is_ok();
    rustix::fs::statvfs(dir).is_ok_and(|space| !space.f_flag.intersects(refused))
        && set("user.ferofs")
        && (!crate::need::is_root() || set("trusted.ferofs"))
}

/// Cargo's target directory, derived from the path of the running program: target/PROFILE/PROGRAM
/// or target/PROFILE/deps/PROGRAM.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let profile =
        exe.ancestors().skip(1).find(|dir| dir.file_name().is_some_and(|name| name != "deps"));
    profile.and_then(Path::parent).unwrap_or(Path::new("target")).to_owned()
}
