//! A verified image whose wrong bytes in the cache are fetched again.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::{Access, ReadRange, Source};
use ferofs_verity::{IntegrityError, Seal, VerifiedSource};

use crate::error::Result;
use crate::object::later;
use crate::ranges::range_of;
use crate::source::Supply;

/// How often parts of one range are fetched again: its data, and the hash blocks above it. A broken
/// disk must not keep a reader for ever.
const REPAIRS: usize = 16;

/// Verifies what `S` reads from the cache. The disk may have changed it, or somebody who can write
/// to the cache: such blocks are removed and fetched again.
pub(super) struct RepairedSource<S> {
    verified: VerifiedSource<S, S>,
    supply: Arc<dyn Supply>,
    /// How long a read waits for the server.
    patience: Duration,
    tree_start: u64,
    data_block_size: u64,
    hash_block_size: u64,
}

impl<S: Source + Clone> RepairedSource<S> {
    /// Verifies `stored`, an object with the seal `seal`.
    pub(super) fn new(
        stored: S,
        seal: &Seal,
        root: ferofs_verity::Digest,
        supply: Arc<dyn Supply>,
        patience: Duration,
    ) -> Result<Self> {
        let verified = seal.verified(stored.clone(), stored, root)?.check_each_read();
        let layout = verified.verifier().layout();
        let (data_block_size, hash_block_size) =
            (layout.data_block_size(), layout.hash_block_size());
        Ok(Self {
            verified,
            supply,
            patience,
            tree_start: seal.tree_start(),
            data_block_size,
            hash_block_size,
        })
    }
}

impl<S: Source> RepairedSource<S> {
    /// The bytes of the object that are to be checked again, and fetched again if they are wrong,
    /// after a read of `wanted` failed.
    fn wrong_bytes(&self, error: &io::Error, wanted: &[Range<u64>]) -> Option<Range<u64>> {
        let error = error.get_ref()?.downcast_ref::<IntegrityError>()?;
        let at = error.position;
        if error.is_hash {
            let start = self.tree_start.saturating_add(at);
            return Some(start..start.saturating_add(self.hash_block_size));
        }
        // The bytes after it are probably also wrong.
        let block = at..at.saturating_add(self.data_block_size);
        let read = wanted.iter().find(|range| range.start < block.end && block.start < range.end);
        Some(at..read.map_or(block.end, |range| range.end.max(block.end)))
    }

    /// Calls `read`, which reads `wanted`, and again after wrong bytes have been fetched again.
    fn read(
        &self,
        wanted: &[Range<u64>],
        mut read: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut deadline = None;
        for _ in 0..REPAIRS.saturating_mul(wanted.len()) {
            let Err(error) = read() else { return Ok(()) };
            let Some(wrong) = self.wrong_bytes(&error, wanted) else { return Err(error) };
            let deadline = *deadline.get_or_insert_with(|| later(Instant::now(), self.patience));
            // The first error tells more.
            self.supply.repair(wrong, deadline).map_err(|_| error)?;
        }
        read()
    }
}

impl<S: Source> Source for RepairedSource<S> {
    fn size(&self) -> u64 {
        self.verified.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(&[range_of(pos, buf)], || self.verified.read_exact_at(pos, buf))
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(&[range_of(pos, buf)], || self.verified.read_sparse_at(pos, buf))
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        let wanted: Vec<_> = ranges.iter().map(|range| range_of(range.pos, range.buf)).collect();
        self.read(&wanted, || self.verified.read_ranges(ranges, access))
    }

    fn prefers_batches(&self) -> bool {
        self.verified.prefers_batches()
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        // Wrong bytes are repaired by the read that follows.
        self.verified.read_if_cached(pos, buf)
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.verified.will_need(pos, len);
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        self.verified.identity()
    }
}
