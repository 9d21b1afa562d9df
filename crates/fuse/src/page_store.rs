//! Read-around: stores more pages in the kernel's page cache than a read asked for, which saves later requests.
//!
//! If reads are not sequential, the kernel asks for single pages. The daemon then also stores pages around them in the page
//! cache (`FUSE_NOTIFY_STORE`), so that random reads of a whole file decode each cluster about once:
//!
//! - for a random read, the other whole pages of the clusters that the read decodes anyway;
//! - for a random read in a region of which most is read, a whole window, decoded with one call;
//! - for a stride, the pages of its next steps, stored before the reply, so that the kernel does not ask for them;
//! - if the kernel evicts stored pages before they are read (thrashing), no pages.
//!
//! [`ferofs_read::access`] classifies the reads, but only small ones: large reads are the kernel's own read-ahead. The bytes
//! that are stored for a read are limited.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferofs_read::access::page_reads::{Ahead, Pattern, Patterns};
use ferofs_read::{Extent, ExtentData, File, FileOffset, Inode};
use fuser::{INodeNo, Notifier};

use crate::stats::Counters;

/// The largest read that is classified, in bytes. Larger reads are the kernel's own read-ahead.
const SMALL_READ: u64 = 16 << 10;
/// How far before and after a read the pages of its clusters are stored, in bytes. This limits the time of a request in
/// clusters of several MiB.
const MAX_DISTANCE: u64 = 128 << 10;
/// The number of extents that are looked up for a small read. A read of more extents gets no read-around.
const MAX_EXTENTS: usize = 16;
/// The smallest window in a region of which most is read, in bytes: as much as the kernel's default read-ahead.
const MIN_WINDOW: u64 = 128 << 10;
/// The number of clusters in a window at least. A cluster across the end of a window is decoded for the next window again:
/// with four clusters this costs a quarter at most.
const WINDOW_CLUSTERS: u64 = 4;

/// Decides what to store in the kernel's page cache, and stores it.
#[derive(Debug)]
pub(crate) struct PageStore {
    page_size: u64,
    max_window: u64,
    patterns: Patterns,
    notifier: OnceLock<Notifier>,
    /// The number of further threads that may store now.
    ///
    /// Storing a page waits while another unanswered read has locked the page. At most all threads but one may store, so that
    /// one thread can always answer that read: otherwise all threads could wait for each other.
    permits: AtomicUsize,
    /// Whether a thread stores before its reply. Two of them could wait for each other's reply.
    is_ahead: AtomicBool,
}

/// What to read for a small read.
pub(crate) enum Plan {
    /// Only the wanted range.
    Wanted,
    /// This range, which contains the wanted one.
    Around(Range<u64>),
    /// The wanted range, and as many bytes at the next steps of a stride.
    Ahead(Ahead),
}

/// The permission to store pages. Dropping it gives the permission back.
pub(crate) struct Store<'a> {
    page_store: &'a PageStore,
    notifier: &'a Notifier,
    counters: &'a Counters,
    is_ahead: bool,
}

impl PageStore {
    /// `threads` is the number of threads that answer requests; windows have at most `max_window` bytes.
    pub(crate) fn new(threads: usize, max_window: u64) -> Self {
        Self {
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            max_window: max_window.max(MIN_WINDOW),
            patterns: Patterns::default(),
            notifier: OnceLock::new(),
            permits: AtomicUsize::new(threads.saturating_sub(1)),
            is_ahead: AtomicBool::new(false),
        }
    }

