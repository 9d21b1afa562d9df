//! The bytes that a patch appends, decoded when they are read, for an image that is patched in
//! memory.
//!
//! The patch has a digest of each piece. Each time that a piece is decoded, its bytes must have
//! this digest, so all bytes that are ever read are those of the comparison of the whole result at
//! the start.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, PatchFault, Result};
use crate::format::reader::{Patch, PieceDecoder};
use crate::image::digest::{PieceDigest, of_piece};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{Image, Source};

/// Decoded pieces of all patches of an image, which stay in memory so that they need not be decoded
/// again. A clone is the same cache.
#[derive(Clone, Debug)]
pub struct PieceCache {
    /// The last used one first. Pieces with the same digest have the same bytes.
    pieces: Arc<Mutex<VecDeque<DecodedPiece>>>,
    /// The most bytes of them.
    limit: usize,
}

type DecodedPiece = (PieceDigest, Arc<Vec<u8>>);

/// The most pieces in a cache: it is searched from its start to its end.
const PIECES_MAX: usize = 64;

impl PieceCache {
    /// A cache of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pieces: Arc::default(), limit }
    }

    /// Bytes of the pieces in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pieces.lock().iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// A piece that is there. It was used last from now on.
    fn get(&self, digest: PieceDigest) -> Option<Arc<Vec<u8>>> {
        let mut pieces = self.pieces.lock();
        let at = pieces.iter().position(|(known, _)| *known == digest)?;
        let piece = pieces.remove(at)?;
        let bytes = Arc::clone(&piece.1);
        pieces.push_front(piece);
        Some(bytes)
    }

    fn put(&self, digest: PieceDigest, bytes: &Arc<Vec<u8>>) {
        self.make_space(bytes.len());
        if bytes.len() <= self.limit {
            self.pieces.lock().push_front((digest, Arc::clone(bytes)));
        }
    }

    /// Frees space for a piece of `len` bytes.
    fn make_space(&self, len: usize) {
        let mut pieces = self.pieces.lock();
        pieces.truncate(PIECES_MAX - 1);
        let mut held = len;
        let fits = |(_, bytes): &&DecodedPiece| {
            held = held.saturating_add(bytes.len());
            held <= self.limit
        };
        let kept = pieces.iter().take_while(fits).count();
        pieces.truncate(kept);
    }
}

impl Default for PieceCache {
    /// 64 MiB. Patches that append more are read slower in places that are far from each other:
    /// each read of a piece that is not there decodes up to 4 MiB of content.
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

/// The bytes that a patch appends.
pub(crate) struct LazyRegion {
    /// The positions of each piece, from the start of the region on, and its digest.
    pieces: Vec<(Range<u64>, PieceDigest)>,
    decoder: Mutex<PieceDecoder<Arc<dyn Source>>>,
    cache: PieceCache,
}

impl LazyRegion {
    /// What `decoder` makes of the pieces of `patch`.
    pub(crate) fn new(
        patch: &Patch,
        decoder: PieceDecoder<Arc<dyn Source>>,
        cache: &PieceCache,
    ) -> Self {
        let start = patch.base_size();
        let within =
            |range: Range<u64>| range.start.saturating_sub(start)..range.end.saturating_sub(start);
        let pieces = patch.appended().map(|(range, digest)| (within(range), digest)).collect();
        Self { pieces, decoder: Mutex::new(decoder), cache: cache.clone() }
    }

    /// Reads the files of the base through `image` from now on.
    pub(crate) fn set_image(&self, image: &Image) {
        self.decoder.lock().set_image(image);
    }

    fn piece(&self, number: usize, digest: PieceDigest) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.get(digest) {
            return Ok(bytes);
        }
        // One piece is decoded at a time, so that memory is bounded.
        let mut decoder = self.decoder.lock();
        if let Some(bytes) = self.cache.get(digest) {
            return Ok(bytes);
        }
        let len =
            self.pieces.get(number).map_or(0, |(range, _)| range.end.saturating_sub(range.start));
        self.cache.make_space(to_usize(len));
        let mut bytes = Vec::new();
        let decoded = decoder.decode(number, &mut bytes, || Ok(()));
        decoder.release();
        decoded?;
        bytes.shrink_to_fit();
        if of_piece(&bytes, 0..to_u64(bytes.len())).ok() != Some(digest) {
            return Err(Error::Patch(PatchFault::ResultDiffers));
        }
        let bytes = Arc::new(bytes);
        self.cache.put(digest, &bytes);
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
            let len = to_usize(range.end.saturating_sub(at)).min(buf.len());
            let skip = to_usize(at.saturating_sub(range.start));
            let (now, later) = std::mem::take(&mut buf).split_at_mut(len);
            let bytes = piece.get(skip..).and_then(|rest| rest.get(..len));
            now.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            (buf, at) = (later, at.saturating_add(to_u64(len)));
        }
        Ok(())
    }
}
