//! The state that all requests of an image share: caches, buffers, and access patterns.

use std::sync::Arc;

#[cfg(not(feature = "comparison"))]
use super::buffer_pool::BufferPool;
use super::clusters::Clusters;
#[cfg(feature = "comparison")]
use super::comparison::{Policy, Pool};
use super::options::EngineOptions;
use super::pinned::Pins;
use super::scratch::Scratch;
use crate::access::requests::Patterns;
use crate::accounting::memory::Memory;
use crate::accounting::pressure::{Pressure, PressureFile};
use crate::accounting::recorder::Recorder;
use crate::accounting::stats::{Counter, Counters};
use crate::error::Result;
use crate::volume::block_cache::BlockCache;

/// Bytes of the smallest buffers for decoded clusters of files, and of the packed inode. Most LZ4
/// clusters of one block fit, so that an evicted buffer fits the next cluster.
const LEAST_TAIL: usize = 32 << 10;
const LEAST_PACKED: usize = 4 << 10;

/// The state that all requests of an image share.
#[derive(Debug)]
pub(crate) struct Engine {
    #[cfg(feature = "comparison")]
    pub policy: Policy,
    memory: Arc<Memory>,
    /// Bytes of the window for a rolling decode of LZ4.
    pub lz4_window: usize,
    pub scratch: Scratch,
    pub pressure: Pressure,
    pub patterns: Patterns,
    /// Encoded blocks of clusters that were wanted in part; `None` if memory is always short.
    pub encoded: Option<BlockCache>,
    /// Decoded clusters of which a sequential reader wants the rest next.
    pub tails: Clusters,
    /// Decoded clusters of the packed inode.
    pub packed: Clusters,
    pub recorder: Option<Arc<Recorder>>,
    pub pinned_ranges: Pins,
}

impl Engine {
    /// An engine with budgets that fit the memory limit, for an image with blocks of `block_size`
    /// bytes, whose LZ4 matches are at most `max_distance` bytes back.
    pub(crate) fn new(
        options: &EngineOptions,
        block_size: usize,
        max_distance: u16,
        pressure: Option<&PressureFile>,
        memory: Arc<Memory>,
    ) -> Result<Self> {
        #[cfg(not(feature = "comparison"))]
        let pool = BufferPool::new(options.pool);
        #[cfg(feature = "comparison")]
        let pool = Pool::new(options.pool, options.policy)
            .map_err(|e| crate::error::IoError::unnamed("allocate the page pool", e))?;
        memory.take(pool.len());
        let clusters = |budget, least| {
            Clusters::new(budget, least, options.memory_limit.is_none(), Arc::clone(&memory))
        };
        let encoded = options.encoded_cache;
        Ok(Self {
            #[cfg(feature = "comparison")]
            policy: options.policy,
            lz4_window: ferofs_codec::lz4_window(max_distance),
            scratch: Scratch::new(pool),
            pressure: Pressure::new(options.low_memory, pressure),
            patterns: Patterns::default(),
            encoded: (encoded > 0)
                .then(|| BlockCache::new(block_size, encoded, Arc::clone(&memory))),
            tails: clusters(options.tail_cache, LEAST_TAIL.min(options.tail_cache / 4)),
            packed: clusters(options.packed_cache, LEAST_PACKED),
            recorder: options.record.then(Arc::default),
            pinned_ranges: Pins::default(),
            memory,
        })
    }

    /// Whether a whole LZ4 cluster of `_len` decoded bytes is decoded in place, if that is
    /// possible.
    #[cfg(not(feature = "comparison"))]
    pub(crate) const fn in_place(&self, _len: usize) -> bool {
        true
    }

    #[cfg(feature = "comparison")]
    pub(crate) const fn in_place(&self, len: usize) -> bool {
        self.policy.in_place(len)
    }

    /// Frees caches and idle buffers.
    pub(crate) fn shrink(&self, counters: &Counters) {
        counters.add(Counter::LowMemoryEntries, 1);
        if let Some(encoded) = &self.encoded {
            encoded.clear();
        }
        self.tails.shrink();
        self.packed.shrink();
        self.scratch.shrink(&self.memory);
    }
}
