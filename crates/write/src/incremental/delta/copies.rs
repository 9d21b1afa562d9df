//! Finds bytes of the old image that the new one has, too, at any position: a rolling hash of the
//! new image is looked up among hashes of the old one's blocks, and what is equal grows to both
//! sides.

use std::io;

use ferofs_read::{Cancel, Source};

/// Bytes that are hashed, and the distance of the old positions whose hashes are known: equal bytes
/// of twice this length are always found.
const BLOCK: usize = 512;
/// Positions in the index at most, which takes 128 MiB with them: the distance in images of more
/// than 4 GiB is longer.
const POSITIONS_MAX: usize = 1 << 23;
/// The factor of the polynomial hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of the filter that spares look-ups in the table, which is larger than the processor's
/// caches.
const FILTER_BITS: u32 = 23;

/// Bytes that are read at once, and first where equal bytes end.
const WINDOW: usize = 1 << 20;
const FIRST_PART: usize = 4 << 10;

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
struct Index<'a> {
    old: &'a dyn Source,
    /// Bytes from one position to the next.
    distance: usize,
    filter: Vec<u64>,
    /// The lower half of the hash, and the number of the position + 1; or 0.
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

impl<'a> Index<'a> {
    /// For at most so many positions.
    fn new(old: &'a dyn Source, most: usize, cancel: &Cancel) -> io::Result<Self> {
        let blocks = old.size() as usize / BLOCK;
        let step = blocks.div_ceil(most).max(1);
        let bits = (blocks.div_ceil(step) * 2).max(2).next_power_of_two().ilog2();
        let (distance, filter) = (BLOCK * step, vec![0; 1 << (FILTER_BITS - 6)]);
        let mut index = Self { old, distance, filter, slots: vec![0; 1 << bits], bits };
        let mut window = Window::new(old, cancel);
        for (number, first) in (1u64..).zip((0..blocks).step_by(step)) {
            let block = &window.from(first * BLOCK)?[..BLOCK];
            let hash = mixed(hash(block));
            let bit = (hash >> (64 - FILTER_BITS)) as usize;
            index.filter[bit / 64] |= 1 << (bit % 64);
            // Blocks with the same content are found at their first position.
            let mut places = index.places(hash);
            if let (None, slot) = (places.by_ref().next(), places.slot) {
                index.slots[slot] = hash << 32 | number;
            }
        }
        Ok(index)
    }

    /// The positions of blocks with this hash.
    fn places(&self, hash: u64) -> Places<'_> {
        let slot = (hash >> (64 - self.bits)) as usize;
        Places { slots: &self.slots, distance: self.distance, hash, slot }
    }

    fn find(&self, block: &[u8], hash: u64) -> io::Result<Option<usize>> {
        let hash = mixed(hash);
        let bit = (hash >> (64 - FILTER_BITS)) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return Ok(None);
        }
        for place in self.places(hash) {
            let mut own = [0; BLOCK];
            self.old.read_exact_at(place as u64, &mut own)?;
            if own == *block {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

/// Positions in the slots of one hash.
struct Places<'a> {
    slots: &'a [u64],
    distance: usize,
    hash: u64,
    slot: usize,
}

impl Iterator for Places<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let (entry, slot) = (self.slots[self.slot], self.slot);
            let number = (entry as u32).checked_sub(1)?;
            self.slot = (slot + 1) % self.slots.len();
            if entry >> 32 == self.hash & u64::from(u32::MAX) {
                return Some(number as usize * self.distance);
            }
        }
    }
}

/// Fails once the search is cancelled.
fn check(cancel: &Cancel) -> io::Result<()> {
    if cancel.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// Bytes of an image around the one that was read last.
struct Window<'a> {
    source: &'a dyn Source,
    cancel: &'a Cancel,
    at: usize,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(source: &'a dyn Source, cancel: &'a Cancel) -> Self {
        Self { source, cancel, at: 0, bytes: Vec::new() }
    }

    /// The bytes from `at` on: a [`BLOCK`] or more, or all up to the end.
    fn from(&mut self, at: usize) -> io::Result<&[u8]> {
        let size = self.source.size() as usize;
        let end = self.at + self.bytes.len();
        if at < self.at || at + BLOCK > end && end < size {
            check(self.cancel)?;
            self.at = at;
            self.bytes.resize(size.saturating_sub(at).min(WINDOW), 0);
            self.source.read_exact_at(at as u64, &mut self.bytes)?;
        }
        Ok(self.bytes.get(at - self.at..).unwrap_or_default())
    }
}

