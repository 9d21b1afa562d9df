//! Folders for temporary files, which nobody else uses and which are removed at the end.

use std::fs::File;
use std::path::{Path, PathBuf};

use ferofs::read::Cancel;
use parking_lot::Mutex;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use tempfile::TempDir;

use crate::exit::Failure;
use crate::signals::{GRACE_PERIOD, cancel_and_clean_up};

/// The temporary folders of this process.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes SIGINT and SIGTERM cancel the work of `cancel`. If they end the process, it removes its
/// temporary folders.
pub(super) fn cancel_on_signals(cancel: &Cancel) -> Result<(), Failure> {
    cancel_and_clean_up(cancel, GRACE_PERIOD, || {
        for folder in FOLDERS.lock().iter() {
            // An error here cannot be reported better than by the exit code.
            let _ = std::fs::remove_dir_all(folder);
        }
    })
}

/// A temporary folder.
pub(super) struct Scratch {
    folder: TempDir,
    /// Locked while the folder is in use.
    _lock: File,
}

/// The names of temporary folders start with this. The cache does not list names that start with a
/// dot.
const PREFIX: &str = ".ferofs-layers-";
/// How often a folder is made if other processes remove it.
const ATTEMPTS: u32 = 100;

impl Scratch {
    /// Makes a folder in `parent`, and removes those that killed processes have left there.
    pub(super) fn new(parent: &Path) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::about(parent, format!("temporary folder: {error}"));
        for entry in std::fs::read_dir(parent).map_err(failed)?.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
                && lock(&entry.path()).is_some()
            {
                // What cannot be removed is of another user.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        for _ in 0..ATTEMPTS {
            // A signal in the middle waits for the lock.
            let mut folders = FOLDERS.lock();
            let folder =
                tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed)?;
            folders.push(folder.path().to_owned());
            drop(folders);
            // Until it is locked, another process may take it for one that a killed process has
            // left.
            if let Some(lock) = lock(folder.path()).filter(|_| folder.path().exists()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
        Err(failed(std::io::Error::other("other processes remove it again and again")))
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder, unless another process has done so. Anything else with this name is left alone:
/// others may write to the parent.
fn lock(folder: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, folder, flags, Mode::empty()).ok()?);
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_nobody_uses_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        std::fs::create_dir_all(left.join("sub")).unwrap();
        // Nobody writes to it, so that opening it would wait for ever.
        rustix::fs::mkfifoat(CWD, parent.path().join(format!("{PREFIX}pipe")), Mode::RUSR).unwrap();
        let other = parent.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let first = Scratch::new(parent.path()).unwrap();
        assert!(!left.exists() && other.exists());
        let second = Scratch::new(parent.path()).unwrap();
        assert!(first.path().exists(), "it is in use");
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists());
        assert!(Scratch::new(&other.join("none")).is_err());
    }
}