    /// Sets the connection to the kernel. Before this, no pages are stored.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // Cannot fail: a page store belongs to one session, which calls this once.
        let _ = self.notifier.set(notifier);
    }

    /// Plans the read of `wanted`, which is not empty and within the file.
    pub(crate) fn plan(&self, file: &mut File<'_>, wanted: &Range<u64>) -> Plan {
        // A read that does not start at a page bypasses the page cache. A read at the start of a file is mostly the first of
        // a sequential read.
        if wanted.end.saturating_sub(wanted.start) > SMALL_READ
            || wanted.start == 0
            || !wanted.start.is_multiple_of(self.page_size)
            || self.permits.load(Ordering::Relaxed) == 0
            || self.notifier.get().is_none()
        {
            return Plan::Wanted;
        }
        let nid = file.inode().nid();
        match self.patterns.note(nid, wanted.start) {
            Pattern::Stride(None) | Pattern::Thrashing => Plan::Wanted,
            Pattern::Stride(Some(ahead)) => Plan::Ahead(ahead),
            Pattern::Random { mostly_read } => {
                let around = self.around(file, wanted, mostly_read);
                self.patterns.stored(nid, around.as_ref().unwrap_or(wanted));
                around.map_or(Plan::Wanted, Plan::Around)
            }
        }
    }

    fn around(&self, file: &mut File<'_>, wanted: &Range<u64>, mostly_read: bool) -> Option<Range<u64>> {
        let size = file.inode().size();
        let first = file.extent_at(FileOffset::new(wanted.start)).ok()??;
        if mostly_read {
            return Some(aligned_window(first.len, wanted, size, self.max_window));
        }
        let mut last = first;
        for _ in 1..MAX_EXTENTS {
            if last.end() >= wanted.end {
                break;
            }
            last = file.extent_at(FileOffset::new(last.end())).ok()??;
        }
        extent_window(&first, &last, wanted, size, self.page_size)
    }

    /// Gets the permission to store, unless too many threads have it.
    pub(crate) fn start<'a>(&'a self, counters: &'a Counters) -> Option<Store<'a>> {
        let notifier = self.notifier.get()?;
        self.permits.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1)).ok()?;
        Some(Store { page_store: self, notifier, counters, is_ahead: false })
    }

    /// Gets the permission to store before the reply, unless another thread has it.
    pub(crate) fn start_ahead<'a>(&'a self, counters: &'a Counters) -> Option<Store<'a>> {
        let mut store = self.start(counters)?;
        store.is_ahead = !self.is_ahead.swap(true, Ordering::Acquire);
        store.is_ahead.then_some(store)
    }

    /// Records that `ahead` was stored, the next steps after the read at `offset`.
    pub(crate) fn stored_ahead(&self, inode: &Inode, offset: u64, ahead: Ahead) {
        self.patterns.stored_ahead(inode.nid(), offset, ahead);
    }
}

impl Store<'_> {
    /// Stores `bytes` at file offset `start`; returns whether the kernel stored them.
    pub(crate) fn store(&self, ino: INodeNo, start: u64, bytes: &[u8]) -> bool {
        // An error is harmless, for example without memory: the kernel asks for the pages when a program reads them.
        let stored = self.notifier.store(ino, start, bytes).is_ok();
        if stored {
            self.counters.stored(bytes.len());
        }
        stored
    }

    /// Stores `bytes` at file offset `start`, without the part at either end that is in `wanted`: the reply contains it.
    pub(crate) fn store_around(&self, ino: INodeNo, start: u64, bytes: &[u8], wanted: &Range<u64>) {
        let end = start.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        // A wanted part in the middle is stored again: this costs less than a second call.
        let from = if wanted.start == start { wanted.end } else { start };
        let to = if wanted.end >= end { wanted.start.max(from) } else { end };
        let split =
            |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
        let part = &bytes[split(from)..split(to)];
        if !part.is_empty() {
            self.store(ino, from, part);
        }
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        if self.is_ahead {
            self.page_store.is_ahead.store(false, Ordering::Release);
        }
        self.page_store.permits.fetch_add(1, Ordering::Release);
    }
}

