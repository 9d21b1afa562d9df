//! A hash table that finds the numbers of records, in 8 bytes for each. At most 85 % of it is full, so that a record takes 9.4 to 11.8 bytes.
//! `hashbrown` doubles its tables, so that a record would take 10.3 to 20.6 bytes; and without the tags it would look all records up, of which most
//! may be in a file, each time it grows.
//!
//! It keeps 32 bits of each hash, and the number of its shard is another 8 bits. Whoever needs all bits looks into the record.

/// Shards: each grows for itself, so that only a small part of the table is in memory twice at once.
const SHARDS: usize = 256;
/// The slots of a shard at first.
const LEAST: usize = 16;
/// A slot without a record.
const FREE: Slot = Slot { tag: 0, record: u32::MAX };

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    record: u32,
}

/// Records by hash. One hash may have several records, in any order.
#[derive(Debug)]
pub(super) struct Table(Vec<Shard>);

#[derive(Debug, Default)]
struct Shard {
    /// A record is in the first free slot at or behind the place of its tag, which ascends with the tag.
    slots: Box<[Slot]>,
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self(std::iter::repeat_with(Shard::default).take(SHARDS).collect())
    }
}

/// The shard and the tag of a hash.
fn split(hash: u64) -> (usize, u32) {
    // Hashes of anchors have bits that are always zero; both halves of the product depend on all bits.
    let product = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    let mixed = (product >> 64) as u64 ^ product as u64;
    (mixed as usize % SHARDS, (mixed >> 32) as u32)
}

impl Table {
    /// The records that may have this hash.
    pub(super) fn get(&self, hash: u64) -> impl Iterator<Item = u32> {
        let (shard, tag) = split(hash);
        self.0[shard].get(tag)
    }

    /// Adds a record, whose number is not `u32::MAX`.
    pub(super) fn insert(&mut self, hash: u64, record: u32) {
        let (shard, tag) = split(hash);
        self.0[shard].insert(Slot { tag, record });
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.0.iter().map(|shard| size_of_val(&*shard.slots)).sum()
    }
}

impl Shard {
    /// The slots from the place of `tag` on, up to the next free one.
    fn probe(&self, tag: u32) -> impl Iterator<Item = usize> {
        let len = self.slots.len();
        // Less than `len`.
        let first = ((u64::from(tag) * len as u64) >> 32) as usize;
        (first..len).chain(0..first)
    }

    fn get(&self, tag: u32) -> impl Iterator<Item = u32> {
        self.probe(tag)
            .map(|at| self.slots[at])
            .take_while(|slot| slot.record != FREE.record)
            .filter(move |slot| slot.tag == tag)
            .map(|slot| slot.record)
    }

    fn insert(&mut self, slot: Slot) {
        if (self.used + 1) * 100 > self.slots.len() * 85 {
            let len = (self.slots.len() / 4 * 5).max(LEAST);
            let old = std::mem::replace(&mut self.slots, vec![FREE; len].into());
            for slot in old.into_iter().filter(|slot| slot.record != FREE.record) {
                self.place(slot);
            }
        }
        self.place(slot);
        self.used += 1;
    }

    fn place(&mut self, slot: Slot) {
        let free = self.probe(slot.tag).find(|at| self.slots[*at].record == FREE.record);
        // At most 85 % are in use.
        if let Some(at) = free {
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_found_and_takes_at_most_12_bytes() {
        let mut table = Table::default();
        let hash = |n: u32| u64::from(n).wrapping_mul(0x2545_f491_4f6c_dd1d) & !(0x3ff << 40);
        for n in 0..300_000 {
            table.insert(hash(n), n);
            if n > 100_000 && n % 10_000 == 0 {
                assert!(table.bytes() <= 12 * n as usize, "{} bytes for {n}", table.bytes());
            }
        }
        let mut others = 0;
        for n in 0..300_000 {
            let found: Vec<u32> = table.get(hash(n)).collect();
            assert!(found.contains(&n));
            others += found.len() - 1;
        }
        assert!(others < 10, "{others} records have the hash of another one");
        assert_eq!(table.get(hash(300_001)).count(), 0);
        assert_eq!(Table::default().get(0).count(), 0);
    }

    #[test]
    fn a_hash_can_have_several_records() {
        let mut table = Table::default();
        for n in 0..100 {
            table.insert(7, n);
        }
        let mut found: Vec<u32> = table.get(7).collect();
        found.sort_unstable();
        assert_eq!(found, (0..100).collect::<Vec<_>>());
    }
}
