//! Fetches a complete remote image into a file: into a cache of its own beside the file, where the
//! next call continues after a failure. The complete data gets the file's name.

mod decompress;
mod folder;

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ferofs_format::superblock;
use ferofs_host::{keep_access, sync_name};
use ferofs_read::{FileSource, Hex, Source as _};
use ferofs_verity::{Digest, Seal, appended_position, verify_all};
use sha2::{Digest as _, Sha256};

use self::folder::HiddenFolder;
use crate::cache::{Cache, DATA, Entry, units_in};
use crate::error::{Error, Failure, FetchErrorKind, Result, open_file};
use crate::fetch::{FetchOptions, Fetcher, RetryOptions};
use crate::object::{Validator, later};
use crate::open::{Connected, OpenRemote, RemoteImage, open_files};
use crate::ranges::len_of;
use ferofs_format::units::{to_u64, to_usize};

pub use decompress::decompress;

/// How an image is fetched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullOptions {
    /// The root hash that the image must have. Otherwise the one that the registry's manifest
    /// names.
    pub root: Option<Digest>,
    /// The position of the seal's superblock. Otherwise the one that the manifest names, or after
    /// the image's last block.
    pub hash_offset: Option<u64>,
    /// Requests that are in flight at the same time.
    pub connections: usize,
    /// Threads of [`verify`].
    pub threads: usize,
    /// How requests are sent again.
    pub retry: RetryOptions,
    /// How long nothing may arrive, before the pull fails.
    pub patience: Duration,
    /// Files on this machine whose blocks are copied if the image has the same ones. The file that
    /// is replaced is also used. This needs a root hash.
    pub reuse: Vec<PathBuf>,
    /// A cache whose blocks are used in the same way.
    pub cache: Option<Cache>,
    /// Replace an EROFS image also by a file that is none. Otherwise such a pull fails, and the
    /// image stays.
    pub replace_image: bool,
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
            replace_image: false,
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
    /// Whether the file has the magic number of an EROFS image. Data of chunks, for example, has
    /// none.
    pub is_image: bool,
}

/// Bytes that are waited for and hashed at a time.
const PART: u64 = 4 << 20;
/// Fewer bytes are not kept for the next call: they arrive soon.
const KEPT: u64 = 16 << 20;
/// How often a pull looks whether anything arrives.
const TICK: Duration = Duration::from_millis(100);
/// The pause before another look at whether the index of other images is complete.
const INDEX_PAUSE: Duration = Duration::from_millis(5);

