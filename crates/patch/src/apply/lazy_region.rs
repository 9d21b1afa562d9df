//! The bytes that a patch appends, decoded when they are read, for an image that is patched in memory.
//!
//! The patch has a digest of each piece. Each time that a piece is decoded, its bytes must have this digest, so all bytes that are ever
//! read are those of the comparison of the whole result at the start.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, PatchFault, Result};
use crate::format::reader::{Patch, PieceDecoder};
use crate::image::digest::{PieceDigest, of_piece};
use ferofs_read::{Image, Source};

/// Decoded pieces that stay in memory: mostly 64 MiB. A patch with more of them is read slower in places that are far from each other: each read of a
/// piece that is not there decodes up to 4 MiB of content.
pub(crate) const PIECES_KEPT: usize = 16;

/// The bytes that a patch appends.
pub(crate) struct LazyRegion {
    /// The positions of each piece, from the start of the region on, and its digest.
    pieces: Vec<(Range<u64>, PieceDigest)>,
    decoder: Mutex<PieceDecoder<Arc<dyn Source>>>,
    /// The numbers and bytes of pieces, the last used one first.
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
    /// The most of them.
    kept_max: usize,
}

impl LazyRegion {
    /// What `decoder` makes of the pieces of `patch`, of which `kept_max` stay in memory.
    pub(crate) fn new(patch: &Patch, decoder: PieceDecoder<Arc<dyn Source>>, kept_max: usize) -> Self {
        let start = patch.base_size();
        let within = |range: Range<u64>| range.start.saturating_sub(start)..range.end.saturating_sub(start);
        let pieces = patch.appended().map(|(range, digest)| (within(range), digest)).collect();
        Self { pieces, decoder: Mutex::new(decoder), kept: Mutex::default(), kept_max }
    }

    /// Reads the files of the base through `image` from now on.
    pub(crate) fn set_image(&self, image: &Image) {
        self.decoder.lock().set_image(image);
    }

    /// The number of pieces in memory.
    #[cfg(test)]
    pub(crate) fn kept_pieces(&self) -> usize {
        self.kept.lock().len()
    }

    /// A piece that is in memory. It was used last from now on.
    fn kept(&self, number: usize) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(known, _)| *known == number)?;
        let piece = kept.remove(at)?;
        let bytes = Arc::clone(&piece.1);
        kept.push_front(piece);
        Some(bytes)
    }

    fn piece(&self, number: usize, digest: PieceDigest) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.kept(number) {
            return Ok(bytes);
        }
        // One piece is decoded at a time, so that memory is bounded.
        let mut decoder = self.decoder.lock();
        if let Some(bytes) = self.kept(number) {
            return Ok(bytes);
        }
        self.kept.lock().truncate(self.kept_max.saturating_sub(1));
        let mut bytes = Vec::new();
        let decoded = decoder.decode(number, &mut bytes, || Ok(()));
        decoder.release();
        decoded?;
        bytes.shrink_to_fit();
        if of_piece(&bytes, 0..bytes.len() as u64).ok() != Some(digest) {
            return Err(Error::Patch(PatchFault::ResultDiffers));
        }
        let bytes = Arc::new(bytes);
        if self.kept_max > 0 {
            self.kept.lock().push_front((number, Arc::clone(&bytes)));
        }
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
