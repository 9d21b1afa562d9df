//! The partial file of a pull: the bytes that have arrived, under a name that the next pull finds. Others may write to the folder, and know the
//! name too. So nothing that lies there is followed, written or continued unless only this user can have made it.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferofs_read::{FileSource, Hex, keep_access};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, FetchErrorKind, Result};
use crate::object::{RemoteObject, Validator};
use crate::own_file::{is_named, is_own};
use ferofs_format::units::{to_u64, to_usize};

/// The partial file is synced at each multiple of this number of bytes, before more is written. After a crash of the system, the bytes before
/// the last multiple are right.
const SYNC: u64 = 16 << 20;
/// How often the file is opened if others give its name to other files at the same time.
const ATTEMPTS: u32 = 100;
/// Permissions while bytes arrive. The complete file gets those of the file that it replaces.
const PRIVATE: u32 = 0o600;

/// The bytes that have arrived. It is locked against other pulls of the same object to the same file.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    /// Bytes that are right, from the start.
    len: u64,
    /// Whether a later call can continue.
    is_resumable: bool,
}

impl Partial {
    /// Opens the file for `object` beside the file `path`, and continues what an earlier pull has left.
    ///
    /// # Errors
    /// [`Error::File`], also if another process fetches the same.
    pub(super) fn open(object: &dyn RemoteObject, path: &Path) -> Result<Self> {
        let path = name_beside(object, path)?;
        let (file, is_private) = open_own(&path)?;
        let is_resumable = is_private && !matches!(object.validator(), Validator::None);
        let arrived = file.metadata().map_err(Error::file(&path, "read"))?.len();
        let arrived = arrived.min(object.size());
        let len = if is_resumable { arrived.saturating_sub(arrived % SYNC) } else { 0 };
        let mut partial = Self { path, file, len, is_resumable };
        partial.truncate(len)?;
        Ok(partial)
    }

    /// Bytes that have arrived.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// The bytes that have arrived, to be read.
    pub(super) fn source(&self) -> Result<FileSource> {
        let source = self.file.try_clone().and_then(|file| FileSource::new(file, 0));
        source.map_err(Error::file(&self.path, "read"))
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.len = len;
        self.file.set_len(len).map_err(Error::file(&self.path, "truncate"))
    }

    /// Forgets all bytes.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.truncate(0)
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.len).map_err(Error::file(&self.path, "write"))?;
        self.len = self.len.saturating_add(to_u64(bytes.len()));
        if self.len.is_multiple_of(SYNC) {
            self.file.sync_data().map_err(Error::file(&self.path, "sync"))?;
        }
        Ok(())
    }

    /// Hashes all bytes.
    pub(super) fn hash(&self, hasher: &mut Sha256) -> Result<()> {
        let (mut at, mut buffer) = (0, vec![0; 1 << 20]);
        while at < self.len {
            buffer.truncate(to_usize(self.len.saturating_sub(at)));
            self.file.read_exact_at(&mut buffer, at).map_err(Error::file(&self.path, "read"))?;
            hasher.update(&buffer);
            at = at.saturating_add(to_u64(buffer.len()));
        }
        Ok(())
    }

    /// After an error: removes what a later call cannot use.
    pub(super) fn keep_if_useful(&self, error: &Error) {
        let is_changed = matches!(error, Error::Fetch { error, .. }
            if matches!(error.kind, FetchErrorKind::Changed));
        if is_changed || are_wrong_bytes(error) || !self.is_resumable || self.len < SYNC {
            // A file that cannot be removed is not used by the next call, because of its content or its validator.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Gives the file its name, with the access that the file has which it replaces.
    pub(super) fn finish(self, path: &Path) -> Result<()> {
        let folder = folder_of(path);
        // A new file shows the permissions that the umask and the folder allow.
        let new = unnamed_file(folder).and_then(|new| new.metadata());
        let shared = new.and_then(|new| keep_access(&self.file, path, new.mode()));
        shared.map_err(Error::file(&self.path, "set the permissions of"))?;
        self.file.sync_all().map_err(Error::file(&self.path, "sync"))?;
        if !is_named(&self.file, &self.path).map_err(Error::file(&self.path, "read"))? {
            let problem = io::Error::other("another process has removed or replaced it");
            return Err(Error::file(&self.path, "rename")(problem));
        }
        std::fs::rename(&self.path, path).map_err(Error::file(path, "rename"))?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::file(folder, "sync"))
    }
}

/// Whether the error tells that the bytes are not those that they should be. Then a part that was resumed may be the reason.
pub(super) fn are_wrong_bytes(error: &Error) -> bool {
    match error {
        Error::Fetch { error, .. } => matches!(error.kind, FetchErrorKind::Digest),
        Error::Verity(_) | Error::Image { .. } => true,
        _ => false,
    }
}

/// The name for `object` beside the file `path`. Another object has another name.
fn name_beside(object: &dyn RemoteObject, path: &Path) -> Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::file(path, "create")(io::ErrorKind::InvalidInput.into()))?;
    let identity = format!("{:?} {}", object.validator(), object.size());
    let identity = Hex(&Sha256::digest(identity)).to_string();
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.partial", identity.get(..16).unwrap_or_default()));
    Ok(path.with_file_name(hidden))
}

