//! A remote object as the source of an image: bytes from the cache, after the fetcher has stored them there.

mod read_ahead;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::{Access, ReadRange, Source};

use self::read_ahead::ReadAhead;
use crate::cache::Entry;
use crate::fetch::{Failure, Fetcher};
use crate::numbers::range_of;
use crate::object::later;

/// Fetches bytes into the cache: a [`Fetcher`] of this process, or one of another process
/// ([`crate::channel::Client`]).
pub trait Supply: Send + Sync {
    /// Returns when all bytes of `range` are stored.
    ///
    /// # Errors
    /// [`Failure`], at `deadline` at the latest.
    fn ensure(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure>;

    /// Announces that `range` will be needed. Does not wait.
    fn prefetch(&self, range: Range<u64>);

    /// Removes what is stored of `range` with wrong bytes, and returns when all bytes of `range` are stored again.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    fn repair(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure>;
}

impl Supply for Fetcher {
    fn ensure(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure> {
        self.ensure(range, deadline)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.prefetch(range);
    }

    fn repair(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure> {
        self.remove_wrong(range.clone())?;
        self.ensure(range, deadline)
    }
}

/// An object in the cache, whose missing parts are fetched when they are read.
pub struct RemoteSource {
    entry: Arc<Entry>,
    supply: Arc<dyn Supply>,
    /// How long a read waits for the server.
    patience: Duration,
    read_ahead: ReadAhead,
}

impl std::fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSource").field("entry", &self.entry.path()).finish_non_exhaustive()
    }
}

impl RemoteSource {
    /// The object in `entry`, which `supply` fills. A read fails if its bytes have not come after `patience`.
    #[must_use]
    pub fn new(entry: Arc<Entry>, supply: Arc<dyn Supply>, patience: Duration) -> Self {
        Self { entry, supply, patience, read_ahead: ReadAhead::default() }
    }

    fn read(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut deadline = None;
        while !self.entry.read(pos, buf)? {
            let now = Instant::now();
            let deadline = *deadline.get_or_insert(later(now, self.patience));
            if deadline < now {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // `Entry::read` has checked the end.
            self.supply.ensure(range_of(pos, buf), deadline)?;
        }
        if deadline.is_none() {
            self.entry.count_ready(buf.len());
        }
        Ok(())
    }

    fn announce(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.entry.size());
        // If the cache cannot be read, the read will tell.
        if !range.is_empty() && !self.entry.has(range.clone()).unwrap_or(true) {
            self.supply.prefetch(range);
        }
    }
}

/// How far ahead of a program the reader of an image announces what it will read.
const DISTANCE: u64 = 12 << 20;

impl Source for RemoteSource {
    fn size(&self) -> u64 {
        self.entry.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = range_of(pos, buf);
        let is_stored = || self.entry.has(read.clone()).unwrap_or(false);
        if let Some(range) = self.read_ahead.next(read.clone(), is_stored) {
            self.announce(range);
        }
        self.read(pos, buf)
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(pos, buf)
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        // All are fetched at the same time. The first is asked for by its own read.
        for range in ranges.iter().skip(1) {
            self.announce(range_of(range.pos, range.buf));
        }
        ranges.iter_mut().try_for_each(|range| match access {
            Access::Sequential => self.read_exact_at(range.pos, range.buf),
            Access::Sparse => self.read_sparse_at(range.pos, range.buf),
        })
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        self.entry.read(pos, buf).unwrap_or(false)
    }

    /// Bytes that arrive in twice the latency of a far server (50 ms) over a fast line (1 Gbit/s).
    fn prefetch_distance(&self) -> u64 {
        DISTANCE
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.announce(pos..pos.saturating_add(len));
    }
}
