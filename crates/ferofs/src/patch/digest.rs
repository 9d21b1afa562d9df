//! Digests of whole images: BLAKE3 of each MiB, and BLAKE3 of all those.
//!
//! Pieces are hashed on all processors, and what a patch leaves alone need not be hashed again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Error, Result};
use ferofs_read::Source;
use ferofs_threads as threads;

/// Bytes of a piece. It shows in the digest.
const PIECE: u64 = 1 << 20;

/// A digest.
pub(crate) type Digest = [u8; 32];

/// The digests of an image's pieces.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    size: u64,
    pieces: Vec<Digest>,
}

impl Pieces {
    /// Hashes the first `size` bytes of `source`; what it does not have counts as zeroes.
    pub(crate) fn of(source: &dyn Source, size: u64, cancel: &AtomicBool) -> Result<Self> {
        let count = usize::try_from(size.div_ceil(PIECE)).unwrap_or(usize::MAX);
        let pieces = hash(source, size, &(0..count).collect::<Vec<_>>(), cancel)?;
        Ok(Self { size, pieces })
    }

    /// The digests after `source` became another one of `size` bytes, all of whose changes touch `changed`.
    pub(crate) fn changed(
        &self,
        source: &dyn Source,
        size: u64,
        changed: &[std::ops::Range<u64>],
        cancel: &AtomicBool,
    ) -> Result<Self> {
        let count = usize::try_from(size.div_ceil(PIECE)).unwrap_or(usize::MAX);
        let kept = self.pieces.len().min(count);
        // The last piece may have become longer.
        let first_new = if self.size == size { kept } else { kept.saturating_sub(1) };
        let touched = |piece: usize| {
            let start = (piece as u64).saturating_mul(PIECE);
            changed.iter().any(|range| range.start < start.saturating_add(PIECE) && start < range.end)
        };
        let wanted: Vec<usize> =
            (0..first_new).filter(|piece| touched(*piece)).chain(first_new..count).collect();
        let hashed = hash(source, size, &wanted, cancel)?;
        let mut pieces = self.pieces.clone();
        pieces.resize(count, [0; 32]);
        for (piece, digest) in wanted.into_iter().zip(hashed) {
            if let Some(slot) = pieces.get_mut(piece) {
                *slot = digest;
            }
        }
        Ok(Self { size, pieces })
    }

    /// The image's digest.
    pub(crate) fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        for piece in &self.pieces {
            hasher.update(piece);
        }
        *hasher.finalize().as_bytes()
    }
}

fn hash(source: &dyn Source, size: u64, wanted: &[usize], cancel: &AtomicBool) -> Result<Vec<Digest>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len().max(1));
    let next = AtomicUsize::new(0);
    let have = source.size();
    let work = || {
        let mut buffer = vec![0; PIECE as usize];
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = wanted.get(number) else { return Ok(done) };
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let start = (*piece as u64).saturating_mul(PIECE);
            let len = size.saturating_sub(start).min(PIECE) as usize;
            let present = have.saturating_sub(start).min(len as u64) as usize;
            buffer[present..].fill(0);
            if present > 0 {
                source
                    .read_exact_at(start, &mut buffer[..present])
                    .map_err(|e| Error::io_unnamed("read the image", e))?;
            }
            done.push((number, *blake3::hash(&buffer[..len]).as_bytes()));
        }
    };
    let mut digests = vec![[0; 32]; wanted.len()];
    std::thread::scope(|scope| {
        for thread in threads::start(scope, workers, || work)? {
            let done: Result<Vec<(usize, Digest)>> = threads::pass_on(thread.join());
            for (number, digest) in done? {
                digests[number] = digest;
            }
        }
        Ok(digests)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_changes() {
        let cancel = AtomicBool::new(false);
        let mut image = vec![7u8; (3 << 20) + 5];
        let before = Pieces::of(&image, image.len() as u64, &cancel).unwrap();
        image[2_000_000] = 8;
        image.resize((4 << 20) + 100, 9);
        let size = image.len() as u64;
        let fresh = Pieces::of(&image, size, &cancel).unwrap();
        let followed = before.changed(&image, size, &[0..1, 2_000_000..2_000_001], &cancel).unwrap();
        assert_eq!(followed.digest(), fresh.digest());
        assert_ne!(before.digest(), fresh.digest());
        let missed = before.changed(&image, size, &[], &cancel).unwrap();
        assert_ne!(missed.digest(), fresh.digest());
    }
}
