//! Checked hash blocks in memory: a bounded cache from which the block that was not used for the longest time is removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of hash blocks that are kept: they cover 64 MiB of an image with the usual sizes. With more, a mount would need more than
/// the 1 MiB that docs/SEALING.md promises.
const LIMIT: usize = 512 << 10;

/// Checked hash blocks, by number.
#[derive(Debug, Default)]
pub(crate) struct HashCache(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    /// The bytes of each block, and the value of `uses` when it was last used.
    blocks: HashMap<u64, (Arc<[u8]>, u64)>,
    /// Counts the uses.
    uses: u64,
}

impl HashCache {
    /// The bytes of block `number`, if they are here.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<[u8]>> {
        let mut cache = self.lock();
        cache.uses += 1;
        let now = cache.uses;
        let (bytes, used) = cache.blocks.get_mut(&number)?;
        *used = now;
        Some(Arc::clone(bytes))
    }

    /// Adds a block, whose digest the caller has checked.
    pub(crate) fn insert(&self, number: u64, bytes: Arc<[u8]>) {
        let most = (LIMIT / bytes.len().max(1)).max(1);
        let mut cache = self.lock();
        while cache.blocks.len() >= most {
            let oldest = cache.blocks.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number);
            let Some(oldest) = oldest else { break };
            cache.blocks.remove(&oldest);
        }
        let now = cache.uses;
        cache.blocks.insert(number, (bytes, now));
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        // Each change is one insertion or removal, which a panic cannot leave half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_that_was_not_used_longest_is_removed() {
        let cache = HashCache::default();
        let block: Arc<[u8]> = vec![0; LIMIT / 4].into();
        for number in 0..4 {
            assert!(cache.get(number).is_none());
            cache.insert(number, Arc::clone(&block));
        }
        assert!(cache.get(0).is_some());
        cache.insert(4, block);
        let kept: Vec<u64> = (0..5).filter(|number| cache.get(*number).is_some()).collect();
        assert_eq!(kept, [0, 2, 3, 4]);
    }
}
