//! Read-around: stores more pages in the kernel's page cache than a read asked for, which saves
//! later requests.
//!
//! The kernel asks for single pages where it sees no sequence. The server stores pages around them
//! in its page cache (`FUSE_NOTIFY_STORE`), so that reading most of a file at random decodes each
//! cluster about once:
//!
//! - for random reads: all of a unit (a large cluster, or else an aligned window) once it was read
//!   often, after the answer;
//! - for a stride: the pages of its next steps, stored before the read is answered, so that the
//!   kernel need not ask for them;
//! - when the kernel evicts stored pages before they are read: none.
//!
//! [`ferofs_read::access`] classifies the reads, but only small ones: large reads are the kernel's
//! own read-ahead. The bytes that are stored for a read are limited.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use ferofs_read::access::page_reads::{Ahead, Pattern, Patterns};
use ferofs_read::{Algorithm, Extent, ExtentData, FileOffset, Inode, InodeReader, Nid};
use fuser::{INodeNo, Notifier};

use crate::stats::Counters;

/// The largest read that is classified, in bytes. Larger reads are the kernel's own read-ahead.
pub(crate) const SMALL_READ: u64 = 16 << 10;
/// Bytes at least of the window of a unit.
const MIN_WINDOW: u64 = 128 << 10;
/// Bytes of a cluster from which on it is a unit of its own: then decoding it again for each read
/// costs more than storing its pages.
const LARGE_CLUSTER: u64 = 64 << 10;
/// The reads that clusters must have before they are stored. The numbers follow from the time of
/// decoding: to decode and store a cluster takes as long as three to four reads of it with LZ4,
/// which decodes fast, and as long as two with the other algorithms.
struct EnoughReads {
    /// Reads of a large cluster, with the last one.
    cluster: u16,
    /// Reads of the window around a cluster that is smaller than the window, which are also needed.
    /// If few pages of a file are read, some clusters have several reads by chance, and no more
    /// follow; their windows rarely have this number of reads.
    window: u16,
    /// Reads of a cluster that is larger than a window. All of it is stored. They are more than the
    /// time of decoding asks for: if 1 % of a file is read, a cluster of 1.5 MiB has four reads.
    huge_cluster: u16,
}

impl EnoughReads {
    const LZ4: Self = Self { cluster: 3, window: 18, huge_cluster: 5 };
    const OTHERS: Self = Self { cluster: 2, window: 6, huge_cluster: 6 };
}

/// Windows at most in a cluster that is stored as a whole. If it is larger, only the window of the
/// read is stored. This limits the memory.
const MAX_WHOLE_CLUSTER: u64 = 8;
/// Bytes of a window for each read that it must have before it is stored: 22 reads for 1 MiB, a
/// twelfth of its pages. About the same number of reads will follow, and each of them saves about
/// 10 times the cost of storing one page.
const WINDOW_PER_READ: u64 = (1 << 20) / 22;
/// Factor of the reads that a window must have while several readers read at a time. Then the
/// processors are busy, so that storing delays other work, and a read takes half as long, because
/// fewer threads wait.
const BUSY_FACTOR: u16 = 3;

/// A range of a file to store.
pub(crate) struct Around {
    pub(crate) ino: INodeNo,
    pub(crate) range: Range<u64>,
}

/// Passes ranges to the thread that stores them; `None` ends it.
#[derive(Debug)]
pub(crate) struct Queue(SyncSender<Option<Around>>);

impl Queue {
    pub(crate) const fn new(sender: SyncSender<Option<Around>>) -> Self {
        Self(sender)
    }

    /// Passes a range on; returns false if too many wait.
    fn push(&self, around: Around) -> bool {
        self.0.try_send(Some(around)).is_ok()
    }
}

