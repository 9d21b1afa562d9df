//! Opens a remote image, with the server or without it; keeps its first bytes in memory, and its profile in the cache.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_format::superblock::{self, Superblock};
use ferofs_read::{FileSource, Source};
use ferofs_verity::{Params, SUPERBLOCK_SIZE, Seal, appended_position};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::bases::{bases, open_files};
use super::known::Known;
use super::lazy::{Connect, LazyObject, Piece, Preloaded};
use super::options::{Connected, OpenRemote};
use crate::cache::{Cache, Entry, UNIT};
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::fetch::{Check, Checked, FetchOptions, Fetcher, KnownBlocks, TreeCheck};
use crate::object::{Answer, RemoteObject, Validator, later};
use crate::ranges::{narrowed, range_of};
use crate::source::Supply;
use ferofs_format::units::{to_u64, to_usize};

/// An opened remote image: its entry in the cache, and how its missing parts are fetched and checked.
pub struct RemoteImage {
    object: Arc<dyn RemoteObject>,
    cache: Cache,
    entry: Arc<Entry>,
    known: Known,
    /// The bytes that were fetched to open it.
    pieces: Vec<Piece>,
    location: String,
    /// Files with blocks that the image may have.
    reuse: Vec<Arc<FileSource>>,
    /// The position of the root inode in bytes, from a superblock that nobody has verified.
    metadata: Option<u64>,
    /// The access profile that the server has.
    profile: Option<Arc<dyn RemoteObject>>,
    notices_changes: bool,
}

