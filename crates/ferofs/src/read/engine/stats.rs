//! Counters of what reads did, and their snapshot.
//!
//! Each thread counts in one of a few shards, so that counting does not make threads wait for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 8;
const COUNTERS: usize = 18;

/// A quantity that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    Requests,
    RequestedBytes,
    MetadataReads,
    MetadataBytes,
    RunReads,
    RunBytes,
    PartialReads,
    PartialBytes,
    StoredReads,
    StoredBytes,
    DecodedBytes,
    InPlace,
    Copied,
    Direct,
    Buffered,
    EncodedHits,
    ClusterHits,
    CohortHits,
}

/// Why bytes were read from a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Metadata,
    Run,
    Partial,
    Stored,
}

/// The counters of one image.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    peak: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS]);

/// System calls, and the bytes that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Calls.
    pub reads: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What an image's reads did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Bytes that decoders gave.
    pub decoded_bytes: u64,
    /// Clusters decoded in place.
    pub in_place: u64,
    /// Clusters whose encoded bytes stood in the output, but had to be moved to a buffer first.
    pub copied: u64,
    /// Clusters decoded from a buffer right into the output.
    pub direct: u64,
    /// Clusters decoded into a buffer, and copied from there.
    pub buffered: u64,
    /// Clusters whose encoded bytes were all in the cache.
    pub encoded_hits: u64,
    /// Clusters that were found decoded.
    pub cluster_hits: u64,
    /// Of these, clusters that another thread was decoding at the time.
    pub cohort_hits: u64,
    /// Bytes of memory that buffers and caches of data hold now.
    pub held_bytes: u64,
    /// The most of that at the end of any request.
    pub held_peak: u64,
}

impl Stats {
    /// All I/O.
    #[must_use]
    pub const fn io(&self) -> Io {
        Io {
            reads: self.metadata.reads + self.runs.reads + self.partial.reads + self.stored.reads,
            bytes: self.metadata.bytes + self.runs.bytes + self.partial.bytes + self.stored.bytes,
        }
    }

    /// Clusters decoded, by whichever strategy.
    #[must_use]
    pub const fn clusters(&self) -> u64 {
        self.in_place + self.copied + self.direct + self.buffered
    }
}

impl Counters {
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.shards[shard()].0[counter as usize].fetch_add(n, Relaxed);
    }

    /// Counts a read of `len` bytes.
    pub(crate) fn io(&self, cause: Cause, len: usize) {
        let (reads, bytes) = match cause {
            Cause::Metadata => (Counter::MetadataReads, Counter::MetadataBytes),
            Cause::Run => (Counter::RunReads, Counter::RunBytes),
            Cause::Partial => (Counter::PartialReads, Counter::PartialBytes),
            Cause::Stored => (Counter::StoredReads, Counter::StoredBytes),
        };
        self.add(reads, 1);
        self.add(bytes, u64::try_from(len).unwrap_or(u64::MAX));
    }

    /// Counts a cluster of `len` decoded bytes.
    pub(super) fn decoded(&self, strategy: Counter, len: usize) {
        self.add(strategy, 1);
        self.add(Counter::DecodedBytes, u64::try_from(len).unwrap_or(u64::MAX));
    }

    /// Notes the memory held.
    pub(super) fn peak(&self, held: u64) {
        // Most requests change nothing: a load keeps the line shared.
        if held > self.peak.load(Relaxed) {
            self.peak.fetch_max(held, Relaxed);
        }
    }

    pub(super) fn snapshot(&self, held: u64) -> Stats {
        let sum = |counter: Counter| {
            self.shards.iter().map(|shard| shard.0[counter as usize].load(Relaxed)).sum::<u64>()
        };
        let io = |reads, bytes| Io { reads: sum(reads), bytes: sum(bytes) };
        Stats {
            requests: sum(Counter::Requests),
            requested_bytes: sum(Counter::RequestedBytes),
            metadata: io(Counter::MetadataReads, Counter::MetadataBytes),
            runs: io(Counter::RunReads, Counter::RunBytes),
            partial: io(Counter::PartialReads, Counter::PartialBytes),
            stored: io(Counter::StoredReads, Counter::StoredBytes),
            decoded_bytes: sum(Counter::DecodedBytes),
            in_place: sum(Counter::InPlace),
            copied: sum(Counter::Copied),
            direct: sum(Counter::Direct),
            buffered: sum(Counter::Buffered),
            encoded_hits: sum(Counter::EncodedHits),
            cluster_hits: sum(Counter::ClusterHits),
            cohort_hits: sum(Counter::CohortHits),
            held_bytes: held,
            held_peak: self.peak.load(Relaxed).max(held),
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
