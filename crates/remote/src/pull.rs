//! Fetches a complete remote image into a file. What arrived stays in a partial file, and the next call continues there.

mod decompress;
mod partial;
mod reuse;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_format::superblock;
use ferofs_read::{FileSource, Hex, Source as _};
use ferofs_threads::with_pipeline;
use ferofs_verity::{Digest, Seal, appended_position, verify_all};
use sha2::{Digest as _, Sha256};

use self::partial::{Partial, are_wrong_bytes};
use self::reuse::Reuse;
use crate::cache::Cache;
use crate::error::{Error, FetchErrorKind, Result, open_file};
use crate::fetch::{Counters, Patience, RetryOptions, fetch};
use crate::object::{RemoteObject, Validator, later};
use crate::open::{Connected, bases, open_files};
use crate::ranges::len_of;
use ferofs_format::units::{to_u64, to_usize};

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
    /// Replace an EROFS image also by a file that is none. Otherwise such a pull fails, and the image stays.
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
    /// Whether the file has the magic number of an EROFS image. Data of chunks, for example, has none.
    pub is_image: bool,
}

/// Bytes of one request.
const PART: u64 = 4 << 20;

/// Fetches an image into the file `path`, which is replaced when all bytes have arrived and are verified. `progress` is called with the number of
/// bytes in the partial file.
///
/// # Errors
/// [`Error::Fetch`] with [`FetchErrorKind::Digest`] if the bytes are not those that the registry promises; [`Error::Verity`] if they do not
/// have the root hash; [`Error::Image`] if they are no EROFS image and would replace one; [`Error::File`] if the file cannot be written, or
/// another process writes it.
pub fn pull(
    connected: &Connected,
    path: &Path,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<Pulled> {
    let object = &*connected.object;
    let files = open_files(&options.reuse)?;
    let mut partial = Partial::open(object, path)?;
    let mut resumed = partial.len();
    let arrived = loop {
        match fetch_and_check(connected, path, &files, &mut partial, options, progress) {
            Ok(arrived) => break arrived,
            // Bytes of an earlier call may be wrong, for example after an error of the disk.
            Err(error) if are_wrong_bytes(&error) && resumed > 0 => {
                partial.restart()?;
                resumed = 0;
            }
            Err(error) => {
                partial.keep_if_useful(&error);
                return Err(error);
            }
        }
    };
    partial.finish(path)?;
    let is_verified = arrived.has_root || matches!(object.validator(), Validator::Sha256(_));
    let Arrived { sha256, reused, is_image, .. } = arrived;
    Ok(Pulled { size: object.size(), resumed, reused, sha256, is_verified, is_image })
}

/// The complete partial file.
struct Arrived {
    sha256: String,
    reused: u64,
    /// Whether it was verified against a root hash.
    has_root: bool,
    is_image: bool,
}

/// Fetches what is missing of the partial file for `path`, and checks all of it.
fn fetch_and_check(
    connected: &Connected,
    path: &Path,
    files: &[Arc<FileSource>],
    partial: &mut Partial,
    options: &PullOptions,
    progress: &dyn Fn(u64),
) -> Result<Arrived> {
    let reuse = known_parts(connected, path, files.to_vec(), partial, options)?;
    let sha256 = fetch_into(&*connected.object, partial, reuse.as_ref(), options, progress)?;
    let has_root = verify_source(connected, || partial.source(), options)?;
    let is_image = has_magic(&partial.source()?);
    if !is_image && !options.replace_image && open_file(path).is_ok_and(|old| has_magic(&old)) {
        let problem = "stays: what the server sent is no EROFS image. Check the location; --force replaces the image all the same";
        return Err(Error::Image { path: path.to_owned(), problem: problem.to_owned() });
    }
    Ok(Arrived { sha256, reused: reuse.as_ref().map_or(0, Reuse::reused), has_root, is_image })
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
    let root = options.root.or(connected.root).filter(|_| partial.len() < object.size());
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
    Reuse::prepare(
        object.size(),
        object.location(),
        root,
        position,
        bases,
        partial.folder(),
        &fetch_at,
    )
}

/// Whether the bytes have the magic number of EROFS.
fn has_magic(source: &FileSource) -> bool {
    let mut magic = [0; size_of_val(&superblock::MAGIC)];
    source.read_exact_at(to_u64(superblock::OFFSET), &mut magic).is_ok()
        && magic == superblock::MAGIC.to_le_bytes()
}

/// Checks all blocks of the file `path`, which has the bytes of the object, against the root hash. Returns whether there is one.
///
/// # Errors
/// [`Error::Verity`], [`Error::File`].
pub fn verify(connected: &Connected, path: &Path, options: &PullOptions) -> Result<bool> {
    verify_source(connected, || open_file(path), options)
}

fn verify_source(
    connected: &Connected,
    open: impl Fn() -> Result<FileSource>,
    options: &PullOptions,
) -> Result<bool> {
    let Some(root) = options.root.or(connected.root) else { return Ok(false) };
    let image = open()?;
    let position = options.hash_offset.or(connected.hash_offset);
    let position = position.map_or_else(|| appended_position(&image), Ok)?;
    let seal = Seal::read(&image, position)?;
    verify_all(&seal.verified(open()?, image, root)?, options.threads.max(1))?;
    Ok(true)
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
    partial.hash(&mut hasher)?;
    progress(partial.len());
    let (size, counters) = (object.size(), Counters::default());
    let failed = |kind: FetchErrorKind| Error::Fetch {
        location: object.location().to_owned(),
        error: kind.into(),
    };
    let work = |(): &mut (), start: u64| {
        let all = start..start.saturating_add(PART).min(size);
        let mut bytes = vec![0; to_usize(len_of(&all))];
        // Blocks that cannot be copied are fetched.
        let missing =
            reuse.and_then(|reuse| reuse.fill(start, &mut bytes).ok()).unwrap_or_else(|| vec![all]);
        for range in missing {
            let until = Until(later(Instant::now(), options.patience));
            let within = |pos: u64| to_usize(pos.saturating_sub(start));
            let buf = bytes.get_mut(within(range.start)..within(range.end)).unwrap_or_default();
            fetch(object, range.start, buf, &options.retry, &until, &counters, |_| Ok(true))?;
        }
        Ok(bytes)
    };
    let connections = options.connections.max(1);
    let mut next = partial.len();
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
                progress(partial.len());
            }
        },
    )?;
    let sha256 = Hex(&hasher.finalize()).to_string();
    match object.validator() {
        Validator::Sha256(expected) if *expected != sha256 => Err(failed(FetchErrorKind::Digest)),
        _ => Ok(sha256),
    }
}
