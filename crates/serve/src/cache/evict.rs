//! Lists the entries of the cache, and removes some: first complete entries that nobody uses, the
//! least recently used before others; then parts of entries in use.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::entry::{DATA, Entry, EntryInfo, REMOVED, USE, read_info, remove_unused};
use super::folder::Cache;
use super::presence::UNIT;
use crate::error::{Error, Result};

/// An entry of the cache, as `ferofs cache ls` shows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// The key.
    pub key: String,
    /// Size and origin; `None` if it cannot be read.
    pub info: Option<EntryInfo>,
    /// Bytes on disk.
    pub stored: u64,
    /// When a process last opened it.
    pub last_use: SystemTime,
    /// Whether a process uses it.
    pub in_use: bool,
}

/// The result of [`Cache::collect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// Entries that were removed.
    pub entries: usize,
    /// Bytes on disk before.
    pub before: u64,
    /// Bytes on disk after.
    pub after: u64,
    /// Entries that processes use.
    pub in_use: usize,
}

/// Units that are removed from an entry in use at a time: 1 MiB.
const PART: u64 = 256;

impl Cache {
    /// The entries, the least recently used first.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        let failed = Error::io("list", &self.folder);
        let listed =
            std::fs::read_dir(&self.folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut usage = Vec::new();
        for folder in listed.map_err(failed)? {
            let path = folder.path();
            let Ok(key) = folder.file_name().into_string() else { continue };
            // Others may remove the entry meanwhile.
            let Ok(used) = std::fs::metadata(path.join(USE)) else { continue };
            if key.starts_with('.') {
                continue;
            }
            let stored = std::fs::metadata(path.join(DATA))
                .map_or(0, |data| data.blocks().saturating_mul(512));
            usage.push(Usage {
                info: read_info(&path).unwrap_or_default(),
                stored,
                last_use: used.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                in_use: is_in_use(&path),
                key,
            });
        }
        usage.sort_by(|a, b| (a.last_use, &a.key).cmp(&(b.last_use, &b.key)));
        Ok(usage)
    }

    /// Makes the cache as small as its limit, and `room` bytes smaller: removes entries that nobody
    /// uses.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn collect(&self, room: u64) -> Result<Collected> {
        let target = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(room));
        self.collect_to(target)
    }

    /// Removes entries that nobody uses, the least recently used first, until at most `target`
    /// bytes are on disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn collect_to(&self, target: u64) -> Result<Collected> {
        self.finish_removals()?;
        let usage = self.usage()?;
        let before = usage.iter().map(|entry| entry.stored).sum();
        let in_use = usage.iter().filter(|entry| entry.in_use).count();
        let mut collected = Collected { entries: 0, before, after: before, in_use };
        for entry in usage {
            if collected.after <= target {
                break;
            }
            if !entry.in_use && self.remove(&entry.key)? {
                collected.entries = collected.entries.saturating_add(1);
                collected.after = collected.after.saturating_sub(entry.stored);
            }
        }
        Ok(collected)
    }

    /// Frees `bytes` of an entry in use, after all that nobody uses. Returns how many were freed.
    pub(crate) fn shrink_entry(&self, entry: &Entry, bytes: u64) -> Result<u64> {
        let failed = |error| Error::io("shrink", entry.path())(error);
        let units = entry.size().div_ceil(UNIT);
        let (mut freed, mut at) = (0u64, 0u64);
        // From the start: programs that read an image from start to end need it last again.
        while freed < bytes && at < units {
            let part = at..units.min(at.saturating_add(PART));
            at = part.end;
            let runs = entry.stored(part.clone()).map_err(failed)?;
            let stored: u64 = runs.iter().map(|run| run.end.saturating_sub(run.start)).sum();
            if stored > 0 {
                entry.remove(part).map_err(failed)?;
                freed = freed.saturating_add(stored.saturating_mul(UNIT));
            }
        }
        Ok(freed)
    }

    /// Removes the entry `key` if nobody uses it. Returns whether it was removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, key: &str) -> Result<bool> {
        let use_path = self.path_of(key)?.join(USE);
        let Ok(used) = OpenOptions::new().read(true).write(true).open(&use_path) else {
            return Ok(false);
        };
        remove_unused(&self.path_of(key)?, &used)
    }

    /// Removes the remains of entries that killed processes were removing.
    fn finish_removals(&self) -> Result<()> {
        let failed = Error::io("list", &self.folder);
        let listed: Vec<PathBuf> =
            std::fs::read_dir(&self.folder).map_err(failed)?.flatten().map(|e| e.path()).collect();
        for path in listed {
            if path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(REMOVED.as_bytes()))
            {
                // Another process may be removing it.
                let _ = std::fs::remove_dir_all(&path);
            }
        }
        Ok(())
    }
}

/// Whether a process has the entry open.
fn is_in_use(path: &Path) -> bool {
    let Ok(used) = OpenOptions::new().read(true).write(true).open(path.join(USE)) else {
        return false;
    };
    // The lock ends when the file is closed.
    flock(&used, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn an_entry_that_was_removed_and_made_again_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("cache"), None).unwrap();
        let info = EntryInfo { size: 1, location: String::new(), roothash: None };
        let first = cache.entry("a", &info).unwrap();
        let opened = File::options().read(true).write(true).open(first.path().join(USE)).unwrap();
        first.store(0, &[1]).unwrap();
        drop(first);
        assert!(cache.remove("a").unwrap());
        let second = cache.entry("a", &info).unwrap();
        assert!(!remove_unused(second.path(), &opened).unwrap(), "it is in use");
        assert!(second.path().join(DATA).exists());
        let path = second.path().to_owned();
        drop((second, opened));
        assert!(!path.exists(), "nothing was stored");
        let sizes = [8 << 40, u64::MAX].map(|size| {
            let location = "https://server/a".to_owned();
            let opened = cache.entry("a", &EntryInfo { size, location, roothash: None });
            let data = std::fs::metadata(path.join(DATA));
            (opened.map(drop).map_err(|error| error.to_string()), data.map_or(0, |data| data.len()))
        });
        assert_eq!(sizes[0], (Ok(()), 0), "a server's claim takes no space");
        assert!(
            sizes[1].0.as_ref().is_err_and(|error| error.starts_with("https://server/a: size: "))
        );
        assert!(!path.exists());
    }
}
