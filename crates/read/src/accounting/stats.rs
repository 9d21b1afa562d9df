//! Counters of reads, and their snapshot.
//!
//! Each thread counts in one of a few shards, so that threads do not write to the same cache lines.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Shards of the counters. With more threads than shards, some share one, which is slower but
/// correct.
const SHARDS: usize = 8;

/// Declares [`Counter`] and how many there are.
macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// A quantity that is counted.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($name),* }
        const COUNTERS: usize = [$(Counter::$name),*].len();
    };
}

counters! {
    Requests, RequestedBytes, MetadataReads, MetadataBytes, RunReads, RunBytes, PartialReads, PartialBytes,
    StoredReads, StoredBytes, BatchReads, BatchBytes, AheadReads, AheadBytes, HintReads, HintBytes, DecodedBytes, PackedDecodedBytes,
    CopiedBytes, InPlace, Rolling, Vmap, Direct, Buffered, Moved, EncodedHits, ClusterHits, CohortHits, PinnedHits,
    PinnedBytes, PoolMisses, Stalls, StalledNanoseconds, LowMemoryEntries,
}

/// Why bytes were read from a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Metadata,
    Run,
    Partial,
    Stored,
    Batch,
    Ahead,
    Hint,
}

/// The counters of one image.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS]);

impl Default for Shard {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; COUNTERS])
    }
}

impl Shard {
    #[expect(
        clippy::as_conversions,
        clippy::indexing_slicing,
        reason = "a counter's number is below `COUNTERS`"
    )]
    fn get(&self, counter: Counter) -> &AtomicU64 {
        &self.0[counter as usize]
    }
}

/// System calls, and the bytes that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Io {
    /// Calls.
    pub reads: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Counters of an image's reads since it was opened. Fields keep their names and meanings; new ones
/// may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Reads of content, with those that other reads made for fragments and metadata.
    pub requests: u64,
    /// Bytes that they asked for.
    pub requested_bytes: u64,
    /// I/O for metadata.
    pub metadata: Io,
    /// I/O for adjacent, wholly wanted extents.
    pub runs: Io,
    /// I/O for clusters that were wanted in part.
    pub partial: Io,
    /// I/O for stored extents that were read on their own.
    pub stored: Io,
    /// Batches: several ranges of a request, read with one call from a source with a high latency.
    pub batches: Io,
    /// I/O that read ahead encoded blocks together with the wanted ones, for a sequential reader.
    pub ahead: Io,
    /// Ranges that were announced to the source, for it to prefetch them: for a strided reader.
    /// Their reads are counted later.
    pub hinted: Io,
    /// Bytes that were decoded.
    pub decoded_bytes: u64,
    /// The part of these bytes that is of the packed inode, which has the fragments, and of the
    /// metabox.
    pub packed_decoded_bytes: u64,
    /// Bytes copied in memory: decoded bytes to the request, and encoded bytes out of its buffer.
    pub copied_bytes: u64,
    /// Clusters decoded in place: where their encoded bytes had been read to.
    pub in_place: u64,
    /// Clusters whose unwanted start went through a window of at most 17 pages.
    pub rolling: u64,
    /// Clusters decoded to scattered pages that were mapped side by side, and copied from there.
    pub vmap: u64,
    /// Clusters decoded from a buffer right into the request, from their start on.
    pub direct: u64,
    /// Clusters decoded into a buffer, and copied from there.
    pub buffered: u64,
    /// Clusters of any of these whose encoded bytes had been read into the request, but had to be
    /// moved first.
    pub moved: u64,
    /// Clusters whose encoded bytes were all in the cache.
    pub encoded_hits: u64,
    /// Clusters found in the cache of decoded clusters.
    pub cluster_hits: u64,
    /// The part of these clusters that another thread was decoding at the time.
    pub cohort_hits: u64,
    /// Reads that pinned content served.
    pub pinned_hits: u64,
    /// Bytes that pinned content served.
    pub pinned_bytes: u64,
    /// Bytes of the buffer pool.
    pub pool_bytes: u64,
    /// The most bytes of the pool that were in use at once.
    pub pool_peak: u64,
    /// Buffers that did not fit the pool, and came from the heap.
    pub pool_misses: u64,
    /// Waits of a thread for a cluster that another thread decodes, or for memory that others hold.
    pub stalls: u64,
    /// Nanoseconds of these waits.
    pub stalled_nanoseconds: u64,
    /// Whether memory is treated as short now.
    pub low_memory: bool,
    /// Times that it became short.
    pub low_memory_entries: u64,
    /// Bytes of memory held now: pool, buffers, caches, pinned content.
    pub held_bytes: u64,
    /// The most that was held at once.
    pub held_peak: u64,
}

