//! Checked hash blocks in memory: a bounded cache. A block has one set of places where it can be;
//! of these, the place that was not used for the longest time is taken. Places are allocated once
//! and used again, so that the memory of a long mount does not grow by fragmentation. Each set has
//! a lock of its own.

use parking_lot::{Mutex, MutexGuard};

use ferofs_format::units::to_u64;

/// Bytes of hash blocks that are kept: they cover 64 MiB of an image with the usual sizes. With
/// more, a mount would need more than the 1 MiB that docs/SEALING.md promises.
const LIMIT: usize = 512 << 10;
/// Places of a set: one for a hash block of each level, of which images up to 1 TiB have four, so
/// that they do not replace each other.
const PLACES: usize = 4;

/// Checked hash blocks, by number.
#[derive(Debug)]
pub(crate) struct HashCache {
    sets: Box<[Mutex<Set>]>,
}

#[derive(Debug, Default)]
struct Set {
    places: [Place; PLACES],
    /// Counts the uses.
    uses: u64,
}

#[derive(Debug, Default)]
struct Place {
    /// The number of the block, if there is one.
    number: Option<u64>,
    bytes: Box<[u8]>,
    /// The value of [`Set::uses`] when the block was last used.
    used: u64,
}

impl HashCache {
    /// For hash blocks of `block_len` bytes. Allocates no memory for blocks yet.
    pub(crate) fn new(block_len: usize) -> Self {
        let blocks = LIMIT.checked_div(block_len).unwrap_or(LIMIT);
        let sets = (blocks / PLACES).max(1);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// Passes the bytes of block `number` to `use_bytes`, or returns `use_bytes` if they are not
    /// here. Other threads wait for it if they need a block of the same set.
    pub(crate) fn with<R, F: FnOnce(&[u8]) -> R>(&self, number: u64, use_bytes: F) -> Result<R, F> {
        let Some(mut set) = self.set(number) else { return Err(use_bytes) };
        set.uses = set.uses.saturating_add(1);
        let now = set.uses;
        match set.places.iter_mut().find(|place| place.number == Some(number)) {
            Some(place) => {
                place.used = now;
                Ok(use_bytes(&place.bytes))
            }
            None => Err(use_bytes),
        }
    }

    /// Adds a block, whose digest the caller has checked.
    pub(crate) fn insert(&self, number: u64, bytes: &[u8]) {
        let Some(mut set) = self.set(number) else { return };
        set.uses = set.uses.saturating_add(1);
        let now = set.uses;
        let known = set.places.iter().position(|place| place.number == Some(number));
        let oldest = || {
            set.places
                .iter()
                .enumerate()
                .min_by_key(|(_, place)| place.used)
                .map(|(index, _)| index)
        };
        let Some(place) = known.or_else(oldest).and_then(|index| set.places.get_mut(index)) else {
            return;
        };
        if place.bytes.len() == bytes.len() {
            // No other block's number stays with half of these bytes if this panics.
            place.number = None;
            place.bytes.copy_from_slice(bytes);
        } else {
            place.bytes = bytes.into();
        }
        (place.number, place.used) = (Some(number), now);
    }

    fn set(&self, number: u64) -> Option<MutexGuard<'_, Set>> {
        let index = usize::try_from(number.checked_rem(to_u64(self.sets.len()))?).ok()?;
        Some(self.sets.get(index)?.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_a_set_that_was_not_used_longest_is_removed() {
        let cache = HashCache::new(4096);
        let sets = (LIMIT / 4096 / PLACES) as u64;
        let has = |number: u64| {
            cache.with(number * sets, |bytes| assert!(bytes == [number as u8; 4096])).is_ok()
        };
        for number in 0..4 {
            assert!(!has(number));
            cache.insert(number * sets, &[number as u8; 4096]);
            // Of another set.
            cache.insert(number * sets + 1, &[9; 4096]);
        }
        assert!(has(0));
        cache.insert(4 * sets, &[4; 4096]);
        assert_eq!((0..5).filter(|number| has(*number)).collect::<Vec<_>>(), [0, 2, 3, 4]);
    }

    #[test]
    fn memory_is_bounded_for_all_sizes() {
        for block_len in [512, 4096, 65_536] {
            let cache = HashCache::new(block_len);
            for number in 0..4000 {
                cache.insert(number, &vec![0; block_len]);
            }
            let kept = (0..4000).filter(|number| cache.with(*number, |_| ()).is_ok()).count();
            assert_eq!(kept * block_len, LIMIT);
        }
    }
}
