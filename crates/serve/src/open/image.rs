//! Opens a remote image, with the server or without it; keeps its first bytes in memory, and its
//! profile in the cache.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_format::superblock::{self, Superblock};
use ferofs_read::{FileSource, Source};
use ferofs_verity::{Digest, Params, SUPERBLOCK_SIZE, Seal, appended_position};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::bases::{bases, open_files};
use super::known::Known;
use super::lazy::{Connect, LazyObject, Piece, Preloaded};
use super::options::{Connected, OpenRemote};
use super::verify::verify;
use crate::cache::{Cache, Entry, UNIT};
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::fetch::{
    Check, Checked, Counters, FetchOptions, Fetcher, KnownBlocks, RetryOptions, TreeCheck, fetch,
};
use crate::object::{Answer, RemoteObject, Validator, later};
use crate::ranges::{narrowed, range_of};
use crate::source::Supply;
use ferofs_format::units::{to_u64, to_usize};

/// An opened remote image: its entry in the cache, and how its missing parts are fetched and
/// checked.
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
    /// A cache with images that may have the same blocks.
    others: Option<Cache>,
    /// The position of the root inode in bytes, from a superblock that nobody has verified.
    metadata: Option<u64>,
    /// The access profile that the server has.
    profile: Option<Arc<dyn RemoteObject>>,
    notices_changes: bool,
}

/// Bytes at the start of the object that are fetched to open it, with the superblock.
const HEAD: u64 = 12 << 10;
/// Bytes at the start of another object, by which its format is recognised.
const FORMAT: u64 = 256 << 10;
/// Bytes from the seal on that are fetched to open it: its superblock and the highest levels of the
/// tree. A new connection brings more only after more round trips.
const SEAL: u64 = 16 << 10;
/// Bytes that the number of an inode counts.
const INODE_SLOT: u64 = 32;
/// Bytes of metadata that are fetched while the image is opened: those nearest to the root, and
/// more.
const METADATA: [u64; 2] = [128 << 10, 4 << 20];
/// The most bytes of the upper levels of the tree that are fetched while the image is opened: each
/// read needs some of them. Those of an image of 8 GB have 512 KiB.
const UPPER_LEVELS: u64 = 512 << 10;
/// The time to open an image.
const OPEN_TIME: Duration = Duration::from_secs(30);

impl std::fmt::Debug for RemoteImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteImage").field("known", &self.known).finish_non_exhaustive()
    }
}

