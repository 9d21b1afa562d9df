//! One object in the cache: its bytes, which of them are stored, and who uses it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use serde::{Deserialize, Serialize};

use super::local::LocalBits;
use super::presence::{Presence, UNIT, boot_id, bytes_of, units_in};
use crate::error::{Error, Result};
use crate::own_file::is_named;
use crate::ranges::{len_of, merged, range_of};
use ferofs_format::units::to_u64;

/// The content of `info.json`: the size and origin of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryInfo {
    /// Bytes of the object.
    pub size: u64,
    /// The location that it was first fetched from, without passwords.
    pub location: String,
    /// The root hash against which stored bytes were verified. `None`: nothing was verified.
    pub roothash: Option<String>,
}

/// An object in the cache, in use by this process.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    data: File,
    presence: Presence,
    local: LocalBits,
    size: u64,
    /// Units that were written and not synced.
    dirty: Mutex<Vec<Range<u64>>>,
    /// Locked shared as long as the entry is open.
    used: File,
    /// Bytes that readers of this process got without waiting.
    ready: AtomicU64,
}

/// Names of the files in an entry's folder.
pub(crate) const DATA: &str = "data";
const PRESENT: &str = "present";
const SYNCED: &str = "synced";
const INFO: &str = "info.json";
const PROFILE: &str = "profile";
pub(crate) const USE: &str = "use.lock";
/// Folders that are being removed start with this.
pub(super) const REMOVED: &str = ".removed-";

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(Error::io("open", path))
}

/// Locks the entry in the folder `path` against eviction. Returns `None` if it is not there, or is
/// being removed.
fn lock_use(path: &Path) -> Result<Option<File>> {
    let use_path = path.join(USE);
    let used = match open(&use_path) {
        Err(Error::Io(error)) if error.source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        file => file?,
    };
    flock(&used, FlockOperation::LockShared).map_err(|e| Error::io("lock", &use_path)(e.into()))?;
    // Eviction takes the exclusive lock and then renames the folder.
    let is_named = is_named(&used, &use_path).map_err(Error::io("read", &use_path))?;
    Ok(is_named.then_some(used))
}

