//! Fetches a complete remote image into a file. What arrived stays in a partial file, and the next call continues there.

mod decompress;
mod reuse;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::{FileSource, Hex};
use ferofs_threads::with_pipeline;
use ferofs_verity::{Digest, Seal, appended_position, verify_all};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use self::reuse::Reuse;
use crate::cache::Cache;
use crate::error::{Error, FetchErrorKind, Result, open_file};
use crate::fetch::{Counters, Patience, RetryOptions, fetch};
use crate::numbers::{len_of, to_u64, to_usize};
use crate::object::{RemoteObject, Validator, later};
use crate::open::{Connected, bases, open_files};

pub use decompress::decompress;

/// How an image is fetched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullOptions {
    /// The root hash that the image must have. Otherwise the one that the registry's manifest names.
    pub root: Option<Digest>,
    /// The position of the seal's superblock. Otherwise the one that the manifest names, or after the image's last block.
    pub hash_offset: Option<u64>,
    /// Requests that are in flight at the same time.
    pub connections: usize,
    /// Threads that verify the image.
    pub threads: usize,
    /// How requests are sent again.
    pub retry: RetryOptions,
    /// How long a part is asked for, before the pull fails.
    pub patience: Duration,
    /// Files on this machine whose blocks are copied if the image has the same ones. The file that is replaced is also used. This needs a root
    /// hash.
    pub reuse: Vec<PathBuf>,
    /// A cache whose blocks are used in the same way.
    pub cache: Option<Cache>,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            root: None,
            hash_offset: None,
            connections: 4,
            threads: 1,
            retry: RetryOptions::default(),
            patience: Duration::from_secs(60),
            reuse: Vec::new(),
            cache: None,
        }
    }
}

/// A fetched image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// The size of the file in bytes.
    pub size: u64,
    /// Bytes that an earlier call had fetched.
    pub resumed: u64,
    /// Bytes that were copied from other images on this machine.
    pub reused: u64,
    /// The SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Whether the bytes are those that a digest of the registry or a root hash promises.
    pub is_verified: bool,
}

/// Bytes of one request.
const PART: u64 = 4 << 20;
/// The partial file is synced at each multiple of this number of bytes, before more is written. After a crash of the system, the bytes before
/// the last multiple are right.
const SYNC: u64 = 16 << 20;

/// Fetches an image into the file `path`, which is replaced when all bytes have arrived and are verified. `progress` is called with the number of
/// bytes in the partial file.
///
/// # Errors
/// [`Error::Fetch`] with [`FetchErrorKind::Digest`] if the bytes are not those that the registry promises; [`Error::Verity`] if they do not
/// have the root hash; [`Error::File`] if the file cannot be written, or another process writes it.
pub fn pull(
    connected: &Connected,
    path: &Path,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<Pulled> {
    let object = &*connected.object;
    let files = open_files(&options.reuse)?;
    let mut partial = Partial::open(object, path)?;
    let resumed = partial.len;
    let reuse = known_parts(connected, path, files, &partial, options).inspect_err(|error| {
        partial.keep_if_useful(error);
    })?;
    let reuse = reuse.as_ref();
    let pulled = match fetch_into(object, &mut partial, reuse, options, progress) {
        // Bytes of an earlier call may be wrong, for example after an error of the disk.
        Err(Error::Fetch { error, .. }) if matches!(error.kind, FetchErrorKind::Digest) && resumed > 0 => {
            partial.restart()?;
            fetch_into(object, &mut partial, reuse, options, progress).map(|sha256| (sha256, 0))
        }
        result => result.map(|sha256| (sha256, resumed)),
    };
    let (sha256, resumed) = match pulled {
        Ok(pulled) => pulled,
        Err(error) => {
            partial.keep_if_useful(&error);
            return Err(error);
        }
    };
    let has_root = match verify(connected, &partial.path, options) {
        Ok(has_root) => has_root,
        Err(error) => {
            partial.remove();
            return Err(error);
        }
    };
    partial.finish(path)?;
    let is_verified = has_root || matches!(object.validator(), Validator::Sha256(_));
    let reused = reuse.map_or(0, Reuse::reused);
    Ok(Pulled { size: object.size(), resumed, reused, sha256, is_verified })
}

/// The blocks of an image with a root hash that other images on this machine have.
fn known_parts(
    connected: &Connected,
    path: &Path,
    mut files: Vec<Arc<FileSource>>,
    partial: &Partial,
    options: &PullOptions,
) -> Result<Option<Reuse>> {
    let object = &*connected.object;
    let root = options.root.or(connected.root).filter(|_| partial.len < object.size());
    let Some(root) = root else { return Ok(None) };
    // It is there until this pull is complete.
    files.extend(open_files(&[path.to_owned()]).unwrap_or_default());
    let bases = bases(files, options.cache.as_ref(), object.location(), None);
    let counters = Counters::default();
    let fetch_at = |start: u64, buf: &mut [u8]| {
        let until = Until(later(Instant::now(), options.patience));
        fetch(object, start, buf, &options.retry, &until, &counters, |_| Ok(true))
    };
    let position = options.hash_offset.or(connected.hash_offset);
    Reuse::prepare(object.size(), object.location(), root, position, bases, &partial.path, &fetch_at)
}

/// Checks all blocks of the file `path`, which has the bytes of the object, against the root hash. Returns whether there is one.
///
/// # Errors
/// [`Error::Verity`], [`Error::File`].
pub fn verify(connected: &Connected, path: &Path, options: &PullOptions) -> Result<bool> {
    let Some(root) = options.root.or(connected.root) else { return Ok(false) };
    let image = open_file(path)?;
    let position = options.hash_offset.or(connected.hash_offset);
    let position = position.map_or_else(|| appended_position(&image), Ok)?;
    let seal = Seal::read(&image, position)?;
    verify_all(&seal.verified(open_file(path)?, image, root)?, options.threads.max(1))?;
    Ok(true)
}

/// The bytes that have arrived.
struct Partial {
    path: PathBuf,
    file: File,
    /// Bytes that are right, from the start.
    len: u64,
    /// Whether a later call can continue.
    is_resumable: bool,
}

impl Partial {
    fn open(object: &dyn RemoteObject, path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| Error::file(path, "create")(io::ErrorKind::InvalidInput.into()))?;
        // Another object has another partial file.
        let identity = format!("{:?} {}", object.validator(), object.size());
        let identity = Hex(&Sha256::digest(identity)).to_string();
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.partial", identity.get(..16).unwrap_or_default()));
        let path = path.with_file_name(hidden);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::file(&path, "create"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let busy = io::Error::new(io::ErrorKind::WouldBlock, "another process fetches it");
            Error::file(&path, "lock")(if error == rustix::io::Errno::WOULDBLOCK {
                busy
            } else {
                error.into()
            })
        })?;
        let is_resumable = !matches!(object.validator(), Validator::None);
        let arrived = file.metadata().map_err(Error::file(&path, "read"))?.len();
        let arrived = arrived.min(object.size());
        let len = if is_resumable { arrived.saturating_sub(arrived % SYNC) } else { 0 };
        let mut partial = Self { path, file, len, is_resumable };
        partial.truncate(len)?;
        Ok(partial)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.len = len;
        self.file.set_len(len).map_err(Error::file(&self.path, "truncate"))
    }

    fn restart(&mut self) -> Result<()> {
        self.truncate(0)
    }

    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.len).map_err(Error::file(&self.path, "write"))?;
        self.len = self.len.saturating_add(to_u64(bytes.len()));
        if self.len.is_multiple_of(SYNC) {
            self.file.sync_data().map_err(Error::file(&self.path, "sync"))?;
        }
        Ok(())
    }

    /// After an error: removes what a later call cannot use.
    fn keep_if_useful(&self, error: &Error) {
        let is_wrong = matches!(error, Error::Fetch { error, .. }
            if matches!(error.kind, FetchErrorKind::Digest | FetchErrorKind::Changed));
        if is_wrong || !self.is_resumable || self.len < SYNC {
            self.remove();
        }
    }

    fn remove(&self) {
        // A file that cannot be removed is not used by the next call, because of its content or its validator.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Gives the file its name.
    fn finish(self, path: &Path) -> Result<()> {
        self.file.sync_all().map_err(Error::file(&self.path, "sync"))?;
        std::fs::rename(&self.path, path).map_err(Error::file(path, "rename"))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::file(folder, "sync"))
    }
}