/// Opens and locks the file with this name if only this user can have written it. Anything else with the name is removed, and a new file made.
/// Also returns whether a later call can continue the file: not where each file shows the same owner or permissions, for example on FAT.
fn open_own(path: &Path) -> Result<(File, bool)> {
    open_if(path, can_be_continued)
}

/// As [`open_own`]; `is_private` tells whether only this user can have written a file.
fn open_if(path: &Path, is_private: impl Fn(&Metadata) -> bool) -> Result<(File, bool)> {
    for _ in 0..ATTEMPTS {
        let mut is_new = false;
        let opened = match std::fs::symlink_metadata(path) {
            Ok(metadata) if !is_private(&metadata) => {
                remove(path)?;
                continue;
            }
            Ok(_) => {
                openat(CWD, path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                is_new = true;
                let flags = OFlags::RDWR
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                openat(CWD, path, flags, Mode::from_raw_mode(PRIVATE))
            }
            Err(error) => return Err(Error::file(folder_of(path), "create a file in")(error)),
        };
        let file = match opened {
            Ok(file) => File::from(file),
            // Another process has changed what has the name.
            Err(Errno::EXIST | Errno::LOOP) => continue,
            Err(Errno::NOENT) if !is_new => continue,
            // The folder is what is missing or cannot be written.
            Err(error) => {
                return Err(Error::file(folder_of(path), "create a file in")(error.into()));
            }
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let busy = io::Error::new(io::ErrorKind::WouldBlock, "another process fetches it");
            Error::file(path, "lock")(if error == Errno::WOULDBLOCK { busy } else { error.into() })
        })?;
        // The process that had the lock may have given the file its final name, or removed it.
        let metadata = file.metadata().map_err(Error::file(path, "read"))?;
        let is_private = is_private(&metadata);
        // A new file is this user's own whatever it shows, as long as it has no other name.
        if (is_private || is_new && metadata.nlink() == 1)
            && is_named(&file, path).map_err(Error::file(path, "read"))?
        {
            return Ok((file, is_private));
        }
    }
    let problem = io::Error::other("other processes make and remove it again and again");
    Err(Error::file(path, "create")(problem))
}

/// Whether only this user can have written the file.
fn can_be_continued(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1 && is_own(metadata)
}

/// Removes a name. A link is not followed.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            let problem = "a directory has the name of the partial file: remove it";
            Err(Error::file(path, "create")(io::Error::new(error.kind(), problem)))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file(path, "remove")(error))
        }
        _ => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in `folder` without a name, which ends with this process.
pub(super) fn unnamed_file(folder: &Path) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o666);
    if let Ok(file) = openat(CWD, folder, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        return Ok(file.into());
    }
    // Not every file system has such files.
    for attempt in 0..ATTEMPTS {
        let name = folder.join(format!(".ferofs-{}-{attempt}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                let file = made?;
                std::fs::remove_file(&name)?;
                return Ok(file);
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// What is planted must not be used, and what it links to must stay.
    fn assert_replaced(path: &Path) {
        let new = open_own(path).unwrap().0.metadata().unwrap();
        assert!(new.is_file());
        assert_eq!((new.len(), new.mode() & 0o777, new.nlink()), (0, PRIVATE, 1));
        assert_eq!(new.uid(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn what_others_can_have_planted_is_neither_followed_nor_continued() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join(".x.partial"), folder.path().join("other"));
        let plant = |mode| {
            std::fs::remove_file(&path).unwrap_or_default();
            std::fs::write(&path, "planted").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        assert_replaced(&path);
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&other, &path).unwrap();
        assert_replaced(&path);
        assert_eq!(std::fs::read(&other).unwrap(), b"other");
        for mode in [0o666, 0o620, 0o602] {
            plant(mode);
            assert_replaced(&path);
        }
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        assert_replaced(&path);
        if rustix::process::geteuid().is_root() {
            plant(0o644);
            chown(&path, Some(1), None).unwrap();
            assert_replaced(&path);
        }
        plant(0o644);
        assert_eq!(open_own(&path).unwrap().0.metadata().unwrap().len(), 7, "it is of this user");
    }

    #[test]
    fn a_new_file_is_used_even_if_it_shows_another_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".x.partial");
        let (first, can_continue) = open_if(&path, |_| false).unwrap();
        assert!(is_named(&first, &path).unwrap() && !can_continue);
        io::Write::write_all(&mut &first, b"planted").unwrap();
        // The same name again: nothing tells whose file it is.
        let (second, _) = open_if(&path, |_| false).unwrap();
        assert!(is_named(&second, &path).unwrap() && second.metadata().unwrap().len() == 0);
    }

    #[test]
    fn problems_name_what_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let error = open_own(&folder.path().join("none/.x.partial")).unwrap_err().to_string();
        assert!(error.contains("/none: create a file in: "), "{error}");
        let path = folder.path().join(".x.partial");
        std::fs::create_dir(&path).unwrap();
        let error = open_own(&path).unwrap_err().to_string();
        assert!(error.contains("a directory has the name of the partial file"), "{error}");
    }

    #[test]
    fn the_lock_is_on_the_file_that_has_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let (path, complete) = (folder.path().join(".x.partial"), folder.path().join("x"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < 1000 {
                        // Another thread may have the lock.
                        let Ok((file, _)) = open_own(&path) else { continue };
                        assert!(is_named(&file, &path).unwrap(), "it is complete");
                        std::fs::rename(&path, &complete).unwrap();
                        done += 1;
                    }
                });
            }
        });
    }
}