impl Entry {
    /// Opens the entry in the folder `path`, and makes it if it is not there. Returns `None` if
    /// somebody else removes it at this moment.
    pub(crate) fn open(path: &Path, info: &EntryInfo) -> Result<Option<Self>> {
        let made = DirBuilder::new().mode(0o700).create(path);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(Error::io("create", path)(error));
        }
        let Some(used) = lock_use(path)? else { return Ok(None) };
        // The time of the last use, for eviction.
        let _ = used.set_modified(std::time::SystemTime::now());
        match read_info(path)? {
            None => write_info(path, info)?,
            Some(stored) if stored.size != info.size || stored.roothash != info.roothash => {
                let problem = io::Error::other("is of another object");
                return Err(Error::io("use", &path.join(INFO))(problem));
            }
            Some(_) => {}
        }
        Self::with_files(path, info, used).map(Some)
    }

    /// Opens the entry in the folder `path` if it is there. This is not a use of it: eviction takes
    /// it as early as before.
    pub(crate) fn open_stored(path: &Path) -> Result<Option<Self>> {
        let Some(used) = lock_use(path)? else { return Ok(None) };
        let Some(info) = read_info(path)? else { return Ok(None) };
        Self::with_files(path, &info, used).map(Some)
    }

    /// The file of the bytes grows with what is stored: its size is not what a server claims.
    fn with_files(path: &Path, info: &EntryInfo, used: File) -> Result<Self> {
        let size = info.size;
        let data = open(&path.join(DATA))?;
        // lseek(2) refuses positions that the file system does not have.
        if seek(&data, SeekFrom::Start(size)).is_err() {
            let problem = format!(
                "{size} bytes, as the server says, are more than a file of the cache ({}) can have",
                path.display()
            );
            let _ = remove_unused(path, &used);
            return Err(Error::document(&info.location, "size", problem));
        }
        let (present, synced) = (open(&path.join(PRESENT))?, open(&path.join(SYNCED))?);
        let presence = boot_id().and_then(|boot| Presence::open(present, synced, size, boot));
        let presence = presence.map_err(Error::io("read", &path.join(PRESENT)))?;
        Ok(Self {
            path: path.to_owned(),
            data,
            presence,
            local: LocalBits::new(size.div_ceil(UNIT)),
            size,
            dirty: Mutex::default(),
            used,
            ready: AtomicU64::new(0),
        })
    }

    /// Bytes of the object.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `buf` with the bytes from `pos` on if all of them are stored. Returns false otherwise,
    /// with any bytes in `buf`.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn read(&self, pos: u64, buf: &mut [u8]) -> io::Result<bool> {
        let Some(end) = pos.checked_add(to_u64(buf.len())).filter(|end| *end <= self.size) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let units = units_in(&(pos..end));
        loop {
            let mut generation = self.local.generation();
            if !self.local.has_all(units.clone()) {
                generation = self.presence.generation()?;
                if !self.presence.missing(units.clone())?.is_empty() {
                    return Ok(false);
                }
                self.local.insert(units.clone(), generation);
            }
            self.data.read_exact_at(buf, pos)?;
            if self.presence.generation()? == generation {
                return Ok(true);
            }
            // Some units were evicted, perhaps these.
            self.local.clear(self.presence.generation()?);
        }
    }

    /// Counts bytes that a reader got without waiting.
    pub(crate) fn count_ready(&self, bytes: usize) {
        self.ready.fetch_add(to_u64(bytes), Ordering::Relaxed);
    }

    /// Bytes that readers of this process got without waiting for a server.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.ready.load(Ordering::Relaxed)
    }

    /// Bytes of the object that are stored.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn stored_bytes(&self) -> io::Result<u64> {
        let missing = self.presence.missing(0..self.size.div_ceil(UNIT))?;
        let lens = missing.iter().map(|run| len_of(&self.bytes_of(run)));
        Ok(lens.fold(self.size, u64::saturating_sub))
    }

    /// The access profile that is kept beside the bytes, open for reading.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn profile(&self) -> io::Result<Option<File>> {
        match File::open(self.path.join(PROFILE)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps an access profile beside the bytes.
    pub(crate) fn store_profile(&self, bytes: &[u8]) -> Result<()> {
        write_file(&self.path.join(PROFILE), bytes)
    }

    /// Whether all bytes of `range` are stored.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn has(&self, range: Range<u64>) -> io::Result<bool> {
        let units = units_in(&range);
        Ok(self.local.has_all(units.clone()) || self.presence.has_all(units)?)
    }

    /// The runs of units in `units` that are not stored.
    pub(crate) fn missing(&self, units: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.presence.missing(units)
    }

    /// The runs of units in `units` that are stored.
    pub(crate) fn stored(&self, units: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.presence.runs(units, true)
    }

    /// The bytes of `units`. The last unit of the object can have fewer.
    pub(crate) fn bytes_of(&self, units: &Range<u64>) -> Range<u64> {
        let bytes = bytes_of(units);
        bytes.start..bytes.end.min(self.size)
    }

    /// Stores verified bytes: whole units, except at the end of the object.
    pub(crate) fn store(&self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let units = units_in(&range_of(start, bytes));
        let stored = self.presence.set(units.clone(), || self.data.write_all_at(bytes, start));
        if let Err(error) = stored {
            // On a full disk a part was written, which nobody would ever free: no bit names it.
            let _ = self.remove(units);
            return Err(error);
        }
        self.dirty.lock().push(units);
        Ok(())
    }

    /// Writes what was stored to the disk, so that it survives a power failure.
    ///
    /// # Errors
    /// The errors of the disk. Bytes that were not synced, also because of an eviction meanwhile,
    /// are synced by the next call.
    pub fn sync(&self) -> io::Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        if dirty.is_empty() {
            return Ok(());
        }
        let synced = self.presence.set_synced(&merged(dirty.clone()), || self.data.sync_data());
        if !matches!(synced, Ok(true)) {
            self.dirty.lock().extend(dirty);
        }
        synced.map(drop)
    }

    /// Removes stored units and frees their bytes. Readers that are reading them read again.
    pub(crate) fn remove(&self, units: Range<u64>) -> io::Result<()> {
        self.presence.remove(units.clone(), || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let bytes = self.bytes_of(&units);
            match fallocate(&self.data, flags, bytes.start, len_of(&bytes)) {
                // The file system cannot free a part of a file.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }
}

impl Drop for Entry {
    /// Removes an entry without bytes: its image could not be opened.
    fn drop(&mut self) {
        if self.data.metadata().is_ok_and(|data| data.len() == 0) {
            // Another process may use it, and then removes it.
            let _ = remove_unused(&self.path, &self.used);
        }
    }
}

/// Removes the entry in the folder `path` if no other open file than `used` has its lock. Returns
/// whether it was removed.
pub(super) fn remove_unused(path: &Path, used: &File) -> Result<bool> {
    let use_path = path.join(USE);
    if flock(used, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    // Others may have removed the entry and made it again since the file was opened: then they use
    // it, with another lock.
    if !is_named(used, &use_path).map_err(Error::io("read", &use_path))? {
        return Ok(false);
    }
    let key = path.file_name().unwrap_or_default().display();
    let removed = path.with_file_name(format!("{REMOVED}{key}-{}", std::process::id()));
    match std::fs::rename(path, &removed) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("remove", path)(error)),
    }
    std::fs::remove_dir_all(&removed).map_err(Error::io("remove", &removed))?;
    Ok(true)
}

fn write_info(folder: &Path, info: &EntryInfo) -> Result<()> {
    let path = folder.join(INFO);
    let bytes =
        serde_json::to_vec(info).map_err(|error| Error::io("write", &path)(error.into()))?;
    write_file(&path, &bytes)
}

/// Reads `info.json` in `folder`. `None` if it is not there.
pub(crate) fn read_info(folder: &Path) -> Result<Option<EntryInfo>> {
    let path = folder.join(INFO);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let location = path.display().to_string();
            Error::document(&location, "entry of the cache", error.to_string())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", &path)(error)),
    }
}

/// Writes a file, complete or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    // Containers that share a cache may have processes with the same number.
    let (process, now) = (std::process::id(), std::time::SystemTime::now());
    let time = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let temporary = path.with_extension(format!("{process}-{time}.tmp"));
    let written = File::create_new(&temporary).and_then(|mut file| file.write_all(bytes));
    written.map_err(Error::io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(Error::io("write", path))
}
