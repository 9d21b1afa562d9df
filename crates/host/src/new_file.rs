//! Files that get their name when they are complete and on the disk. Until then the name stays with
//! the file that has it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use ferofs_read::IoError;

use crate::device::open_device;
use crate::preload::has_preload;
use crate::replaced::{follow_links, keep_access};

/// A file that is being written.
///
/// Devices and pipes keep their names and are written in place.
///
/// # Examples
/// ```
/// use std::io::Write;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("list");
/// let mut list = ferofs_host::NewFile::create(&path)?;
/// list.write_all(b"1 of 2\n")?;
/// assert!(!path.exists());
/// list.write_all(b"2 of 2\n")?;
/// list.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"1 of 2\n2 of 2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NewFile {
    file: File,
    name: Option<PendingName>,
}

impl NewFile {
    /// Creates a file that gets the name `path` later. If `path` is a symbolic link, its target
    /// gets replaced.
    ///
    /// # Errors
    /// [`IoError`] when the directory is not writable.
    pub fn create(path: &Path) -> Result<Self, IoError> {
        match std::fs::metadata(path) {
            Ok(old) if !old.is_file() => {
                let file = match old.file_type().is_block_device() {
                    true => open_device(path),
                    false => OpenOptions::new().write(true).open(path),
                };
                Ok(Self { file: file.map_err(|e| IoError::new("open", path, e))?, name: None })
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(IoError::new("stat", path, error))
            }
            _ => {
                let (file, name) = PendingName::create(path)?;
                Ok(Self { file, name: Some(name) })
            }
        }
    }

    /// Makes the file durable, and then gives it its name.
    ///
    /// # Errors
    /// [`IoError`]; the name then stays with the file that has it.
    pub fn finish(self) -> Result<(), IoError> {
        self.name.map_or(Ok(()), |name| name.publish(&self.file))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The name that a file gets when it is complete.
#[derive(Debug)]
pub struct PendingName {
    path: PathBuf,
    /// The name that the file has until then, on file systems without `O_TMPFILE`.
    temporary: Option<PathBuf>,
}

impl PendingName {
    /// Creates a file in the directory of `path`, for reading and writing. If `path` is a symbolic
    /// link, its target gets replaced, or created.
    ///
    /// # Errors
    /// [`IoError`] when the directory is not writable.
    pub fn create(path: &Path) -> Result<(File, Self), IoError> {
        let path = &follow_links(path);
        let name = |temporary| Self { path: path.clone(), temporary };
        let nameless = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(OFlags::TMPFILE.bits() as i32).mode(0o666);
            options.open(dir_of(path)).ok()
        };
        // fakechroot loses the mode of such a file, and pseudo its name.
        if !has_preload()
            && let Some(file) = nameless()
        {
            take_access(&file, path)?;
            return Ok((file, name(None)));
        }
        let temporary = unused_name(path)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary);
        // The name of the temporary file says nothing to the user: the directory is what is missing
        // or cannot be written.
        let file =
            file.map_err(|e| IoError::new("create a file in this directory", dir_of(path), e))?;
        let name = name(Some(temporary));
        take_access(&file, path)?;
        Ok((file, name))
    }

    /// Makes `file` durable, which was created with this name, and then gives it the name.
    ///
    /// # Errors
    /// [`IoError`]; the name then stays with the file that has it.
    pub fn publish(mut self, file: &File) -> Result<(), IoError> {
        let io = |action, e| IoError::new(action, &self.path, e);
        file.sync_all().map_err(|e| io("sync", e))?;
        let temporary = match &self.temporary {
            Some(name) => name.clone(),
            None => {
                let name = unused_name(&self.path)?;
                link(file, &name).map_err(|e| io("name", e.into()))?;
                self.temporary.insert(name).clone()
            }
        };
        std::fs::rename(&temporary, &self.path)
            .map_err(|e| IoError::new("rename", &self.path, e))?;
        self.temporary = None;
        sync_name(&self.path)
    }
}

/// Makes the new name of a file durable. Not every directory can be opened, and not every file
/// system can sync one: only errors of storage count.
///
/// # Errors
/// [`IoError`].
pub fn sync_name(path: &Path) -> Result<(), IoError> {
    let dir = dir_of(path);
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::IO | Errno::NOSPC | Errno::DQUOT)
            ) =>
        {
            Err(IoError::new("sync", dir, error))
        }
        _ => Ok(()),
    }
}

impl Drop for PendingName {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // The file is no longer needed. An error of its removal is ignored, since the build has
            // failed already.
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Gives a new file the access of the file `path`, which it will replace.
fn take_access(file: &File, path: &Path) -> Result<(), IoError> {
    let taken = file.metadata().and_then(|new| keep_access(file, path, new.permissions().mode()));
    taken.map_err(|e| IoError::new("set the permissions of", path, e))
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// A hidden name beside `path` for its unfinished content: `.NAME.END`; `digest` gives the name
/// in place of a NAME that is too long. None if `path` has no name.
pub fn hidden_beside(
    path: &Path,
    end: &str,
    digest: impl FnOnce(&[u8]) -> String,
) -> Option<PathBuf> {
    /// Bytes of a name at most: eCryptfs takes 143, most file systems 255.
    const LONGEST: usize = 143;
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{end}"));
    if name.len() > LONGEST {
        name = format!(".{}.{end}", digest(name.as_bytes())).into();
    }
    Some(dir_of(path).join(name))
}

/// Fills `bytes` with random ones.
///
/// # Errors
/// [`IoError`] if the system has none.
pub fn random(bytes: &mut [u8]) -> Result<(), IoError> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .map(drop)
        .map_err(|e| IoError::unnamed("get random bytes", e))
}

/// A random name in the directory of `path`.
fn unused_name(path: &Path) -> Result<PathBuf, IoError> {
    let mut random = [0; 8];
    self::random(&mut random)?;
    Ok(dir_of(path).join(format!(".ferofs.{:016x}", u64::from_le_bytes(random))))
}

fn link(file: &File, name: &Path) -> Result<(), Errno> {
    match rustix::fs::linkat(file.as_fd(), c"", CWD, name, AtFlags::EMPTY_PATH) {
        // Old kernels permit this only with CAP_DAC_READ_SEARCH.
        Err(_) => {
            let source = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, source, CWD, name, AtFlags::SYMLINK_FOLLOW)
        }
        ok => ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_file_gets_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&path, b"old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut file = NewFile::create(&link).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(file);
        let mut file = NewFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        NewFile::create(Path::new("/dev/null")).unwrap().finish().unwrap();
        assert!(NewFile::create(&dir.path().join("none/file")).is_err());
        // A link to itself: nothing tells what would be replaced.
        let looped = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        assert!(NewFile::create(&looped).is_err());
        assert!(std::fs::symlink_metadata(&looped).unwrap().is_symlink());
    }
}
