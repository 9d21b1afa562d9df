//! How much memory the engine may hold.

#[cfg(feature = "comparison")]
use super::comparison::Policy;
use crate::accounting::pressure::LowMemory;

/// Bytes that a thread may take while it decodes, besides the budgets: a cluster of 1 MiB, 12 MiB
/// that it decodes to, and the decoder's state.
pub const READER_MEMORY: u64 = 16 << 20;
/// Bytes of metadata blocks that are cached where memory is always short.
const LOW_METADATA: usize = 64 << 10;

/// Budgets of the engine, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Bytes of buffers at most that stay allocated between requests. Default: 256 KiB.
    pub pool: usize,
    /// Bytes of the cache of encoded blocks, for clusters that were wanted in part. Default: 128
    /// KiB.
    pub encoded_cache: usize,
    /// Bytes of the cache of decoded clusters of which a sequential reader wants the rest next. One
    /// cluster may be larger. Default: 256 KiB.
    pub tail_cache: usize,
    /// Bytes of the cache of decoded clusters of the packed inode, in images with fragments. One
    /// cluster may be larger. Default: 16 MiB.
    pub packed_cache: usize,
    /// Bytes for all memory of an open image: the pool, caches with that of metadata, buffers,
    /// pinned content. The budgets above shrink to fit. Requests exceed it while they are served,
    /// each by what its cluster needs: up to the encoded and the decoded cluster. Default: none.
    pub memory_limit: Option<usize>,
    /// When to read without caches. Default: never.
    pub low_memory: LowMemory,
    /// How clusters are decoded. Default: the fastest way.
    #[cfg(feature = "comparison")]
    pub policy: Policy,
    /// Count which ranges are read, for [`Image::profile`](crate::Image::profile). Default: no.
    pub record: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            pool: 256 << 10,
            encoded_cache: 128 << 10,
            tail_cache: 256 << 10,
            packed_cache: 16 << 20,
            memory_limit: None,
            low_memory: LowMemory::default(),
            #[cfg(feature = "comparison")]
            policy: Policy::default(),
            record: false,
        }
    }
}

impl EngineOptions {
    /// These options with budgets that, together with `metadata` bytes for metadata, fit the limit;
    /// and what then is left for metadata.
    #[must_use]
    pub(crate) fn fitted(&self, metadata: usize, has_fragments: bool) -> (Self, usize) {
        let mut fitted = self.clone();
        let mut metadata = metadata;
        if !has_fragments {
            fitted.packed_cache = 0;
        }
        if self.low_memory == LowMemory::Always {
            (fitted.encoded_cache, fitted.tail_cache) = (0, 0);
            metadata = metadata.min(LOW_METADATA);
        }
        let Some(limit) = self.memory_limit else { return (fitted, metadata) };
        // A quarter stays for clusters that need more than the pool.
        let limit = (limit / 4).saturating_mul(3);
        let wanted =
            [fitted.pool, fitted.encoded_cache, fitted.tail_cache, fitted.packed_cache, metadata]
                .iter()
                .fold(0usize, |sum, part| sum.saturating_add(*part));
        if wanted <= limit {
            return (fitted, metadata);
        }
        // Each part in proportion; products of budgets and limits may exceed 64 bits.
        #[expect(
            clippy::arithmetic_side_effects,
            clippy::as_conversions,
            reason = "products of two `usize` fit 128 bits, and the divisor is not 0"
        )]
        let shrink = |part: usize| {
            usize::try_from(part as u128 * limit as u128 / (wanted as u128).max(1)).unwrap_or(limit)
        };
        for part in [
            &mut fitted.pool,
            &mut fitted.encoded_cache,
            &mut fitted.tail_cache,
            &mut fitted.packed_cache,
        ] {
            *part = shrink(*part);
        }
        let metadata = shrink(metadata);
        (fitted, metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_fit_the_limit() {
        let options = EngineOptions { memory_limit: Some(1 << 20), ..EngineOptions::default() };
        let (fitted, metadata) = options.fitted(4 << 20, true);
        let sum =
            fitted.pool + fitted.encoded_cache + fitted.tail_cache + fitted.packed_cache + metadata;
        assert!(sum <= 3 << 18, "{fitted:?}");
        assert!(fitted.packed_cache > fitted.pool && metadata > 0);
        let free = EngineOptions::default();
        assert_eq!(free.fitted(4 << 20, true), (free, 4 << 20));
    }
}
