//! The hidden folder of a pull: what has arrived, under a name that the next pull finds. Others may
//! write to the folder above it, and know the name too. So nothing that lies there is followed or
//! continued unless only this user can have made it.

use std::cell::Cell;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferofs_host::hidden_beside;
use ferofs_read::Hex;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::own_file::{is_named, is_own};

/// How often the folder is opened if others give its name to other files at the same time.
const ATTEMPTS: u32 = 100;

/// A hidden folder, which this process has locked.
pub(super) struct HiddenFolder {
    path: PathBuf,
    _lock: File,
    /// It is not removed at the end.
    is_kept: Cell<bool>,
}

impl HiddenFolder {
    /// Opens or makes the folder beside the file `path`.
    ///
    /// # Errors
    /// [`Error::Io`], also if another process fetches the same.
    pub(super) fn beside(path: &Path) -> Result<Self> {
        let digest = |name: &[u8]| Hex(&Sha256::digest(name)).to_string();
        let hidden = hidden_beside(path, "partial", digest)
            .ok_or_else(|| Error::io("create", path)(io::ErrorKind::InvalidInput.into()))?;
        let (path, above) = (hidden, parent(path));
        let failed = |error| Error::io("create a file in this directory", above)(error);
        for _ in 0..ATTEMPTS {
            let made = DirBuilder::new().mode(0o700).create(&path);
            let is_new = match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                made => made.map(|()| true).map_err(failed)?,
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = openat(CWD, &path, flags, Mode::empty()).map(File::from);
            let own = opened.ok().and_then(|folder| Some((folder.metadata().ok()?, folder)));
            // On FAT, for example, each file shows the same owner and permissions.
            let shown = |of: &Metadata| (of.uid(), of.mode() & 0o022);
            let is_shown = |metadata: &Metadata| {
                std::fs::metadata(above).is_ok_and(|above| shown(&above) == shown(metadata))
            };
            let own = own.filter(|(metadata, _)| is_own(metadata) || is_new && is_shown(metadata));
            let Some((_, lock)) = own else {
                remove(&path)?;
                continue;
            };
            flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
                let busy = io::Error::new(io::ErrorKind::WouldBlock, "another process fetches it");
                let error = if error == Errno::WOULDBLOCK { busy } else { error.into() };
                Error::io("lock", &path)(error)
            })?;
            // The process that had the lock may have removed the folder.
            if is_named(&lock, &path).map_err(Error::io("read", &path))? {
                return Ok(Self { path, _lock: lock, is_kept: Cell::new(!is_new) });
            }
        }
        let problem = io::Error::other("other processes make and remove it again and again");
        Err(Error::io("create", &path)(problem))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder is left to the next pull. Until this is called, one that was there is.
    pub(super) fn keep(&self, is_kept: bool) {
        self.is_kept.set(is_kept);
    }

    /// Removes what is of other objects, and what a killed process has left.
    pub(super) fn remove_all_but(&self, name: &str) -> Result<()> {
        let listed =
            std::fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in listed.map_err(Error::io("read", &self.path))? {
            if entry.file_name() != name {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for HiddenFolder {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // The next pull uses only what is of the same object.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes a name. A link is not followed.
fn remove(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// The folder of a file.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// What others can have planted is neither followed nor continued, and what it links to stays.
    #[test]
    fn only_a_private_folder_is_continued() {
        let parent = tempfile::tempdir().unwrap();
        let (file, other) = (parent.path().join("x"), parent.path().join("other"));
        let path = parent.path().join(".x.partial");
        let continues = || {
            let folder = HiddenFolder::beside(&file).unwrap();
            folder.keep(false);
            let metadata = folder.path().symlink_metadata().unwrap();
            assert!(metadata.is_dir() && is_own(&metadata));
            folder.path().join("mark").exists()
        };
        let plant = |mode| {
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("mark"), "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("mark"), "").unwrap();
        symlink(&other, &path).unwrap();
        assert!(!continues() && other.join("mark").exists());
        std::fs::write(&path, "planted").unwrap();
        assert!(!continues());
        rustix::fs::mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        assert!(!continues());
        for mode in [0o777, 0o720, 0o702] {
            plant(mode);
            assert!(!continues(), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            plant(0o700);
            chown(&path, Some(1), None).unwrap();
            assert!(!continues());
        }
        plant(0o755);
        assert!(continues(), "it is of this user");
        assert!(!path.exists());
        let longest = parent.path().join("n".repeat(255));
        drop(HiddenFolder::beside(&longest).unwrap());
        let error = HiddenFolder::beside(&parent.path().join("none/x")).err().unwrap().to_string();
        assert!(error.contains("/none: create a file in this directory: "), "{error}");
    }

    #[test]
    fn a_folder_is_of_one_process() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("x");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 300 {
                        // Another thread may have the lock.
                        let Ok(folder) = HiddenFolder::beside(&file) else { continue };
                        use std::sync::atomic::Ordering::SeqCst;
                        assert_eq!(holders.fetch_add(1, SeqCst), 0);
                        assert!(folder.path().exists());
                        taken += 1;
                        assert_eq!(holders.fetch_sub(1, SeqCst), 1);
                    }
                });
            }
        });
    }
}