/// The bytes that both images have from `at` on, which are positions in the old one and in the new
/// one; or before it, if it is to be `before`, of at most `most`.
fn equal_len(
    [old, new]: [&dyn Source; 2],
    at: [usize; 2],
    before: bool,
    most: usize,
    cancel: &Cancel,
) -> io::Result<usize> {
    let (mut len, mut part) = (0, FIRST_PART);
    let mut both = [Vec::new(), Vec::new()];
    while len < most {
        check(cancel)?;
        part = part.min(most - len);
        for ((source, at), bytes) in [old, new].into_iter().zip(at).zip(&mut both) {
            bytes.resize(part, 0);
            let start = if before { at - len - part } else { at + len };
            source.read_exact_at(start as u64, bytes)?;
        }
        let pairs = both[0].iter().zip(&both[1]);
        let own = match before {
            true => pairs.rev().take_while(|(a, b)| a == b).count(),
            false => pairs.take_while(|(a, b)| a == b).count(),
        };
        len += own;
        if own < part {
            break;
        }
        part = (part * 2).min(WINDOW);
    }
    Ok(len)
}

/// All ranges of the new image that the old one has, in order.
pub(super) fn find(images: [&dyn Source; 2], cancel: &Cancel) -> io::Result<Vec<Equal>> {
    find_with(images, POSITIONS_MAX, cancel)
}

fn find_with(
    [old, new]: [&dyn Source; 2],
    positions: usize,
    cancel: &Cancel,
) -> io::Result<Vec<Equal>> {
    let mut found: Vec<Equal> = Vec::new();
    let (old_len, new_len) = (old.size() as usize, new.size() as usize);
    if old_len < BLOCK {
        return Ok(found);
    }
    let index = Index::new(old, positions, cancel)?;
    let out_factor = (0..BLOCK).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
    let (mut own, mut beside) = (Window::new(new, cancel), Window::new(old, cancel));
    let mut at = 0;
    while at + BLOCK <= new_len {
        let start = found.last().map_or(0, Equal::end);
        let window = own.from(at)?;
        let same = if at < old_len { beside.from(at)? } else { &[] };
        let mut value = hash(&window[..BLOCK]);
        let mut place = None;
        for (offset, block) in window.windows(BLOCK).enumerate() {
            // The same position goes first: images keep much in its place.
            place = match same.get(offset..offset + BLOCK) {
                Some(same) if same == block => Some(at),
                _ => index.find(block, value)?,
            };
            if place.is_some() {
                break;
            }
            let (first, last) = (block[0], window.get(offset + BLOCK).copied().unwrap_or(0));
            value = value
                .wrapping_mul(FACTOR)
                .wrapping_add(u64::from(last) + 1)
                .wrapping_sub(out_factor.wrapping_mul(u64::from(first) + 1));
            at += 1;
        }
        let Some(place) = place else { continue };
        let sources = [old, new];
        let back = equal_len(sources, [place, at], true, place.min(at - start), cancel)?;
        let ends = [place + BLOCK, at + BLOCK];
        let most = (old_len - ends[0]).min(new_len - ends[1]);
        let after = equal_len(sources, ends, false, most, cancel)?;
        found.push(Equal { new: at - back, old: place - back, len: back + BLOCK + after });
        at += BLOCK + after;
    }
    Ok(found)
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
        let find = |old: &[u8], new: &[u8]| super::find([&old, &new], &Cancel::default()).unwrap();
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
        // With fewer positions, long ranges still are found.
        let some = find_with([&&old[..], &&new[..]], 25, &Cancel::default()).unwrap();
        assert_eq!(some.iter().map(|equal| equal.len).sum::<usize>(), 9_999 + 8_993);
    }
}
