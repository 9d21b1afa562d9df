//! Opens a remote image: finds its hash tree, its entry in the cache, and what is known of it without the server.

mod known;
mod lazy;
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::Source;
use ferofs_verity::{Digest, SUPERBLOCK_SIZE, Seal, appended_position};

pub use self::known::Known;
pub use self::lazy::Connect;
use self::lazy::{LazyObject, Preloaded};
pub use self::verify::{VerifiedEntry, verify_entry};
use crate::cache::{Cache, Entry, EntryInfo, to_usize};
use crate::error::{Error, Result};
use crate::fetch::{Check, FetchOptions, Fetcher, TreeCheck};
use crate::object::{RemoteObject, Validator};
use crate::source::{RemoteSource, Supply};

/// What the caller knows of an image, and allows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenRemote {
    /// The root hash that the image must have. Otherwise the one that the registry's manifest names.
    pub root: Option<Digest>,
    /// The position of the seal's superblock. Otherwise after the image's last block.
    pub hash_offset: Option<u64>,
    /// Read an image without a root hash: wrong bytes of the server, of the network or of the cache are not noticed.
    pub allow_unverified: bool,
    /// Use only what the cache has.
    pub offline: bool,
}

/// What a server says of an image.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connected {
    /// The object.
    pub object: Arc<dyn RemoteObject>,
    /// Its first bytes, if they came with the first answer.
    pub first_bytes: Vec<u8>,
    /// The root hash that a document names, which the location or the digest in it vouches for.
    pub root: Option<Digest>,
    /// The position of the seal that the same document names.
    pub hash_offset: Option<u64>,
}

impl Connected {
    /// An object of which no document tells a root hash.
    #[must_use]
    pub fn new(object: Arc<dyn RemoteObject>, first_bytes: Vec<u8>) -> Self {
        Self { object, first_bytes, root: None, hash_offset: None }
    }
}

/// An opened remote image: its entry in the cache, and how its missing parts are fetched and checked.
pub struct RemoteImage {
    object: Arc<dyn RemoteObject>,
    cache: Cache,
    entry: Arc<Entry>,
    known: Known,
}

/// Bytes at the start of the object that are fetched to open it, with the superblock.
const HEAD: u64 = 64 << 10;
/// Bytes from the seal on that are fetched to open it: its superblock and the highest levels of the tree.
const SEAL: u64 = 128 << 10;
/// The time to open an image.
const OPEN_TIME: Duration = Duration::from_secs(30);

impl std::fmt::Debug for RemoteImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteImage").field("known", &self.known).finish_non_exhaustive()
    }
}

impl RemoteImage {
    /// Opens the image at `location`, a name without passwords for messages and for the cache. `connect` is called at most once, and not
    /// before bytes are needed that the cache does not have.
    ///
    /// # Errors
    /// [`Error::Fetch`] and others of `connect`; [`Error::Document`] without a root hash unless that is allowed, and offline for an image
    /// that is not in the cache; [`Error::Cache`]; [`Error::Verity`].
    pub fn open(location: &str, connect: Connect, cache: Cache, options: &OpenRemote) -> Result<Self> {
        let known = match options.root {
            Some(root) => Known::by_root(&cache, root, options.hash_offset)?,
            None => Known::by_location(&cache, location, options)?,
        };
        if let Some(known) = known {
            return Self::open_known(location, connect, cache, known, options);
        }
        if options.offline {
            let problem = "is not in the cache".to_owned();
            return Err(Error::Document { location: location.into(), document: "image", problem });
        }
        Self::open_connected(location, connect()?, cache, options)
    }

    /// Opens an image that another process, or this one, has opened before.
    ///
    /// # Errors
    /// [`Error::Cache`].
    pub fn open_known(
        location: &str,
        connect: Connect,
        cache: Cache,
        known: Known,
        options: &OpenRemote,
    ) -> Result<Self> {
        let entry = known.open_entry(&cache, location)?;
        let object: Arc<dyn RemoteObject> = if options.offline {
            Arc::new(LazyObject::offline(location, known.size))
        } else {
            Arc::new(LazyObject::new(location, known.size, known.validator(), connect))
        };
        Ok(Self { object, cache, entry, known })
    }

