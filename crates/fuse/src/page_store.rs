//! Stores more pages in the kernel's page cache than a read asked for, where that saves requests.
//!
//! The kernel asks for single pages where it sees no sequence. The server stores pages around them in its page cache
//! (`FUSE_NOTIFY_STORE`), so that reading all of a file at random decodes each cluster about once:
//!
//! - for a random read: the other whole pages of the clusters that had to be decoded anyway;
//! - for a random read in a region that is read all over: a whole window, decoded in one go;
//! - for a stride: the pages of its next steps, stored before the read is answered, so that the kernel need not ask for them;
//! - when the kernel evicts stored pages before they are read: none.
//!
//! [`ferofs_read::access`] classifies the reads.
//!
//! The stored bytes of a read are bounded. Only small reads are classified: large ones are sequential, and the kernel
//! already reads ahead of them.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferofs_read::access::page_reads::{Ahead, Pattern, Patterns};
use ferofs_read::{Extent, ExtentData, File, FileOffset, Inode};
use fuser::{INodeNo, Notifier};

use crate::stats::Counters;

/// Bytes of the largest read around which pages are stored. Larger reads are those of the kernel's own read-ahead.
const SMALL_READ: u64 = 16 << 10;
/// Bytes at most that are stored before a read, and as many after it, of the clusters that it touches. It bounds the
/// time of a request in clusters of megabytes.
const REACH: u64 = 128 << 10;
/// Extents at most that are looked up for a small read. A read over more of them gets no pages around it.
const MAX_EXTENTS: usize = 16;
/// Bytes at least of the window that is stored of a region that is read all over.
const MIN_WINDOW: u64 = 128 << 10;
/// Clusters at least in a window: clusters at its ends are decoded for the next windows, too, which costs a quarter or
/// less.
const WINDOW_CLUSTERS: u64 = 4;

/// Decides what to store in the kernel's page cache, and stores it.
#[derive(Debug)]
pub(crate) struct PageStore {
    page_size: u64,
    max_window: u64,
    patterns: Patterns,
    notifier: OnceLock<Notifier>,
    /// Threads that may store at the same time.
    ///
    /// Storing waits for a page that another read in flight holds. One thread less than there are always
    /// stays free to answer that read, so that they cannot all wait.
    permits: AtomicUsize,
    /// Whether a thread stores before it answers. Two of them could wait for each other's answers.
    is_ahead: AtomicBool,
}

/// What to read for a small read.
pub(crate) enum Plan {
    /// The wanted range alone.
    Wanted,
    /// This range, which contains the wanted one.
    Around(Range<u64>),
    /// The wanted range, and as many bytes at the next steps of a stride.
    Ahead(Ahead),
}

/// The permission to store; returned when dropped.
pub(crate) struct Store<'a> {
    page_store: &'a PageStore,
    notifier: &'a Notifier,
    counters: &'a Counters,
    is_ahead: bool,
}

impl PageStore {
    /// For `threads` that answer requests; no window is larger than `max_window` bytes.
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

    /// From now on, pages are stored through `notifier`.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // There is one session only; a second one would keep the first one's notifier.
        let _ = self.notifier.set(notifier);
    }

    /// What to read for `wanted`, which is not empty and within the file.
    pub(crate) fn plan(&self, file: &mut File<'_>, wanted: &Range<u64>) -> Plan {
        // Reads without the page cache start anywhere; a file's start is mostly the start of a sequence.
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
        window(&first, &last, wanted, size, self.page_size)
    }

    /// The permission to store, unless too many threads have one.
    pub(crate) fn start<'a>(&'a self, counters: &'a Counters) -> Option<Store<'a>> {
        let notifier = self.notifier.get()?;
        self.permits.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1)).ok()?;
        Some(Store { page_store: self, notifier, counters, is_ahead: false })
    }

    /// The permission to store before the answer, unless another thread has it.
    pub(crate) fn start_ahead<'a>(&'a self, counters: &'a Counters) -> Option<Store<'a>> {
        let mut store = self.start(counters)?;
        store.is_ahead = !self.is_ahead.swap(true, Ordering::Acquire);
        store.is_ahead.then_some(store)
    }

    /// Records that these steps ahead of the read at `offset` were stored.
    pub(crate) fn stored_ahead(&self, inode: &Inode, offset: u64, ahead: Ahead) {
        self.patterns.stored_ahead(inode.nid(), offset, ahead);
    }
}