impl Io {
    /// The sum of both.
    const fn and(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_add(other.reads),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl Stats {
    /// All I/O.
    #[must_use]
    pub const fn io(&self) -> Io {
        self.data_io().and(self.metadata)
    }

    /// All I/O for content.
    #[must_use]
    pub const fn data_io(&self) -> Io {
        self.runs.and(self.partial).and(self.stored).and(self.batches).and(self.ahead)
    }

    /// Clusters decoded, by whichever strategy.
    #[must_use]
    pub const fn clusters(&self) -> u64 {
        let in_parts = self.rolling.saturating_add(self.vmap).saturating_add(self.direct);
        self.in_place.saturating_add(in_parts).saturating_add(self.buffered)
    }
}

impl Counters {
    #[expect(clippy::indexing_slicing, reason = "the number of a shard is below `SHARDS`")]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.shards[shard()].get(counter).fetch_add(n, Relaxed);
    }

    /// Counts bytes.
    pub(crate) fn add_len(&self, counter: Counter, len: usize) {
        self.add(counter, u64::try_from(len).unwrap_or(u64::MAX));
    }

    /// Counts a read of `len` bytes.
    pub(crate) fn io(&self, cause: Cause, len: usize) {
        let (reads, bytes) = match cause {
            Cause::Metadata => (Counter::MetadataReads, Counter::MetadataBytes),
            Cause::Run => (Counter::RunReads, Counter::RunBytes),
            Cause::Partial => (Counter::PartialReads, Counter::PartialBytes),
            Cause::Stored => (Counter::StoredReads, Counter::StoredBytes),
            Cause::Batch => (Counter::BatchReads, Counter::BatchBytes),
            Cause::Ahead => (Counter::AheadReads, Counter::AheadBytes),
            Cause::Hint => (Counter::HintReads, Counter::HintBytes),
        };
        self.add(reads, 1);
        self.add_len(bytes, len);
    }

    /// Counts a wait that began at `start`.
    pub(crate) fn stalled(&self, start: std::time::Instant) {
        self.add(Counter::Stalls, 1);
        self.add(
            Counter::StalledNanoseconds,
            u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        );
    }

    /// The sums of all shards; memory and pool, which have no counters here, stay 0.
    pub(crate) fn snapshot(&self) -> Stats {
        let sum = |counter: Counter| {
            self.shards.iter().map(|shard| shard.get(counter).load(Relaxed)).sum::<u64>()
        };
        let io = |reads, bytes| Io { reads: sum(reads), bytes: sum(bytes) };
        Stats {
            requests: sum(Counter::Requests),
            requested_bytes: sum(Counter::RequestedBytes),
            metadata: io(Counter::MetadataReads, Counter::MetadataBytes),
            runs: io(Counter::RunReads, Counter::RunBytes),
            partial: io(Counter::PartialReads, Counter::PartialBytes),
            stored: io(Counter::StoredReads, Counter::StoredBytes),
            batches: io(Counter::BatchReads, Counter::BatchBytes),
            ahead: io(Counter::AheadReads, Counter::AheadBytes),
            hinted: io(Counter::HintReads, Counter::HintBytes),
            decoded_bytes: sum(Counter::DecodedBytes),
            packed_decoded_bytes: sum(Counter::PackedDecodedBytes),
            copied_bytes: sum(Counter::CopiedBytes),
            in_place: sum(Counter::InPlace),
            rolling: sum(Counter::Rolling),
            vmap: sum(Counter::Vmap),
            direct: sum(Counter::Direct),
            buffered: sum(Counter::Buffered),
            moved: sum(Counter::Moved),
            encoded_hits: sum(Counter::EncodedHits),
            cluster_hits: sum(Counter::ClusterHits),
            cohort_hits: sum(Counter::CohortHits),
            pinned_hits: sum(Counter::PinnedHits),
            pinned_bytes: sum(Counter::PinnedBytes),
            pool_misses: sum(Counter::PoolMisses),
            stalls: sum(Counter::Stalls),
            stalled_nanoseconds: sum(Counter::StalledNanoseconds),
            low_memory_entries: sum(Counter::LowMemoryEntries),
            ..Stats::default()
        }
    }
}

/// This thread's shard.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Relaxed) % SHARDS);
        }
        mine.get()
    })
}
