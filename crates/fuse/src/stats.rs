//! The counters of the running daemon, as an extended attribute of the root of the mount. Unlike a
//! socket, this needs no privilege that the sandbox removes.
//!
//! listxattr(2) does not show the attribute, so that programs that copy attributes do not copy it.

use std::ffi::OsStr;
use std::fmt::Write;

use ferofs_read::{Count, Image};

/// The name of the attribute. Its value is text: one line for each counter, with name and number.
pub const STATS_XATTR: &str = "user.ferofs.stats";

/// Further lines for the counters of a daemon, in the same form. The function must not wait: a
/// thread calls it that answers requests.
pub type MoreStats = Box<dyn Fn() -> String + Send + Sync>;

/// The counters of the daemon; the read engine has further ones.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Read requests.
    pub(crate) reads: Count,
    /// Bytes in the replies to read requests.
    pub(crate) read_bytes: Count,
    /// Bytes stored in the page cache, with `stores` calls.
    pub(crate) stored_bytes: Count,
    pub(crate) stores: Count,
    /// Requests that failed because of damage or I/O.
    pub(crate) errors: Count,
}

impl Counters {
    pub(crate) fn read(&self, bytes: usize) {
        self.reads.add(1);
        self.read_bytes.add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn stored(&self, bytes: usize) {
        self.stores.add(1);
        self.stored_bytes.add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn error(&self) {
        self.errors.add(1);
    }
}

/// Whether `name` asks for the counters.
pub(crate) fn is_stats(name: &OsStr) -> bool {
    name == STATS_XATTR
}

/// All counters, one line for each.
pub(crate) fn text(counters: &Counters, image: &Image) -> String {
    let engine = image.stats();
    let mut text = String::new();
    for (name, number) in [
        ("fuse_reads", counters.reads.get()),
        ("fuse_read_bytes", counters.read_bytes.get()),
        ("fuse_stores", counters.stores.get()),
        ("fuse_stored_bytes", counters.stored_bytes.get()),
        ("fuse_errors", counters.errors.get()),
        ("requests", engine.requests),
        ("requested_bytes", engine.requested_bytes),
        ("metadata_reads", engine.metadata.reads),
        ("metadata_bytes", engine.metadata.bytes),
        ("run_reads", engine.runs.reads),
        ("run_bytes", engine.runs.bytes),
        ("partial_reads", engine.partial.reads),
        ("partial_bytes", engine.partial.bytes),
        ("stored_reads", engine.stored.reads),
        ("stored_bytes", engine.stored.bytes),
        ("batch_reads", engine.batches.reads),
        ("batch_bytes", engine.batches.bytes),
        ("ahead_reads", engine.ahead.reads),
        ("ahead_bytes", engine.ahead.bytes),
        ("hinted_reads", engine.hinted.reads),
        ("hinted_bytes", engine.hinted.bytes),
        ("decoded_bytes", engine.decoded_bytes),
        ("clusters_in_place", engine.in_place),
        ("clusters_rolling", engine.rolling),
        ("clusters_vmap", engine.vmap),
        ("clusters_direct", engine.direct),
        ("clusters_buffered", engine.buffered),
        ("clusters_moved", engine.moved),
        ("copied_bytes", engine.copied_bytes),
        ("packed_decoded_bytes", engine.packed_decoded_bytes),
        ("encoded_hits", engine.encoded_hits),
        ("cluster_hits", engine.cluster_hits),
        ("cohort_hits", engine.cohort_hits),
        ("pinned_hits", engine.pinned_hits),
        ("pinned_bytes", engine.pinned_bytes),
        ("pool_bytes", engine.pool_bytes),
        ("pool_peak", engine.pool_peak),
        ("pool_misses", engine.pool_misses),
        ("stalls", engine.stalls),
        ("stalled_nanoseconds", engine.stalled_nanoseconds),
        ("low_memory", engine.low_memory.into()),
        ("low_memory_entries", engine.low_memory_entries),
        ("held_bytes", engine.held_bytes),
        ("held_peak", engine.held_peak),
    ] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {number}");
    }
    text
}