/// A part is asked for until its time has passed.
struct Until(Instant);

impl Patience for Until {
    fn deadline(&self) -> Option<Instant> {
        Some(self.0)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn failed(&self, _: &FetchErrorKind) {}
}

/// Fetches what is missing. Returns the SHA-256 of the whole file.
fn fetch_into(
    object: &dyn RemoteObject,
    partial: &mut Partial,
    reuse: Option<&Reuse>,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<String> {
    let mut hasher = Sha256::new();
    hash_file(partial, &mut hasher)?;
    progress(partial.len);
    let (size, counters) = (object.size(), Counters::default());
    let failed =
        |kind: FetchErrorKind| Error::Fetch { location: object.location().to_owned(), error: kind.into() };
    let work = |(): &mut (), start: u64| {
        let all = start..start.saturating_add(PART).min(size);
        let mut bytes = vec![0; to_usize(len_of(&all))];
        // Blocks that cannot be copied are fetched.
        let missing = reuse.and_then(|reuse| reuse.fill(start, &mut bytes).ok()).unwrap_or_else(|| vec![all]);
        for range in missing {
            let until = Until(later(Instant::now(), options.patience));
            let within = |pos: u64| to_usize(pos.saturating_sub(start));
            let buf = bytes.get_mut(within(range.start)..within(range.end)).unwrap_or_default();
            fetch(object, range.start, buf, &options.retry, &until, &counters, |_| Ok(true))?;
        }
        Ok(bytes)
    };
    let connections = options.connections.max(1);
    let mut next = partial.len;
    with_pipeline(
        connections,
        connections.saturating_mul(2),
        || (),
        work,
        |pipeline| {
            loop {
                while pipeline.has_capacity() && next < size {
                    pipeline.submit(next);
                    next = next.saturating_add(PART);
                }
                let Some(bytes) = pipeline.next_result()? else { return Ok::<_, Error>(()) };
                let bytes = bytes.map_err(failed)?;
                hasher.update(&bytes);
                partial.append(&bytes)?;
                progress(partial.len);
            }
        },
    )?;
    let sha256 = Hex(&hasher.finalize()).to_string();
    match object.validator() {
        Validator::Sha256(expected) if *expected != sha256 => Err(failed(FetchErrorKind::Digest)),
        _ => Ok(sha256),
    }
}

fn hash_file(partial: &Partial, hasher: &mut Sha256) -> Result<()> {
    let (mut at, mut buffer) = (0, vec![0; 1 << 20]);
    while at < partial.len {
        buffer.truncate(to_usize(partial.len.saturating_sub(at)));
        partial.file.read_exact_at(&mut buffer, at).map_err(Error::file(&partial.path, "read"))?;
        hasher.update(&buffer);
        at = at.saturating_add(to_u64(buffer.len()));
    }
    Ok(())
}