/// Decides which pages to store in the kernel's page cache, and stores them.
#[derive(Debug)]
pub(crate) struct PageStore {
    page_size: u64,
    max_window: u64,
    patterns: Patterns,
    notifier: OnceLock<Notifier>,
    /// Ranges to store after the reply.
    around: OnceLock<Queue>,
    /// Whether a thread of the session may store before it replies. Storing waits for a page that
    /// another read in flight has locked, and another thread must be free to answer that read.
    may_store_ahead: bool,
    /// Whether a thread stores before it replies. Two of them could wait for each other's replies.
    is_ahead: AtomicBool,
    pub(crate) counters: Counters,
}

/// The ranges to read and to store for a small read.
pub(crate) enum Plan {
    /// Only the wanted range.
    Wanted,
    /// The wanted range; after the answer, the pages of this unit are stored.
    Around(Unit),
    /// The wanted range, and the same number of bytes at each of the next steps of a stride.
    Ahead(Ahead),
}

/// The permission to store pages before the reply. Dropping it gives the permission back.
pub(crate) struct AheadPermit<'a>(&'a PageStore);

impl PageStore {
    /// `threads` is the number of threads that answer requests; windows have at most `max_window`
    /// bytes.
    pub(crate) fn new(threads: usize, max_window: u64) -> Self {
        Self {
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            max_window: max_window.max(MIN_WINDOW),
            patterns: Patterns::default(),
            notifier: OnceLock::new(),
            around: OnceLock::new(),
            may_store_ahead: threads > 1,
            is_ahead: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Sets the connection to the kernel. Before this, no pages are stored.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // Cannot fail: a page store belongs to one session, which calls this once.
        let _ = self.notifier.set(notifier);
    }

    /// Sets the queue of ranges to store after the reply. Before this, none are stored.
    pub(crate) fn set_queue(&self, queue: Queue) {
        // Cannot fail: a page store belongs to one session, which calls this once.
        let _ = self.around.set(queue);
    }

    /// Plans the read of `wanted`, which is not empty and within the file.
    ///
    /// `is_busy`: several readers read at a time.
    pub(crate) fn plan(
        &self,
        file: &mut InodeReader<'_>,
        wanted: &Range<u64>,
        is_busy: bool,
    ) -> Plan {
        // A read that does not start at a page bypasses the page cache. A read at the start of a
        // file is mostly the first of a sequential read.
        if wanted.end.saturating_sub(wanted.start) > SMALL_READ
            || wanted.start == 0
            || !wanted.start.is_multiple_of(self.page_size)
            || self.notifier.get().is_none()
        {
            return Plan::Wanted;
        }
        let nid = file.inode().nid();
        match self.patterns.note(nid, wanted.start) {
            Pattern::Stride(Some(ahead)) if self.may_store_ahead => Plan::Ahead(ahead),
            Pattern::Stride(_) | Pattern::Thrashing => Plan::Wanted,
            Pattern::Random => {
                self.around(file, wanted, is_busy).map_or(Plan::Wanted, Plan::Around)
            }
        }
    }

    /// The unit of `wanted`, if it was read often enough to be stored.
    fn around(
        &self,
        file: &mut InodeReader<'_>,
        wanted: &Range<u64>,
        is_busy: bool,
    ) -> Option<Unit> {
        self.around.get()?;
        let extent = file.extent_at(FileOffset::new(wanted.start)).ok()??;
        let nid = file.inode().nid();
        let unit =
            Unit::of(nid, &extent, wanted, file.inode().size(), self.max_window, self.page_size);
        let enough = if is_busy && unit.is_window {
            unit.enough.saturating_mul(BUSY_FACTOR)
        } else {
            unit.enough
        };
        let is_enough = self.patterns.count_read(nid, unit.start) >= enough;
        let is_enough_around = unit
            .around
            .is_none_or(|(around, enough)| self.patterns.count_read(nid, around) >= enough);
        (is_enough && is_enough_around).then_some(unit)
    }

    /// Has the unit stored after the reply. If too many wait, the next read of the unit tries
    /// again.
    pub(crate) fn store_later(&self, ino: INodeNo, unit: Unit) {
        let Some(queue) = self.around.get() else { return };
        if queue.push(Around { ino, range: unit.window.clone() }) {
            self.patterns.forget_reads(unit.nid, unit.start);
            self.patterns.stored(unit.nid, &unit.window);
        }
    }

    /// Gets the permission to store before the reply, unless another thread has it.
    pub(crate) fn start_ahead(&self) -> Option<AheadPermit<'_>> {
        let is_free = !self.is_ahead.swap(true, Ordering::Acquire);
        is_free.then_some(AheadPermit(self))
    }

