//! A remote object as the source of an image: bytes from the cache, after the fetcher has stored
//! them there. Sequential readers are recognized, and the bytes after theirs fetched ahead.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::{Access, ReadRange, Source};
use parking_lot::Mutex;

use crate::cache::Entry;
use crate::fetch::{Failure, Fetcher};
use crate::object::later;
use crate::ranges::range_of;

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

    /// Removes what is stored of `range` with wrong bytes, and returns when all bytes of `range`
    /// are stored again.
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
    /// The object in `entry`, which `supply` fills. A read fails if its bytes have not come after
    /// `patience`.
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

    fn prefers_batches(&self) -> bool {
        true
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.announce(pos..pos.saturating_add(len));
    }
}

/// Sequences that are known at a time.
const STREAMS: usize = 8;
/// Bytes fetched ahead of a new sequence, and of one that has gone on for long: they arrive in 100
/// ms at 1 Gbit/s. Those after the last read are fetched in vain.
const FIRST: u64 = 512 << 10;
const LONGEST: u64 = 12 << 20;
/// A read belongs to a sequence if it starts at most this far after its end or before it: threads
/// read a file out of order.
const GAP: u64 = 256 << 10;

/// The sequences of reads.
#[derive(Debug, Default)]
struct ReadAhead {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    streams: [Stream; STREAMS],
    /// Counts the reads.
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The end of the last read.
    end: u64,
    /// The end of what was fetched ahead.
    announced: u64,
    /// Bytes to fetch ahead; 0 after one read.
    window: u64,
    /// The last read.
    used: u64,
}

impl ReadAhead {
    /// Records a read. Returns what should be fetched ahead now. Nothing as long as the sequence
    /// reads what `is_stored` already: the next bytes may also be stored, or not be wanted, as
    /// after the last file of an access profile.
    pub(crate) fn next(
        &self,
        read: Range<u64>,
        is_stored: impl FnOnce() -> bool,
    ) -> Option<Range<u64>> {
        let mut all = self.streams.lock();
        all.clock = all.clock.saturating_add(1);
        let clock = all.clock;
        let known = all.streams.iter_mut().find(|stream| {
            stream.used > 0
                && read.start.saturating_add(GAP) >= stream.end
                && read.start <= stream.end.saturating_add(GAP)
        });
        let Some(stream) = known else {
            let oldest = all.streams.iter_mut().min_by_key(|stream| stream.used)?;
            *oldest = Stream { end: read.end, announced: read.end, window: 0, used: clock };
            return None;
        };
        stream.used = clock;
        if read.end <= stream.end {
            return None;
        }
        stream.end = read.end;
        stream.announced = stream.announced.max(read.end);
        if stream.window == 0 && is_stored() {
            return None;
        }
        // Three quarters of the window are still ahead. Larger steps would leave connections
        // unused.
        let most = (stream.window / 4).saturating_mul(3);
        if stream.window > 0 && stream.announced.saturating_sub(read.end) > most {
            return None;
        }
        stream.window = stream.window.saturating_mul(2).clamp(FIRST, LONGEST);
        let ahead = stream.announced..read.end.saturating_add(stream.window);
        stream.announced = ahead.end.max(stream.announced);
        (!ahead.is_empty()).then_some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_fetched_ahead_and_random_reads_are_not() {
        let ahead = ReadAhead::default();
        let mut announced: Vec<Range<u64>> = Vec::new();
        for start in (0..64 << 20).step_by(128 << 10) {
            // Two other readers read at random.
            assert_eq!(
                ahead.next(
                    start * 7919 % (1 << 40) + (1 << 41)
                        ..start * 7919 % (1 << 40) + (1 << 41) + 4096,
                    || false
                ),
                None
            );
            announced.extend(ahead.next(start..start + (128 << 10), || false));
            if start > 16 << 20 {
                let end = announced.last().unwrap().end;
                assert!(end > start + (5 << 20), "{start}: {end}");
            }
        }
        assert!(
            announced.windows(2).all(|pair| pair[0].end == pair[1].start),
            "without gaps or repetitions"
        );
        assert!(announced.len() < 32, "{announced:?}");
    }
    #[test]
    fn nothing_is_fetched_ahead_of_what_is_stored() {
        let ahead = ReadAhead::default();
        for start in (0..10 << 20).step_by(128 << 10) {
            assert_eq!(ahead.next(start..start + (128 << 10), || true), None);
        }
        let (start, end) = (10 << 20, (10 << 20) + 4096);
        assert_eq!(ahead.next(start..end, || false), Some(end..end + FIRST));
        // The bytes that were fetched ahead are stored now.
        assert!(ahead.next(end..end + FIRST, || true).is_some());
    }
}
