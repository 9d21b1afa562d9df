//! The bytes that a patch appends, decoded when they are read, for an image that is patched in memory.
//!
//! The patch has a digest of each piece. Each time that a piece is decoded, its bytes must have this digest, so all bytes that are ever
//! read are those of the comparison of the whole result at the start.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, PatchFault, Result};
use crate::format::reader::{Patch, PieceDecoder};
use crate::image::digest::{PieceDigest, of_piece};
use ferofs_read::{Image, Source};

/// Decoded pieces of all patches that share it. A clone is the same cache.
#[derive(Clone, Debug)]
pub struct PieceCache(Arc<Mutex<Cached>>);

/// The region, and the number of the piece.
type Key = (u64, usize);

#[derive(Debug)]
struct CachedPiece {
    last_use: u64,
    bytes: Arc<Vec<u8>>,
}

#[derive(Debug)]
struct Cached {
    /// Bytes that it may hold.
    limit: usize,
    bytes: usize,
    pieces: HashMap<Key, CachedPiece>,
    /// The same pieces by last use.
    by_use: BTreeMap<u64, Key>,
    /// The number of the next use.
    next_use: u64,
}

/// Bytes that a piece in a cache takes beside its content: a patch can have many short ones.
const ENTRY: usize = 256;

impl PieceCache {
    /// The bytes that a cache holds by default. A patch that appends less is decoded once. A patch that appends more is read slower in places that are
    /// far from each other: each read of a piece that is not there decodes up to 4 MiB of content.
    pub const DEFAULT: usize = 64 << 20;

    /// A cache of at most `limit` bytes. Pieces that are being read, and the last one in any case, are not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Cached {
            limit,
            bytes: 0,
            pieces: HashMap::new(),
            by_use: BTreeMap::new(),
            next_use: 0,
        })))
    }

    /// Bytes of the pieces in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    fn get(&self, region: u64, number: usize) -> Option<Arc<Vec<u8>>> {
        self.0.lock().get((region, number))
    }

    /// Frees space for a piece of `len` bytes.
    fn make_space(&self, len: usize) {
        self.0.lock().make_space(len);
    }

    fn put(&self, region: u64, number: usize, bytes: &Arc<Vec<u8>>) {
        let mut cached = self.0.lock();
        cached.make_space(bytes.len());
        cached.put((region, number), Arc::clone(bytes));
    }
}

impl Cached {
    /// A piece that is there. It was used last from now on.
    fn get(&mut self, key: Key) -> Option<Arc<Vec<u8>>> {
        let piece = self.pieces.get_mut(&key)?;
        self.by_use.remove(&piece.last_use);
        piece.last_use = self.next_use;
        self.by_use.insert(self.next_use, key);
        self.next_use += 1;
        Some(Arc::clone(&piece.bytes))
    }

    fn put(&mut self, key: Key, bytes: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let piece = CachedPiece { last_use: self.next_use, bytes };
        if let Some(before) = self.pieces.insert(key, piece) {
            self.by_use.remove(&before.last_use);
            self.bytes = self.bytes.saturating_sub(before.bytes.len());
        }
        self.by_use.insert(self.next_use, key);
        self.next_use += 1;
    }

    fn make_space(&mut self, len: usize) {
        let taken = |cached: &Self| cached.pieces.len().saturating_mul(ENTRY).saturating_add(cached.bytes);
        while taken(self).saturating_add(len) > self.limit
            && let Some((_, key)) = self.by_use.pop_first()
            && let Some(piece) = self.pieces.remove(&key)
        {
            self.bytes = self.bytes.saturating_sub(piece.bytes.len());
        }
    }
}

impl Default for PieceCache {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

/// Numbers the regions of the process, as keys of caches.
static NEXT_REGION: AtomicU64 = AtomicU64::new(0);

/// The bytes that a patch appends.
pub(crate) struct LazyRegion {
    number: u64,
    /// The positions of each piece, from the start of the region on, and its digest.
    pieces: Vec<(Range<u64>, PieceDigest)>,
    decoder: Mutex<PieceDecoder<Arc<dyn Source>>>,
    cache: PieceCache,
}

impl LazyRegion {
    /// What `decoder` makes of the pieces of `patch`.
    pub(crate) fn new(patch: &Patch, decoder: PieceDecoder<Arc<dyn Source>>, cache: &PieceCache) -> Self {
        let start = patch.base_size();
        let within = |range: Range<u64>| range.start.saturating_sub(start)..range.end.saturating_sub(start);
        let pieces = patch.appended().map(|(range, digest)| (within(range), digest)).collect();
        let number = NEXT_REGION.fetch_add(1, Ordering::Relaxed);
        Self { number, pieces, decoder: Mutex::new(decoder), cache: cache.clone() }
    }

    /// Reads the files of the base through `image` from now on.
    pub(crate) fn set_image(&self, image: &Image) {
        self.decoder.lock().set_image(image);
    }

    fn piece(&self, number: usize, digest: PieceDigest) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.get(self.number, number) {
            return Ok(bytes);
        }
        // One piece is decoded at a time, so that memory is bounded.
        let mut decoder = self.decoder.lock();
        if let Some(bytes) = self.cache.get(self.number, number) {
            return Ok(bytes);
        }
        let len = self.pieces.get(number).map_or(0, |(range, _)| range.end.saturating_sub(range.start));
        self.cache.make_space(usize::try_from(len).unwrap_or(usize::MAX));
        let mut bytes = Vec::new();
        let decoded = decoder.decode(number, &mut bytes, || Ok(()));
        decoder.release();
        decoded?;
        bytes.shrink_to_fit();
        if of_piece(&bytes, 0..len).ok() != Some(digest) {
            return Err(Error::Patch(PatchFault::ResultDiffers));
        }
        let bytes = Arc::new(bytes);
        self.cache.put(self.number, number, &bytes);
        Ok(bytes)
    }
}

impl Source for LazyRegion {
    fn size(&self) -> u64 {
        self.pieces.last().map_or(0, |(range, _)| range.end)
    }

    fn read_exact_at(&self, pos: u64, mut buf: &mut [u8]) -> io::Result<()> {
        let mut at = pos;
        while !buf.is_empty() {
            let number = self.pieces.partition_point(|(range, _)| range.end <= at);
            let Some((range, digest)) = self.pieces.get(number) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let piece = self.piece(number, *digest).map_err(io::Error::other)?;
            let len = range.end.saturating_sub(at).min(buf.len() as u64) as usize;
            let skip = at.saturating_sub(range.start) as usize;
            let (now, later) = std::mem::take(&mut buf).split_at_mut(len);
            let bytes = piece.get(skip..).and_then(|rest| rest.get(..len));
            now.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            (buf, at) = (later, at.saturating_add(len as u64));
        }
        Ok(())
    }
}