impl Store<'_> {
    /// Stores `bytes`, which start at `start`; returns whether the kernel took them.
    pub(crate) fn store(&self, ino: INodeNo, start: u64, bytes: &[u8]) -> bool {
        // Old kernels have no such call, and memory may be short: then the kernel asks for the pages when they are read.
        let stored = self.notifier.store(ino, start, bytes).is_ok();
        if stored {
            self.counters.stored(bytes.len());
        }
        stored
    }

    /// Stores the pages of `bytes`, which start at `start`, without those of `wanted` at either end, which the answer had.
    pub(crate) fn store_around(&self, ino: INodeNo, start: u64, bytes: &[u8], wanted: &Range<u64>) {
        let end = start.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        // Wanted pages in the middle are stored again: a second call costs more than their copy.
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

/// The aligned window around `wanted`, where extents have about `extent` bytes.
fn aligned_window(extent: u64, wanted: &Range<u64>, size: u64, max: u64) -> Range<u64> {
    let len = extent.saturating_mul(WINDOW_CLUSTERS).checked_next_power_of_two().unwrap_or(max);
    let len = len.clamp(MIN_WINDOW, max);
    let start = wanted.start - wanted.start % len;
    let end = start.saturating_add(len).max(wanted.end).min(size.max(wanted.end));
    start..end
}

/// Whole pages (the file's last one counts as whole) of the encoded extents at both ends of `wanted`.
fn window(first: &Extent, last: &Extent, wanted: &Range<u64>, size: u64, page: u64) -> Option<Range<u64>> {
    let is_encoded = |extent: &Extent| matches!(extent.data, ExtentData::Encoded { .. });
    let mut window = wanted.clone();
    if is_encoded(first) {
        let start = first.start.get().max(wanted.start.saturating_sub(REACH));
        window.start = start.checked_next_multiple_of(page)?.min(wanted.start);
    }
    if is_encoded(last) && last.end() > wanted.end {
        let end = last.end().min(wanted.end.saturating_add(REACH));
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
    fn whole_pages_of_the_clusters_around() {
        let cluster = extent(1000..20_000, true);
        // From the first whole page of the cluster to its last.
        let wide = window(&cluster, &cluster, &(8192..12_288), SIZE, 4096);
        assert_eq!(wide, Some(4096..16_384));
        // A page that lies across two clusters brings both.
        let next = extent(20_000..40_000, true);
        assert_eq!(window(&cluster, &next, &(16_384..20_480), SIZE, 4096), Some(4096..36_864));
        // What is not decoded brings nothing.
        let stored = extent(1000..20_000, false);
        assert_eq!(window(&stored, &stored, &(8192..12_288), SIZE, 4096), None);
    }

    #[test]
    fn the_last_page_is_whole_at_the_end_of_the_file() {
        let cluster = extent(90_000..SIZE, true);
        assert_eq!(window(&cluster, &cluster, &(90_112..94_208), SIZE, 4096), Some(90_112..SIZE));
        assert_eq!(window(&cluster, &cluster, &(98_304..SIZE), SIZE, 4096), Some(90_112..SIZE));
    }

    #[test]
    fn windows_are_aligned_and_bounded() {
        let window = |extent, start: u64| aligned_window(extent, &(start..start + 4096), SIZE * 100, 1 << 20);
        assert_eq!(window(12_000, 200_704), 131_072..262_144);
        assert_eq!(window(100_000, 600_000), 524_288..1_048_576);
        assert_eq!(window(u64::MAX, 1_200_000), 1_048_576..2_097_152);
        assert_eq!(aligned_window(4096, &(98_304..SIZE), SIZE, 1 << 20), 0..SIZE);
    }

    #[test]
    fn large_clusters_are_cut() {
        let size = 64 << 20;
        let cluster = extent(0..size, true);
        let wanted = 32 << 20..(32 << 20) + 4096;
        let wide = window(&cluster, &cluster, &wanted, size, 4096);
        assert_eq!(wide, Some(wanted.start - REACH..wanted.end + REACH));
    }
}
