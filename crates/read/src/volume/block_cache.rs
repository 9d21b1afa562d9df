//! A bounded cache of blocks: of metadata, which is read in small pieces, and of encoded clusters,
//! of which several requests want parts.
//!
//! Each shard has a lock of its own, and evicts by second chance (CLOCK). Blocks are loaded without
//! the lock, and buffers are reused, so that a warm cache does not allocate.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::accounting::memory::Memory;

/// Shards at most: enough that threads seldom want the same lock. A cache of fewer blocks has fewer
/// shards.
const SHARDS: usize = 16;

/// Identifies a cached block: its device and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub device: u16,
    pub block: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    bytes: Box<[u8]>,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    index: HashMap<Key, usize>,
    slots: Vec<Slot>,
    hand: usize,
    spare: Vec<Box<[u8]>>,
}

/// The cache. All blocks have the same size.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shards: Box<[Mutex<Shard>]>,
    block_size: usize,
    slots_per_shard: usize,
    memory: Arc<Memory>,
}

impl Key {
    /// The block `number` blocks further on.
    pub(crate) fn after(self, number: usize) -> Self {
        Self { block: self.block.saturating_add(u64::try_from(number).unwrap_or(u64::MAX)), ..self }
    }
}

impl BlockCache {
    /// A cache that holds at most about `budget` bytes of blocks.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks have a size, and there is at least one"
    )]
    pub(crate) fn new(block_size: usize, budget: usize, memory: Arc<Memory>) -> Self {
        let blocks = (budget / block_size).max(1);
        let shards = (0..blocks.min(SHARDS)).map(|_| Mutex::default()).collect();
        Self { shards, block_size, slots_per_shard: blocks / blocks.min(SHARDS), memory }
    }

    /// Calls `use_block` with the block; on a miss, `load` fills a buffer first.
    pub(crate) fn with_block<T, E>(
        &self,
        key: Key,
        load: impl FnOnce(&mut [u8]) -> Result<(), E>,
        use_block: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, E> {
        let mut buffer = {
            let mut shard = self.shard(key);
            if let Some(slot) = shard.find(key) {
                slot.used = true;
                return Ok(use_block(&slot.bytes));
            }
            shard.spare.pop()
        }
        .unwrap_or_else(|| self.new_block());
        if let Err(error) = load(&mut buffer) {
            self.shard(key).spare.push(buffer);
            return Err(error);
        }
        let result = use_block(&buffer);
        self.shard(key).insert(key, buffer, self.slots_per_shard);
        Ok(result)
    }

    /// Copies the block to `buf` if it is there.
    pub(crate) fn get(&self, key: Key, buf: &mut [u8]) -> bool {
        let mut shard = self.shard(key);
        let Some(slot) = shard.find(key) else { return false };
        slot.used = true;
        buf.copy_from_slice(&slot.bytes);
        true
    }

    /// Whether the block is there.
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.shard(key).index.contains_key(&key)
    }

    /// Stores a copy of `block`.
    pub(crate) fn put(&self, key: Key, block: &[u8]) {
        let mut shard = self.shard(key);
        let mut buffer = shard.spare.pop().unwrap_or_else(|| self.new_block());
        buffer.copy_from_slice(block);
        shard.insert(key, buffer, self.slots_per_shard);
    }

    /// Bytes of blocks that it may hold.
    pub(crate) fn budget(&self) -> usize {
        self.slots_per_shard.saturating_mul(self.shards.len()).saturating_mul(self.block_size)
    }

    /// Frees all of its memory.
    pub(crate) fn clear(&self) {
        for shard in self.shards.iter() {
            let mut shard = shard.lock();
            let Shard { slots, spare, .. } = std::mem::take(&mut *shard);
            let blocks = slots.len().saturating_add(spare.len());
            self.memory.release(blocks.saturating_mul(self.block_size));
        }
    }

    fn new_block(&self) -> Box<[u8]> {
        self.memory.take(self.block_size);
        vec![0; self.block_size].into_boxed_slice()
    }

    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "there is at least one shard"
    )]
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // Neighbouring blocks go to different shards; the remainder is below their number.
        let shards = u64::try_from(self.shards.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(key.block % shards).unwrap_or(0);
        self.shards[index].lock()
    }
}

impl Shard {
    fn find(&mut self, key: Key) -> Option<&mut Slot> {
        let index = *self.index.get(&key)?;
        self.slots.get_mut(index)
    }

    #[expect(clippy::arithmetic_side_effects, reason = "the loop runs only if there are slots")]
    fn insert(&mut self, key: Key, bytes: Box<[u8]>, limit: usize) {
        if self.index.contains_key(&key) {
            self.spare.push(bytes);
            return;
        }
        if self.slots.len() < limit {
            self.index.insert(key, self.slots.len());
            self.slots.push(Slot { key, bytes, used: false });
            return;
        }
        // Two rounds: the first may clear every mark, the second then finds a slot.
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let Some(slot) = self.slots.get_mut(at) else { break };
            if std::mem::take(&mut slot.used) {
                continue;
            }
            self.index.remove(&slot.key);
            self.index.insert(key, at);
            let old = std::mem::replace(slot, Slot { key, bytes, used: false });
            self.spare.push(old.bytes);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &BlockCache, block: u64, loads: &mut usize) -> u8 {
        let load = |buffer: &mut [u8]| {
            *loads += 1;
            buffer.fill(u8::try_from(block % 251).unwrap());
            Ok::<_, ()>(())
        };
        cache.with_block(Key { device: 0, block }, load, |bytes| bytes[0]).unwrap()
    }

    #[test]
    fn used_blocks_stay_within_the_budget() {
        let cache = BlockCache::new(512, 512 * 16 * 4, Arc::new(Memory::new(None)));
        let mut loads = 0;
        for round in 0..100u64 {
            assert_eq!(get(&cache, 0, &mut loads), 0);
            assert_eq!(
                get(&cache, 16 * (round + 1), &mut loads),
                u8::try_from(16 * (round + 1) % 251).unwrap()
            );
        }
        assert_eq!(loads, 101, "block 0 was used in every round and stays");
        let shard = cache.shards[0].lock();
        assert_eq!(shard.slots.len(), 4);
        assert!(shard.spare.len() <= 1);
        drop(shard);
        assert!(cache.memory.held() >= 4 * 512);
        cache.clear();
        assert_eq!(cache.memory.held(), 0);
    }

    #[test]
    fn a_failed_load_is_not_cached() {
        let cache = BlockCache::new(512, 0, Arc::new(Memory::new(None)));
        let key = Key { device: 1, block: 3 };
        assert_eq!(cache.with_block(key, |_| Err("no"), |_| ()), Err("no"));
        assert_eq!(cache.with_block(key, |_| Ok::<_, &str>(()), |b| b.len()), Ok(512));
    }
}
