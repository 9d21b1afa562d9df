//! Finds bytes of the old image that the new one has, too, at any position: a rolling hash of the
//! new image is looked up among hashes of the old one's blocks, and what is equal grows to both
//! sides.

/// Bytes that are hashed, and the distance of the old positions whose hashes are known: equal bytes
/// of twice this length are always found.
const BLOCK: usize = 512;
/// The factor of the polynomial hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of the filter that spares look-ups in the table, which is larger than the processor's
/// caches.
const FILTER_BITS: u32 = 23;

/// Equal bytes of both images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Equal {
    pub(super) new: usize,
    pub(super) old: usize,
    pub(super) len: usize,
}

impl Equal {
    pub(super) const fn end(&self) -> usize {
        self.new + self.len
    }
}

/// Positions in the old image by the hash of the block there.
struct Index {
    filter: Vec<u64>,
    /// Position + 1, or 0.
    slots: Vec<u64>,
    bits: u32,
}

fn hash(block: &[u8]) -> u64 {
    block
        .iter()
        .fold(0u64, |hash, byte| hash.wrapping_mul(FACTOR).wrapping_add(u64::from(*byte) + 1))
}

/// The upper bits of a polynomial hash depend on all bytes, once they are mixed.
fn mixed(hash: u64) -> u64 {
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Index {
    fn new(old: &[u8]) -> Self {
        let bits = (old.len() / BLOCK * 2).max(2).next_power_of_two().ilog2();
        let mut index =
            Self { filter: vec![0; 1 << (FILTER_BITS - 6)], slots: vec![0; 1 << bits], bits };
        for (number, block) in old.chunks_exact(BLOCK).enumerate() {
            let hash = mixed(hash(block));
            let bit = (hash >> (64 - FILTER_BITS)) as usize;
            index.filter[bit / 64] |= 1 << (bit % 64);
            let mut slot = (hash >> (64 - bits)) as usize;
            // Blocks with the same content are found at their first position.
            while index.slots[slot] != 0 {
                let at = index.slots[slot] as usize - 1;
                if old[at..at + BLOCK] == *block {
                    break;
                }
                slot = (slot + 1) % index.slots.len();
            }
            if index.slots[slot] == 0 {
                index.slots[slot] = (number * BLOCK) as u64 + 1;
            }
        }
        index
    }

    fn find(&self, old: &[u8], block: &[u8], hash: u64) -> Option<usize> {
        let hash = mixed(hash);
        let bit = (hash >> (64 - FILTER_BITS)) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        let mut slot = (hash >> (64 - self.bits)) as usize;
        while self.slots[slot] != 0 {
            let at = self.slots[slot] as usize - 1;
            if old[at..at + BLOCK] == *block {
                return Some(at);
            }
            slot = (slot + 1) % self.slots.len();
        }
        None
    }
}

/// All ranges of `new` that `old` has, in order.
pub(super) fn find(old: &[u8], new: &[u8]) -> Vec<Equal> {
    let mut found: Vec<Equal> = Vec::new();
    if old.len() < BLOCK {
        return found;
    }
    let index = Index::new(old);
    let out_factor = (0..BLOCK).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
    let mut at = 0;
    while at + BLOCK <= new.len() {
        // The same position goes first: images keep much in its place.
        let mut value = hash(&new[at..at + BLOCK]);
        let start = found.last().map_or(0, Equal::end);
        let mut next = new.len();
        while at + BLOCK <= new.len() {
            let block = &new[at..at + BLOCK];
            let place = match old.get(at..at + BLOCK) {
                Some(same) if same == block => Some(at),
                _ => index.find(old, block, value),
            };
            if let Some(place) = place {
                let back = new[start..at].iter().rev().zip(old[..place].iter().rev());
                let back = back.take_while(|(a, b)| a == b).count();
                let after = new[at + BLOCK..].iter().zip(&old[place + BLOCK..]);
                let after = after.take_while(|(a, b)| a == b).count();
                let equal = Equal { new: at - back, old: place - back, len: back + BLOCK + after };
                next = equal.end();
                found.push(equal);
                break;
            }
            let (first, last) = (new[at], new.get(at + BLOCK).copied().unwrap_or(0));
            value = value
                .wrapping_mul(FACTOR)
                .wrapping_add(u64::from(last) + 1)
                .wrapping_sub(out_factor.wrapping_mul(u64::from(first) + 1));
            at += 1;
        }
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_bytes_are_found_at_any_position() {
        let mut state = 7u64;
        let mut byte = || {
            state = state.wrapping_mul(FACTOR).wrapping_add(1);
            (state >> 56) as u8
        };
        let old: Vec<u8> = (0..50_000).map(|_| byte()).collect();
        let new = [&old[30_001..40_000], &old[..5], &old[7..9_000], &[1; 3000]].concat();
        let found = find(&old, &new);
        assert!(
            found
                .iter()
                .all(|equal| new[equal.new..equal.end()] == old[equal.old..equal.old + equal.len])
        );
        assert_eq!(found.iter().map(|equal| equal.len).sum::<usize>(), 9_999 + 8_993);
        assert!(found.windows(2).all(|pair| pair[0].end() <= pair[1].new));
        assert_eq!(find(&old, &old), [Equal { new: 0, old: 0, len: old.len() }]);
        assert!(find(&old[..100], &new).is_empty() && find(&old, &[]).is_empty());
    }
}
