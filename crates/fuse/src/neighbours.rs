//! Gives the kernel's page cache what a read had to decode but was not asked for.
//!
//! A read of one page decodes the clusters around it. Their other whole pages are stored into the page
//! cache (`FUSE_NOTIFY_STORE`), so that random reading of a whole file decodes each cluster about once,
//! and not once for each page. What is stored is bounded, and only small reads bring neighbours: large
//! ones are sequential, and the kernel already reads ahead of them.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferofs::read::{Extent, ExtentData, FileOffset, Image, Inode};
use fuser::{INodeNo, Notifier};

/// Reads above this size bring no neighbours.
const SMALL_READ: u64 = 16 << 10;
/// At most so many bytes before the read, and as many after it.
const REACH: u64 = 128 << 10;
/// Extents that a small read may touch; a map with shorter ones is not worth following.
const MAX_EXTENTS: usize = 16;

/// The way into the kernel's page cache.
#[derive(Debug)]
pub(crate) struct Neighbours {
    page_size: u64,
    notifier: OnceLock<Notifier>,
    /// Threads that may store at the same time.
    ///
    /// Storing waits for a page that another read in flight holds. One thread less than there are always
    /// stays free to answer that read, so that they cannot all wait.
    permits: AtomicUsize,
}

impl Neighbours {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            notifier: OnceLock::new(),
            permits: AtomicUsize::new(threads.saturating_sub(1)),
        }
    }

    /// From now on there is a kernel to store into.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // There is one session only; a second one would find the first one's way.
        let _ = self.notifier.set(notifier);
    }

    /// The range to read instead of `wanted`, if that brings whole pages more for the decodes that
    /// `wanted` needs anyway.
    pub(crate) fn widen(&self, image: &Image, inode: &Inode, wanted: &Range<u64>) -> Option<Range<u64>> {
        if wanted.end.saturating_sub(wanted.start) > SMALL_READ
            || self.permits.load(Ordering::Relaxed) == 0
            || self.notifier.get().is_none()
        {
            return None;
        }
        let end = wanted.end.min(inode.size());
        let mut extents = image.extents(inode, FileOffset::new(wanted.start)).ok()?;
        let first = extents.next()?.ok()?;
        let mut last = first;
        for _ in 1..MAX_EXTENTS {
            if last.end() >= end {
                break;
            }
            last = extents.next()?.ok()?;
        }
        window(&first, &last, &(wanted.start..end), inode.size(), self.page_size)
    }

    /// Stores the pages of `bytes`, which start at `start`, but for those of `wanted`, which were answered.
    pub(crate) fn store(&self, ino: INodeNo, start: u64, bytes: &[u8], wanted: &Range<u64>) {
        let Some(notifier) = self.notifier.get() else { return };
        let Ok(_) = self.permits.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1))
        else {
            return;
        };
        let split =
            |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
        let (before, after) = (&bytes[..split(wanted.start)], &bytes[split(wanted.end)..]);
        for (at, part) in [(start, before), (wanted.end, after)] {
            if !part.is_empty() {
                // Old kernels cannot, and memory may be short: then the pages are read when they are wanted.
                let _ = notifier.store(ino, at, part);
            }
        }
        self.permits.fetch_add(1, Ordering::Release);
    }
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
    use ferofs::read::Location;
    use ferofs_format::{Algorithm, BytePos, DeviceId};

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
    fn large_clusters_are_cut() {
        let size = 64 << 20;
        let cluster = extent(0..size, true);
        let wanted = 32 << 20..(32 << 20) + 4096;
        let wide = window(&cluster, &cluster, &wanted, size, 4096);
        assert_eq!(wide, Some(wanted.start - REACH..wanted.end + REACH));
    }
}