    /// Stores `bytes` at file offset `start`; returns whether the kernel stored them.
    pub(crate) fn store(&self, ino: INodeNo, start: u64, bytes: &[u8]) -> bool {
        // An error is harmless, for example without memory: the kernel asks for the pages when a
        // program reads them.
        let stored =
            self.notifier.get().is_some_and(|notifier| notifier.store(ino, start, bytes).is_ok());
        if stored {
            self.counters.stored(bytes.len());
        }
        stored
    }

    /// Records that `ahead` was stored, the next steps after the read at `offset`.
    pub(crate) fn stored_ahead(&self, inode: &Inode, offset: u64, ahead: Ahead) {
        self.patterns.stored_ahead(inode.nid(), offset, ahead);
    }
}

impl Drop for AheadPermit<'_> {
    fn drop(&mut self) {
        self.0.is_ahead.store(false, Ordering::Release);
    }
}

/// A range of a file whose random reads are counted together, and which is stored when it was read
/// often.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    nid: Nid,
    /// Identifies the unit.
    start: u64,
    /// The whole pages to store.
    window: Range<u64>,
    /// The number of reads from which on they are stored.
    enough: u16,
    /// It is an aligned window, not a cluster.
    is_window: bool,
    /// For a large cluster: identifies the window around it, whose reads are also counted, and the
    /// reads that the window must have.
    around: Option<(u64, u16)>,
}

impl Unit {
    /// The unit of a read of `wanted`, which starts in `extent`, in a file of `size` bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "pages and windows are not empty, and an offset in a file is below 2^63"
    )]
    fn of(
        nid: Nid,
        extent: &Extent,
        wanted: &Range<u64>,
        size: u64,
        max_window: u64,
        page: u64,
    ) -> Self {
        let aligned = wanted.start - wanted.start % max_window;
        let window =
            aligned..aligned.saturating_add(max_window).max(wanted.end).min(size.max(wanted.end));
        let enough = match extent.data {
            ExtentData::Encoded { algorithm: Algorithm::Lz4, .. } => Some(EnoughReads::LZ4),
            ExtentData::Encoded { .. } => Some(EnoughReads::OTHERS),
            _ => None,
        };
        let Some(enough) = enough.filter(|_| extent.len >= LARGE_CLUSTER) else {
            // Each read of several pages leaves fewer pages for later reads.
            let per_read = if wanted.end - wanted.start > page {
                WINDOW_PER_READ * 2 / 3
            } else {
                WINDOW_PER_READ
            };
            let enough = u16::try_from(max_window / per_read).unwrap_or(u16::MAX);
            return Self { nid, start: aligned, window, enough, is_window: true, around: None };
        };
        let (first, end) = (extent.start.get().next_multiple_of(page), extent.end());
        // The file's last page counts as whole.
        let end = if end >= size { size } else { end - end % page };
        let whole = first.min(wanted.start)..end.max(wanted.end);
        if (max_window..=max_window.saturating_mul(MAX_WHOLE_CLUSTER)).contains(&extent.len) {
            let enough = enough.huge_cluster;
            return Self {
                nid,
                start: extent.start.get(),
                window: whole,
                enough,
                is_window: false,
                around: None,
            };
        }
        Self {
            nid,
            start: extent.start.get().max(aligned),
            window: window.start.max(whole.start)..window.end.min(whole.end),
            enough: enough.cluster,
            is_window: false,
            // No cluster starts with this number: another one follows within its first page.
            around: Some((aligned + 1, enough.window)),
        }
    }
}