impl RemoteImage {
    /// Opens the image at `location`, a name without passwords for messages and for the cache.
    /// `connect` is called at most once, and not before bytes are needed that the cache does not
    /// have.
    ///
    /// # Errors
    /// [`Error::Fetch`] and others of `connect`; [`Error::Document`] without a root hash unless
    /// that is allowed, and offline for an image that is not in the cache; [`Error::Io`];
    /// [`Error::Verity`].
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
        // A location at which it was never found may be a wrong one.
        let is_elsewhere = known.as_ref().is_some_and(|known| {
            !options.offline && !known.was_at(&cache, location).unwrap_or(false)
        });
        if let Some(known) = known.filter(|_| !is_elsewhere) {
            return Self::with_known(location, connect, cache, known, reuse, options.offline);
        }
        if options.offline {
            return Err(Error::document(location, "image", "is not in the cache"));
        }
        let opened = connect()
            .and_then(|object| Self::open_connected(location, object, cache, reuse, options));
        opened.map_err(|error| {
            let error = match error {
                Error::Verity(error) => Error::document(location, "seal", error.to_string()),
                error => error,
            };
            if is_elsewhere { Error::OnlyInCache(Box::new(error)) } else { error }
        })
    }

    /// Opens an image that another process, or this one, has opened before. Files of `reuse` that
    /// are gone are left out.
    ///
    /// # Errors
    /// [`Error::Io`].
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
        let connect = (!offline).then_some(connect);
        let object = Arc::new(LazyObject::new(location, known.clone(), connect));
        Self::new(location, object, Vec::new(), cache, known, reuse)
    }

    fn new(
        location: &str,
        object: Arc<dyn RemoteObject>,
        pieces: Vec<Piece>,
        cache: Cache,
        known: Known,
        reuse: Vec<Arc<FileSource>>,
    ) -> Result<Self> {
        let entry = known.open_entry(&cache, location)?;
        let (location, others) = (location.to_owned(), Some(cache.clone()));
        let (metadata, profile, notices_changes) = (None, None, true);
        Ok(Self {
            object,
            cache,
            entry,
            known,
            pieces,
            location,
            reuse,
            others,
            metadata,
            profile,
            notices_changes,
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
            return Err(Error::document(location, "manifest", problem));
        }
        let (root, validator) = (options.root.or(root), object.validator().clone());
        let mut object = Preloaded::new(object, first_bytes);
        let deadline = later(Instant::now(), OPEN_TIME);
        let known = if let Some(root) = root {
            sealed(&mut object, root, options.hash_offset.or(hash_offset), deadline)?
        } else if options.allow_unverified {
            object.load(0..HEAD, deadline)?;
            let start = object.first_bytes().get(superblock::OFFSET..).unwrap_or_default();
            if let Err(error) = Superblock::parse(start) {
                // Nothing is stored. Bytes that do not come only leave a hint out.
                let _ = object.load(0..FORMAT, deadline);
                let (location, first_bytes) = (location.into(), object.first_bytes().to_vec());
                return Err(Error::NoImage { location, error, first_bytes });
            }
            Known::unverified(location, object.size(), &validator)
        } else {
            let problem = "names no root hash: give the right one with --roothash, or allow bytes that nobody has verified with --insecure-no-verify";
            return Err(Error::document(location, "image", problem));
        };
        let metadata = root_inode(&object);
        let notices_changes = root.is_some() || validator != Validator::None;
        let (object, pieces) = object.into_parts();
        let image = Self::new(location, object, pieces, cache, known, reuse)?;
        image.known.remember(&image.cache, location)?;
        Ok(Self { metadata, profile, notices_changes, ..image })
    }

    /// An object of which all is fetched into `cache`, an image or not. `options` has its root
    /// hash; blocks are copied from `reuse`, and from the images of `others`.
    ///
    /// # Errors
    /// [`Error::Fetch`] and [`Error::Verity`] if its seal cannot be read until `deadline`;
    /// [`Error::Io`].
    pub(crate) fn open_complete(
        connected: &Connected,
        cache: Cache,
        others: Option<Cache>,
        reuse: Vec<Arc<FileSource>>,
        options: &OpenRemote,
        deadline: Instant,
    ) -> Result<Self> {
        let Connected { object, first_bytes, root, hash_offset, .. } = connected;
        let mut object = Preloaded::new(Arc::clone(object), first_bytes.clone());
        let known = match options.root.or(*root) {
            Some(root) => {
                sealed(&mut object, root, options.hash_offset.or(*hash_offset), deadline)?
            }
            // At another location, the same object is continued.
            None => Known::unverified("", object.size(), connected.object.validator()),
        };
        let (object, pieces) = object.into_parts();
        let location = connected.object.location();
        let image = Self::new(location, object, pieces, cache, known, reuse)?;
        Ok(Self { others, ..image })
    }

    /// Its entry in the cache.
    pub(crate) const fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Checks what is stored, and removes what is wrong.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Verity`].
    pub(crate) fn verify_stored(&self) -> Result<()> {
        self.known.seal()?.map_or(Ok(()), |(seal, root)| verify(&self.entry, &seal, root).map(drop))
    }

    /// The values that another process needs to read the entry.
    #[must_use]
    pub const fn known(&self) -> &Known {
        &self.known
    }

    /// False if the server has just opened an image of which nothing but the size tells whether it
    /// changes: a reader may get bytes of several versions.
    #[must_use]
    pub const fn notices_changes(&self) -> bool {
        self.notices_changes
    }

    /// Keeps the access profile that the server has in the entry ([`Entry::profile`]), for the
    /// process that decodes the image. Without one on the server, the one that was kept before
    /// stays.
    ///
    /// # Errors
    /// [`Error::Fetch`] if it does not come until `deadline`, or has another digest;
    /// [`Error::Document`] if it is too large; [`Error::Io`].
    pub fn keep_profile(&self, deadline: Instant) -> Result<()> {
        self.profile
            .as_ref()
            .map_or(Ok(()), |server| keep_profile(&**server, &self.entry, deadline))
    }

    /// Starts the threads that fetch its parts.
    ///
    /// # Errors
    /// [`Error::Verity`], [`Error::Io`].
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
        let fetcher = Fetcher::start(object, self.cache.clone(), entry, check, known, options)?;
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

    /// The blocks of other images on this machine, if there are others and this image is not
    /// complete.
    fn known_blocks(&self, params: Params) -> Option<Arc<KnownBlocks>> {
        let (files, others, location) =
            (self.reuse.clone(), self.others.clone(), self.location.clone());
        // Another cache may have the same image.
        let is_own = others.as_ref().is_some_and(|cache| cache.folder() == self.cache.folder());
        let key = if is_own { self.known.key() } else { String::new() };
        let is_complete = self.entry.has(0..self.entry.size()).unwrap_or(true);
        let has_others = others.as_ref().is_some_and(|cache| cache.has_others(&key));
        if is_complete || (files.is_empty() && !has_others) {
            return None;
        }
        Some(KnownBlocks::start(params, move || bases(files, others.as_ref(), &location, &key)))
    }

    /// The object, which gives its first bytes from memory if they could not be checked and stored
    /// yet.
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
        // The hashes come after the data that they are of.
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

    /// The bytes of the image, which `supply` fetches into the cache, and whether they are
    /// verified. Each read waits at most `patience`. The reader also verifies bytes that have a
    /// root hash: it trusts neither the fetcher nor the disk.
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

/// What is known of an object with this root hash, from its seal: at `position`, or after the
/// image.
fn sealed(
    object: &mut Preloaded,
    root: Digest,
    position: Option<u64>,
    deadline: Instant,
) -> Result<Known> {
    let position = match position {
        Some(position) => position,
        None => {
            object.load(0..HEAD, deadline)?;
            appended_position(&*object)?
        }
    };
    object.load(position..position.saturating_add(SEAL), deadline)?;
    Ok(Known::sealed(object.size(), root, &Seal::read(&*object, position)?))
}

/// The smallest object with a seal.
#[expect(clippy::as_conversions, reason = "`From` is not usable in a constant")]
const _: () = assert!(SUPERBLOCK_SIZE as u64 <= SEAL);

/// Answers one request for a part of the first bytes from memory: if the bytes are wrong, the
/// server is asked the next time.
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

/// Fetches the profile `object` into `entry`, unless the entry has it: later mounts need no request
/// for it.
fn keep_profile(object: &dyn RemoteObject, entry: &Entry, deadline: Instant) -> Result<()> {
    if object.size() > LARGEST {
        let problem = format!("has {} bytes, and at most {LARGEST} are used", object.size());
        return Err(Error::document(object.location(), "access profile", problem));
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
    let (retry, counters) = (RetryOptions::default(), Counters::default());
    fetch(object, 0, &mut bytes, &retry, &deadline, &counters, |bytes| Ok(is_right(bytes)))
        .map_err(|kind| Error::fetch(object.location(), kind))?;
    entry.store_profile(&bytes)
}