/// Bytes at the start of the object that are fetched to open it, with the superblock.
const HEAD: u64 = 12 << 10;
/// Bytes from the seal on that are fetched to open it: its superblock and the highest levels of the tree. A new connection brings more
/// only after more round trips.
const SEAL: u64 = 16 << 10;
/// Bytes that the number of an inode counts.
const INODE_SLOT: u64 = 32;
/// Bytes of metadata that are fetched while the image is opened: those nearest to the root, and more.
const METADATA: [u64; 2] = [128 << 10, 4 << 20];
/// The most bytes of the upper levels of the tree that are fetched while the image is opened: each read needs some of them. Those of an image
/// of 8 GB have 512 KiB.
const UPPER_LEVELS: u64 = 512 << 10;
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
    pub fn open(
        location: &str,
        connect: Connect,
        cache: Cache,
        options: &OpenRemote,
    ) -> Result<Self> {
        let reuse = open_files(&options.reuse)?;
        let known = match options.root {
            Some(root) => Known::by_root(&cache, root, options.hash_offset)?,
            None => Known::by_location(&cache, location, options)?,
        };
        if let Some(known) = known {
            return Self::with_known(location, connect, cache, known, reuse, options.offline);
        }
        if options.offline {
            let problem = "is not in the cache".to_owned();
            return Err(Error::Document { location: location.into(), document: "image", problem });
        }
        Self::open_connected(location, connect()?, cache, reuse, options)
    }

    /// Opens an image that another process, or this one, has opened before. Files of `reuse` that are gone are left out.
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
        let files =
            options.reuse.iter().filter_map(|path| open_files(std::slice::from_ref(path)).ok());
        let reuse = files.flatten().collect();
        Self::with_known(location, connect, cache, known, reuse, options.offline)
    }

    fn with_known(
        location: &str,
        connect: Connect,
        cache: Cache,
        known: Known,
        reuse: Vec<Arc<FileSource>>,
        offline: bool,
    ) -> Result<Self> {
        let entry = known.open_entry(&cache, location)?;
        let object =
            Arc::new(LazyObject::new(location, known.clone(), (!offline).then_some(connect)));
        let (location, pieces) = (location.into(), Vec::new());
        Ok(Self {
            object,
            cache,
            entry,
            known,
            pieces,
            location,
            reuse,
            metadata: None,
            profile: None,
            notices_changes: true,
        })
    }

    fn open_connected(
        location: &str,
        connected: Connected,
        cache: Cache,
        reuse: Vec<Arc<FileSource>>,
        options: &OpenRemote,
    ) -> Result<Self> {
        let Connected { object, first_bytes, root, hash_offset, profile, .. } = connected;
        if let (Some(wanted), Some(named)) = (options.root, root)
            && wanted != named
        {
            let problem = format!("names another root hash: {named}");
            return Err(Error::Document {
                location: location.into(),
                document: "manifest",
                problem,
            });
        }
        let (root, validator) = (options.root.or(root), object.validator().clone());
        let mut object = Preloaded::new(object, first_bytes);
        let known = if let Some(root) = root {
            let position = options.hash_offset.or(hash_offset);
            let position = match position {
                Some(position) => position,
                None => seal_position(&mut object)?,
            };
            object
                .load(position..position.saturating_add(SEAL), later(Instant::now(), OPEN_TIME))?;
            let seal = Seal::read(&object, position)?;
            Known::sealed(object.size(), root, &seal)
        } else if options.allow_unverified {
            Known::unverified(location, object.size(), &validator)
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
        let metadata = root_inode(&object);
        let notices_changes = root.is_some() || validator != Validator::None;
        let (object, pieces) = object.into_parts();
        let location = location.into();
        Ok(Self {
            object,
            cache,
            entry,
            known,
            pieces,
            location,
            reuse,
            metadata,
            profile,
            notices_changes,
        })
    }

    /// The values that another process needs to read the entry.
    #[must_use]
    pub const fn known(&self) -> &Known {
        &self.known
    }

    /// False if the server has just opened an image of which nothing but the size tells whether it changes: a reader may get bytes of several
    /// versions.
    #[must_use]
    pub const fn notices_changes(&self) -> bool {
        self.notices_changes
    }

    /// Keeps the access profile that the server has in the entry ([`Entry::profile`]), for the process that decodes the image. Without one on
    /// the server, the one that was kept before stays.
    ///
    /// # Errors
    /// [`Error::Fetch`] if it does not come until `deadline`, or has another digest; [`Error::Document`] if it is too large; [`Error::Cache`].
    pub fn keep_profile(&self, deadline: Instant) -> Result<()> {
        self.profile
            .as_ref()
            .map_or(Ok(()), |server| keep_profile(&**server, &self.entry, deadline))
    }

    /// Starts the threads that fetch its parts.
    ///
    /// # Errors
    /// [`Error::Verity`], [`Error::Cache`].
    pub fn fetcher(&self, options: FetchOptions) -> Result<Fetcher> {
        let (mut check, mut known, mut upper_levels) = (None::<Box<dyn Check>>, None, 0..0);
        if let Some((seal, root)) = self.known.seal()? {
            let tree = TreeCheck::new(&self.entry, &seal, root)?;
            upper_levels = tree.upper_levels();
            check = Some(Box::new(tree));
            known = self.known_blocks(seal.superblock.params);
        }
        self.store_pieces(check.as_deref());
        let (object, entry) = (self.object_with_first_bytes(), Arc::clone(&self.entry));
        let fetcher =
            Fetcher::start_with(object, self.cache.clone(), entry, check, known, options)?;
        if let Some(metadata) = self.metadata {
            // The reader needs the superblock, and then the root and the directories near it.
            fetcher.prefetch(0..HEAD);
            fetcher.prefetch(
                upper_levels.start
                    ..upper_levels.end.min(upper_levels.start.saturating_add(UPPER_LEVELS)),
            );
            for len in METADATA.iter().filter(|_| options.prefetch_metadata) {
                fetcher.prefetch(metadata..metadata.saturating_add(*len));
            }
        }
        Ok(fetcher)
    }

    /// The blocks of other images on this machine, if there are others and this image is not complete.
    fn known_blocks(&self, params: Params) -> Option<Arc<KnownBlocks>> {
        let key = self.known.key();
        let is_complete = self.entry.has(0..self.entry.size()).unwrap_or(true);
        if is_complete || (self.reuse.is_empty() && !self.cache.has_others(&key)) {
            return None;
        }
        let (files, cache, location) =
            (self.reuse.clone(), self.cache.clone(), self.location.clone());
        Some(KnownBlocks::start(params, move || bases(files, Some(&cache), &location, Some(&key))))
    }

    /// The object, which gives its first bytes from memory if they could not be checked and stored yet.
    fn object_with_first_bytes(&self) -> Arc<dyn RemoteObject> {
        let object = Arc::clone(&self.object);
        match self.pieces.first() {
            Some(Piece { start: 0, bytes })
                if !self.entry.has(0..to_u64(bytes.len())).unwrap_or(false) =>
            {
                Arc::new(WithFirstBytes::new(object, bytes.clone()))
            }
            _ => object,
        }
    }

    /// Stores what was fetched to open the image, so that it is not fetched again.
    fn store_pieces(&self, check: Option<&dyn Check>) {
        let align = check.map_or(UNIT, |check| check.align().max(UNIT));
        // The hashes come behind the data that they are of.
        for Piece { start, bytes } in self.pieces.iter().rev() {
            let piece = range_of(*start, bytes);
            let mut whole = narrowed(&piece, align);
            if piece.end == self.entry.size() {
                // The last block can be incomplete.
                whole.end = piece.end;
            }
            let within = |pos: u64| to_usize(pos.saturating_sub(*start));
            let Some(bytes) = bytes.get(within(whole.start)..within(whole.end)) else { continue };
            let has = |need: Range<u64>| self.entry.has(need).unwrap_or(false);
            let is_right = check.is_none_or(|check| {
                check.needs(&whole).into_iter().all(has)
                    && check.check(whole.start, bytes) == Checked::Right
            });
            if is_right && !bytes.is_empty() {
                // Bytes that cannot be stored are fetched again, and then a reader gets the error.
                let _ = self.entry.store(whole.start, bytes);
            }
        }
    }

    /// The bytes of the image, which `supply` fetches into the cache, and whether they are verified. Each read waits at most `patience`.
    /// The reader also verifies bytes that have a root hash: it trusts neither the fetcher nor the disk.
    ///
    /// # Errors
    /// [`Error::Verity`].
    pub fn source(
        &self,
        supply: Arc<dyn Supply>,
        patience: Duration,
    ) -> Result<(Arc<dyn Source>, bool)> {
        self.known.source(&self.entry, supply, patience)
    }
}

