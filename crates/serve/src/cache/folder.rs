//! The folder of the cache, and its entries.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::entry::{DATA, Entry, EntryInfo, read_info};
use crate::error::{Error, Result};
use crate::own_file::is_own;

/// A folder with objects.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) folder: PathBuf,
    /// Bytes on disk that eviction aims at.
    pub(super) limit: Option<u64>,
}

/// Times to open an entry that other processes remove.
const ATTEMPTS: u32 = 100;

impl Cache {
    /// Opens the cache in `folder`, and makes the folder if it is not there. `limit` is the most
    /// bytes on disk.
    ///
    /// # Errors
    /// [`Error::Io`], also if another user owns the folder or may write to it: that user could
    /// replace what is stored.
    pub fn open(folder: &Path, limit: Option<u64>) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(Error::io("create", folder))?;
        let metadata = std::fs::metadata(folder).map_err(Error::io("read", folder))?;
        if !is_own(&metadata) {
            let problem = std::io::Error::other("another user can write to it");
            return Err(Error::io("use", folder)(problem));
        }
        Ok(Self { folder: folder.to_owned(), limit })
    }

    /// A cache without a limit in a folder that no other user can write to.
    pub(crate) fn in_private(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), limit: None }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The limit on the bytes on disk.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Opens the entry `key`, and makes it if it is not there. A key has letters, digits, `-` and
    /// `.` only.
    ///
    /// # Errors
    /// [`Error::Io`], also if the entry is of an object of another size.
    pub fn entry(&self, key: &str, info: &EntryInfo) -> Result<Entry> {
        let path = self.path_of(key)?;
        for _ in 0..ATTEMPTS {
            if let Some(entry) = Entry::open(&path, info)? {
                return Ok(entry);
            }
        }
        Err(Error::io("open", &path)(std::io::Error::other("it is removed again and again")))
    }

    /// Opens the entry `key` if it is there, without counting as a use of it.
    pub(crate) fn stored_entry(&self, key: &str) -> Result<Option<Entry>> {
        Entry::open_stored(&self.path_of(key)?)
    }

    /// Whether there are probably entries beside `key`.
    pub(crate) fn has_others(&self, key: &str) -> bool {
        let is_other =
            |name: &std::ffi::OsStr| name != key && !name.as_encoded_bytes().starts_with(b".");
        let names = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(|name| is_other(&name))
    }

    /// The file with the bytes of the entry `key`.
    pub(crate) fn data_path(&self, key: &str) -> Result<PathBuf> {
        Ok(self.path_of(key)?.join(DATA))
    }

    /// The size and origin of the entry `key`, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Document`].
    pub fn info(&self, key: &str) -> Result<Option<EntryInfo>> {
        read_info(&self.path_of(key)?)
    }

    pub(super) fn path_of(&self, key: &str) -> Result<PathBuf> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if key.is_empty() || key.starts_with('.') || !key.chars().all(is_valid) {
            return Err(Error::io("open entry of", &self.folder)(
                std::io::ErrorKind::InvalidInput.into(),
            ));
        }
        Ok(self.folder.join(key))
    }
}