/// Fetches an image into the file `path`, which is replaced when all bytes have arrived and are
/// verified. `progress` is called with the number of bytes that have arrived.
///
/// # Errors
/// [`Error::Fetch`] with [`FetchErrorKind::Digest`] if the bytes are not those that the registry
/// promises, and [`Error::Failed`] if they do not arrive; [`Error::Verity`] if the image cannot
/// have the root hash; [`Error::Image`] if they are not an EROFS image and would replace one;
/// [`Error::Io`] if the file cannot be written, or another process writes it.
pub fn pull(
    connected: &Connected,
    path: &Path,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<Pulled> {
    let mut files = open_files(&options.reuse)?;
    // It is there until this pull is complete.
    files.extend(open_files(&[path.to_owned()]).unwrap_or_default());
    let folder = HiddenFolder::beside(path)?;
    let (cache, others) = (Cache::in_private(folder.path()), options.cache.clone());
    let open = OpenRemote {
        root: options.root,
        hash_offset: options.hash_offset,
        ..OpenRemote::default()
    };
    let deadline = later(Instant::now(), options.patience);
    let image = RemoteImage::open_complete(connected, cache, others, files, &open, deadline)?;
    folder.remove_all_but(&image.known().key())?;
    image.verify_stored()?;
    let pulled = fetch_into(connected, &image, path, options, progress);
    let is_lasting =
        *connected.object.validator() != Validator::None || image.known().roothash().is_some();
    folder.keep(match &pulled {
        Err(Error::Failed(_)) => is_lasting && image.entry().stored_bytes().unwrap_or(0) >= KEPT,
        // Bytes that are wrong, or have another name now.
        _ => false,
    });
    let pulled = pulled?;
    replace(&image.entry().path().join(DATA), folder.path(), path)?;
    Ok(pulled)
}

/// Fetches what is missing of `image`, and checks all of it.
fn fetch_into(
    connected: &Connected,
    image: &RemoteImage,
    path: &Path,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<Pulled> {
    let (object, entry, seal) = (&*connected.object, image.entry(), image.known().seal()?);
    let size = entry.size();
    let mut resumed = entry.stored_bytes().map_err(Error::io("read", entry.path()))?;
    let mut fetching = FetchOptions::default();
    (fetching.connections, fetching.retry) = (options.connections, options.retry);
    fetching.complete = true;
    let fetcher = image.fetcher(fetching)?;
    while !fetcher.has_index() {
        std::thread::sleep(INDEX_PAUSE);
    }
    // Each other part is checked against the hash tree.
    let first = seal.as_ref().map_or(size, |(seal, _)| seal.position)..size;
    loop {
        let sha256 = fetch_all(&fetcher, &first, options, progress)?;
        let data = open_file(&entry.path().join(DATA))?;
        let is_image = has_magic(&data);
        let is_promised = match object.validator() {
            Validator::Sha256(expected) => *expected == sha256,
            _ => true,
        };
        // Nothing verifies the superblock of the seal, which tells how the image is verified.
        let is_sealed = seal.as_ref().is_none_or(|(seal, _)| {
            Seal::read(&data, seal.position).is_ok_and(|read| read == *seal)
        });
        let replaces =
            is_image || options.replace_image || !open_file(path).is_ok_and(|old| has_magic(&old));
        if is_promised && is_sealed && replaces {
            let is_verified = seal.is_some() || matches!(object.validator(), Validator::Sha256(_));
            let reused = fetcher.stats().reused;
            return Ok(Pulled { size, resumed, reused, sha256, is_verified, is_image });
        }
        // Bytes of an earlier call may be wrong, for example after an error of the disk.
        if std::mem::take(&mut resumed) > 0 {
            let removed = entry.remove(units_in(&(0..size)));
            removed.map_err(Error::io("remove parts of", entry.path()))?;
        } else if is_promised && is_sealed {
            let problem = "stays: what the server sent is not an EROFS image. Check the location; --force replaces the image all the same";
            return Err(Error::Image { path: path.to_owned(), problem: problem.to_owned() });
        } else {
            return Err(Error::fetch(object.location(), FetchErrorKind::Digest));
        }
    }
}

/// Fetches what is missing, `first` before all else. Returns the SHA-256 of all bytes.
fn fetch_all(
    fetcher: &Fetcher,
    first: &Range<u64>,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<String> {
    let entry = fetcher.entry();
    let mut parts = parts(first.clone()).chain(parts(0..first.start));
    // Each connection has a part to fetch while one is hashed.
    let most = options.connections.saturating_mul(2).saturating_sub(1).max(1);
    let (mut wanted, mut hasher) = (VecDeque::new(), Sha256::new());
    let (mut arrived, mut hashed) = (0u64, 0);
    loop {
        while wanted.len() < most
            && let Some(part) = parts.next()
        {
            let (sender, receiver) = channel();
            let deadline = later(Instant::now(), Duration::MAX);
            // After a failure, nobody receives.
            let done = Box::new(move |result| drop(sender.send(result)));
            fetcher.want(part.clone(), deadline, done);
            wanted.push_back((part, receiver));
        }
        let Some((part, receiver)) = wanted.pop_front() else { break };
        wait(fetcher, &receiver, options.patience)?;
        arrived = arrived.saturating_add(len_of(&part));
        progress(arrived);
        if part.start == hashed {
            hash(entry, &part, &mut hasher)?;
            hashed = part.end;
        }
    }
    hash(entry, &(hashed..entry.size()), &mut hasher)?;
    Ok(Hex(&hasher.finalize()).to_string())
}

fn parts(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(to_usize(PART)).map(move |start| start..end.min(start.saturating_add(PART)))
}

/// Waits until a part is stored, as long as anything arrives.
fn wait(
    fetcher: &Fetcher,
    answer: &Receiver<Result<(), Failure>>,
    patience: Duration,
) -> Result<()> {
    let (mut stored, mut since) = (fetcher.stats().stored, Instant::now());
    loop {
        match answer.recv_timeout(TICK.min(patience)) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Disconnected) => return Err(fetcher.problem().into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = fetcher.stats().stored;
        if now != stored {
            (stored, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            return Err(fetcher.problem().into());
        }
    }
}

fn hash(entry: &Entry, range: &Range<u64>, hasher: &mut Sha256) -> Result<()> {
    let (mut at, mut buffer) = (range.start, vec![0; 1 << 20]);
    while at < range.end {
        buffer.truncate(to_usize(range.end.saturating_sub(at)));
        let read = entry.read(at, &mut buffer);
        if !read.map_err(Error::io("read", entry.path()))? {
            let removed = std::io::Error::other("another process has removed a part");
            return Err(Error::io("read", entry.path())(removed));
        }
        hasher.update(&buffer);
        at = at.saturating_add(to_u64(buffer.len()));
    }
    Ok(())
}

/// Gives the complete file `new` the name `path`, with the access of the file that has it. `folder`
/// is for a file that shows the permissions of new ones.
///
/// # Errors
/// [`Error::Io`].
pub fn replace(new: &Path, folder: &Path, path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(new);
    let file = file.map_err(Error::io("open", new))?;
    let shown = File::create_new(folder.join("new")).and_then(|shown| shown.metadata());
    let shared = shown.and_then(|shown| keep_access(&file, path, shown.mode()));
    shared.map_err(Error::io("set the permissions of", new))?;
    file.sync_all().map_err(Error::io("sync", new))?;
    std::fs::rename(new, path).map_err(Error::io("rename", path))?;
    Ok(sync_name(path)?)
}

/// Whether the bytes have the magic number of EROFS.
fn has_magic(source: &FileSource) -> bool {
    let mut magic = [0; size_of_val(&superblock::MAGIC)];
    source.read_exact_at(to_u64(superblock::OFFSET), &mut magic).is_ok()
        && magic == superblock::MAGIC.to_le_bytes()
}

/// Checks all blocks of the file `path`, which has the bytes of the object, against the root hash.
/// Returns whether there is one.
///
/// # Errors
/// [`Error::Verity`], [`Error::Io`].
pub fn verify(connected: &Connected, path: &Path, options: &PullOptions) -> Result<bool> {
    let Some(root) = options.root.or(connected.root) else { return Ok(false) };
    let image = open_file(path)?;
    let position = options.hash_offset.or(connected.hash_offset);
    let position = position.map_or_else(|| appended_position(&image), Ok)?;
    let seal = Seal::read(&image, position)?;
    verify_all(&seal.verified(open_file(path)?, image, root)?, options.threads.max(1))?;
    Ok(true)
}
