//! A copy in memory of the bits of stored units, so that most reads need not read them from the
//! file.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use ferofs_format::units::to_usize;

/// Words of a part of the bits: 4 KiB, for 128 MiB of the object.
const WORDS: usize = 512;
/// Units of such a part.
#[expect(clippy::as_conversions, reason = "`usize` has at most 64 bits")]
const PART: u64 = 64 * WORDS as u64;
/// Parts at most: those of 16 TiB, a list of 2 MiB. Bits after them are read from the file each
/// time. A server can claim any size.
const PARTS_MAX: u64 = 1 << 17;

/// Bits of units that were stored in a generation. Memory is used only for parts that were read.
#[derive(Debug)]
pub(crate) struct LocalBits {
    parts: Vec<OnceLock<Box<[AtomicU64; WORDS]>>>,
    generation: AtomicU64,
    changes: Mutex<()>,
}

impl LocalBits {
    pub(crate) fn new(units: u64) -> Self {
        let parts = (0..units.div_ceil(PART).min(PARTS_MAX)).map(|_| OnceLock::new()).collect();
        Self { parts, generation: AtomicU64::new(0), changes: Mutex::new(()) }
    }

    /// The generation that the bits are of.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    #[expect(clippy::indexing_slicing, reason = "`words` gives numbers of words below `WORDS`")]
    pub(crate) fn has_all(&self, units: Range<u64>) -> bool {
        words(units).all(|(part, word, mask)| {
            let part = self.parts.get(part).and_then(OnceLock::get);
            part.is_some_and(|part| part[word].load(Ordering::Acquire) & mask == mask)
        })
    }

    /// Adds units that were stored in `generation`, if no newer one is known: generations only
    /// grow.
    #[expect(clippy::indexing_slicing, reason = "as above")]
    pub(crate) fn insert(&self, units: Range<u64>, generation: u64) {
        let _lock = self.changes.lock();
        if self.generation() < generation {
            self.start(generation);
        }
        if self.generation() > generation {
            return;
        }
        for (part, word, mask) in words(units) {
            if let Some(part) = self.parts.get(part) {
                let part = part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
                part[word].fetch_or(mask, Ordering::Release);
            }
        }
    }

    /// Forgets all units of generations before `generation`.
    pub(crate) fn clear(&self, generation: u64) {
        let _lock = self.changes.lock();
        if self.generation() < generation {
            self.start(generation);
        }
    }

    fn start(&self, generation: u64) {
        for part in self.parts.iter().filter_map(OnceLock::get) {
            for word in part.iter() {
                word.store(0, Ordering::Release);
            }
        }
        self.generation.store(generation, Ordering::Release);
    }
}

/// The words of `units`: part, word, and the bits in it.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "`len` is 1 to 64, and `at` goes up to the end of `units`"
)]
fn words(units: Range<u64>) -> impl Iterator<Item = (usize, usize, u64)> {
    let mut at = units.start;
    std::iter::from_fn(move || {
        let len = (64 - at % 64).min(units.end.checked_sub(at).filter(|len| *len > 0)?);
        let mask = u64::MAX >> (64 - len) << (at % 64);
        let place = (to_usize(at / PART), to_usize(at % PART / 64), mask);
        at += len;
        Some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_inserted_in_this_generation() {
        let bits = LocalBits::new(100_000);
        bits.insert(60..130, 5);
        bits.insert(40_000..40_001, 5);
        assert!(bits.has_all(60..130) && bits.has_all(64..128) && bits.has_all(40_000..40_001));
        assert!(!bits.has_all(59..61) && !bits.has_all(129..131) && !bits.has_all(99_999..100_000));
        bits.clear(5);
        assert!(bits.has_all(60..130), "the same generation");
        bits.clear(6);
        assert!(!bits.has_all(60..61));
        bits.insert(60..130, 5);
        assert!(!bits.has_all(60..61), "an older generation");
        assert_eq!(bits.generation(), 6);
    }

    /// The size that a server claims must not decide how much memory is used.
    #[test]
    fn bits_of_a_huge_object_are_those_of_its_start() {
        let bits = LocalBits::new(1 << 51);
        let end = PART * PARTS_MAX;
        bits.insert(end - 1..end + 1, 0);
        assert!(bits.has_all(end - 1..end) && !bits.has_all(end..end + 1));
    }
}