/// The aligned window around `wanted` in a file whose extents have about `extent` bytes.
fn aligned_window(extent: u64, wanted: &Range<u64>, size: u64, max: u64) -> Range<u64> {
    let len = extent.saturating_mul(WINDOW_CLUSTERS).checked_next_power_of_two().unwrap_or(max);
    let len = len.clamp(MIN_WINDOW, max);
    let start = wanted.start - wanted.start % len;
    let end = start.saturating_add(len).max(wanted.end).min(size.max(wanted.end));
    start..end
}

/// `wanted` and the whole pages of the encoded extents at its ends. The last page of the file counts as whole.
fn extent_window(
    first: &Extent,
    last: &Extent,
    wanted: &Range<u64>,
    size: u64,
    page: u64,
) -> Option<Range<u64>> {
    let is_encoded = |extent: &Extent| matches!(extent.data, ExtentData::Encoded { .. });
    let mut window = wanted.clone();
    if is_encoded(first) {
        let start = first.start.get().max(wanted.start.saturating_sub(MAX_DISTANCE));
        window.start = start.checked_next_multiple_of(page)?.min(wanted.start);
    }
    if is_encoded(last) && last.end() > wanted.end {
        let end = last.end().min(wanted.end.saturating_add(MAX_DISTANCE));
        let whole = if end >= size { size } else { end - end % page };
        window.end = whole.max(wanted.end);
    }
    (window != *wanted).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferofs_format::{Algorithm, BytePos, DeviceId};
    use ferofs_read::Location;

    const SIZE: u64 = 100_000;

    fn extent(range: Range<u64>, encoded: bool) -> Extent {
        let at = Location::Device(DeviceId::new(0), BytePos::new(0));
        let data = if encoded {
            ExtentData::Encoded { algorithm: Algorithm::Lz4, at, encoded_len: 4096, partial: false }
        } else {
            ExtentData::Stored { at }
        };
        Extent { start: FileOffset::new(range.start), len: range.end - range.start, data }
    }

    #[test]
    fn the_window_has_the_whole_pages_of_the_decoded_clusters() {
        let cluster = extent(1000..20_000, true);
        // From the first whole page of the cluster to its last.
        let wide = extent_window(&cluster, &cluster, &(8192..12_288), SIZE, 4096);
        assert_eq!(wide, Some(4096..16_384));
        // A page in two clusters gives the pages of both.
        let next = extent(20_000..40_000, true);
        assert_eq!(extent_window(&cluster, &next, &(16_384..20_480), SIZE, 4096), Some(4096..36_864));
        // An extent that is not encoded gives no pages.
        let stored = extent(1000..20_000, false);
        assert_eq!(extent_window(&stored, &stored, &(8192..12_288), SIZE, 4096), None);
    }

    #[test]
    fn the_last_page_of_a_file_counts_as_whole() {
        let cluster = extent(90_000..SIZE, true);
        assert_eq!(extent_window(&cluster, &cluster, &(90_112..94_208), SIZE, 4096), Some(90_112..SIZE));
        assert_eq!(extent_window(&cluster, &cluster, &(98_304..SIZE), SIZE, 4096), Some(90_112..SIZE));
    }

    #[test]
    fn windows_are_aligned_and_limited() {
        let window = |extent, start: u64| aligned_window(extent, &(start..start + 4096), SIZE * 100, 1 << 20);
        assert_eq!(window(12_000, 200_704), 131_072..262_144);
        assert_eq!(window(100_000, 600_000), 524_288..1_048_576);
        assert_eq!(window(u64::MAX, 1_200_000), 1_048_576..2_097_152);
        assert_eq!(aligned_window(4096, &(98_304..SIZE), SIZE, 1 << 20), 0..SIZE);
    }

    #[test]
    fn the_window_in_a_large_cluster_is_limited() {
        let size = 64 << 20;
        let cluster = extent(0..size, true);
        let wanted = 32 << 20..(32 << 20) + 4096;
        let wide = extent_window(&cluster, &cluster, &wanted, size, 4096);
        assert_eq!(wide, Some(wanted.start - MAX_DISTANCE..wanted.end + MAX_DISTANCE));
    }
}