    fn open_connected(
        location: &str,
        connected: Connected,
        cache: Cache,
        options: &OpenRemote,
    ) -> Result<Self> {
        let Connected { object, first_bytes, root, hash_offset } = connected;
        if let (Some(wanted), Some(named)) = (options.root, root)
            && wanted != named
        {
            let problem = format!("names another root hash: {named}");
            return Err(Error::Document { location: location.into(), document: "manifest", problem });
        }
        let object = Preloaded::new(object);
        object.insert(0, first_bytes);
        let root = options.root.or(root);
        let known = if let Some(root) = root {
            let position = options.hash_offset.or(hash_offset);
            let position = position.map_or_else(|| seal_position(&object), Ok)?;
            object.load(position..position.saturating_add(SEAL), Instant::now() + OPEN_TIME)?;
            let seal = Seal::read(&object, position)?;
            Known::sealed(RemoteObject::size(&object), root, &seal)
        } else if options.allow_unverified {
            Known::unverified(location, RemoteObject::size(&object), RemoteObject::validator(&object))
        } else {
            let problem = "names no root hash: give the right one with --roothash, or allow bytes that nobody has verified with --insecure-no-verify";
            return Err(Error::Document {
                location: location.into(),
                document: "image",
                problem: problem.into(),
            });
        };
        let entry = Arc::new(cache.entry(&known.key(), &known.info(location))?);
        known.remember(&cache, location)?;
        Ok(Self { object: Arc::new(object), cache, entry, known })
    }

    /// What another process needs to read the entry.
    #[must_use]
    pub const fn known(&self) -> &Known {
        &self.known
    }

    /// Starts the threads that fetch its parts.
    ///
    /// # Errors
    /// [`Error::Verity`], [`Error::Cache`].
    pub fn fetcher(&self, options: FetchOptions) -> Result<Fetcher> {
        let check = match self.known.seal()? {
            Some((seal, root)) => Some(Box::new(TreeCheck::new(&self.entry, &seal, root)?) as Box<dyn Check>),
            None => None,
        };
        Fetcher::start(Arc::clone(&self.object), self.cache.clone(), Arc::clone(&self.entry), check, options)
    }

    /// The bytes of the image, which `supply` fetches into the cache, and whether they are verified. Each read waits at most `patience`.
    /// The reader verifies what has a root hash, too: it trusts neither the fetcher nor the disk.
    ///
    /// # Errors
    /// [`Error::Verity`].
    pub fn source(&self, supply: Arc<dyn Supply>, patience: Duration) -> Result<(Arc<dyn Source>, bool)> {
        self.known.source(&self.entry, supply, patience)
    }
}

impl Known {
    /// As [`RemoteImage::source`], in a process that has only the entry.
    ///
    /// # Errors
    /// [`Error::Verity`].
    pub fn source(
        &self,
        entry: &Arc<Entry>,
        supply: Arc<dyn Supply>,
        patience: Duration,
    ) -> Result<(Arc<dyn Source>, bool)> {
        let remote = Arc::new(RemoteSource::new(Arc::clone(entry), supply, patience));
        let Some((seal, root)) = self.seal()? else { return Ok((remote, false)) };
        let verified = seal.verified(Arc::clone(&remote), remote, root)?;
        Ok((Arc::new(verified), true))
    }

    /// Opens the entry in `cache`.
    ///
    /// # Errors
    /// As [`Cache::entry`].
    pub fn open_entry(&self, cache: &Cache, location: &str) -> Result<Arc<Entry>> {
        Ok(Arc::new(cache.entry(&self.key(), &self.info(location))?))
    }

    fn info(&self, location: &str) -> EntryInfo {
        EntryInfo {
            size: self.size,
            location: location.to_owned(),
            roothash: self.roothash().map(str::to_owned),
        }
    }
}

/// Where the seal follows the image, as its superblock says.
fn seal_position(object: &Preloaded) -> Result<u64> {
    object.load(0..HEAD, Instant::now() + OPEN_TIME)?;
    Ok(appended_position(object)?)
}

/// The smallest object with a seal.
const _: () = assert!(SUPERBLOCK_SIZE as u64 <= SEAL);

/// Whether two answers were about the same object.
fn is_same(a: &Validator, b: &Validator) -> bool {
    matches!(a, Validator::None) || matches!(b, Validator::None) || a == b
}

/// The bytes of a range that are in memory already.
fn within(start: u64, bytes: &[u8], range: &std::ops::Range<u64>) -> Option<std::ops::Range<usize>> {
    let from = range.start.checked_sub(start)?;
    let to = range.end.checked_sub(start).filter(|end| *end <= bytes.len() as u64)?;
    Some(to_usize(from)..to_usize(to))
}