/// The position of the root inode, if the superblock was fetched.
fn root_inode(object: &Preloaded) -> Option<u64> {
    let mut bytes = [0; superblock::SIZE];
    object.read_exact_at(to_u64(superblock::OFFSET), &mut bytes).ok()?;
    let superblock = Superblock::parse(&bytes).ok()?;
    let start = superblock.meta.get().checked_mul(superblock.block_size.bytes64())?;
    // Near the root. Many writers count inodes from the start of the image.
    start.checked_add(superblock.root.get().checked_mul(INODE_SLOT)?)
}

/// The position of the seal behind the image, from the superblock.
fn seal_position(object: &mut Preloaded) -> Result<u64> {
    object.load(0..HEAD, later(Instant::now(), OPEN_TIME))?;
    Ok(appended_position(&*object)?)
}

/// The smallest object with a seal.
#[expect(clippy::as_conversions, reason = "`From` is not usable in a constant")]
const _: () = assert!(SUPERBLOCK_SIZE as u64 <= SEAL);

/// Answers one request for a part of the first bytes from memory: if the bytes are wrong, the server is asked the next time.
struct WithFirstBytes {
    object: Arc<dyn RemoteObject>,
    first: Mutex<Option<Vec<u8>>>,
}

impl WithFirstBytes {
    pub(super) fn new(object: Arc<dyn RemoteObject>, first: Vec<u8>) -> Self {
        Self { object, first: Mutex::new(Some(first)) }
    }
}

impl RemoteObject for WithFirstBytes {
    fn size(&self) -> u64 {
        self.object.size()
    }

    fn validator(&self) -> &Validator {
        self.object.validator()
    }

    fn location(&self) -> &str {
        self.object.location()
    }

    fn ask(
        &self,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Box<dyn Answer + '_>, FetchErrorKind> {
        let mut first = self.first.lock();
        let Some(bytes) = first.take_if(|bytes| range.end <= to_u64(bytes.len())) else {
            drop(first);
            return self.object.ask(range, deadline);
        };
        Ok(Box::new(Memory { bytes, position: to_usize(range.start) }))
    }
}

/// Bytes in memory.
struct Memory {
    bytes: Vec<u8>,
    position: usize,
}

impl Answer for Memory {
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), FetchError> {
        let end = self.position.saturating_add(buf.len());
        let bytes = self.bytes.get(self.position..end).ok_or(FetchErrorKind::Short)?;
        buf.copy_from_slice(bytes);
        self.position = end;
        Ok(())
    }
}

/// The largest access profile that is fetched, in bytes: about 300,000 ranges.
const LARGEST: u64 = 16 << 20;

/// Fetches the profile `object` into `entry`, unless the entry has it: later mounts need no request for it.
fn keep_profile(object: &dyn RemoteObject, entry: &Entry, deadline: Instant) -> Result<()> {
    let (location, failed) =
        (object.location(), |error| Error::Fetch { location: object.location().into(), error });
    if object.size() > LARGEST {
        let problem = format!("has {} bytes, and at most {LARGEST} are used", object.size());
        return Err(Error::Document {
            location: location.into(),
            document: "access profile",
            problem,
        });
    }
    let is_right = |bytes: &[u8]| match object.validator() {
        Validator::Sha256(digest) => {
            ferofs_read::Hex(&Sha256::digest(bytes)).to_string() == *digest
        }
        _ => true,
    };
    let mut kept = Vec::new();
    // One that cannot be read is replaced.
    if let Ok(Some(file)) = entry.profile()
        && file.take(LARGEST).read_to_end(&mut kept).is_ok()
        && matches!(object.validator(), Validator::Sha256(_))
        && is_right(&kept)
    {
        return Ok(());
    }
    let mut bytes = vec![0; to_usize(object.size())];
    if let Err(error) = object.fetch(0, &mut bytes, deadline) {
        // A connection of another request may have been closed by the server.
        if !error.kind.is_temporary() {
            return Err(failed(error));
        }
        object.fetch(0, &mut bytes, deadline).map_err(failed)?;
    }
    if !is_right(&bytes) {
        return Err(failed(FetchError::from(FetchErrorKind::Digest)));
    }
    entry.store_profile(&bytes)
}
