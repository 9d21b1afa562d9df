//! A pseudo-random number generator (SplitMix64): the same seed gives the same numbers on every
//! machine.

/// The generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for the part called `label`: its numbers do not depend on how many numbers other
    /// parts have drawn.
    pub fn fork(&self, label: &[u8]) -> Self {
        let mix = label
            .iter()
            .fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        let mut fork = Self(mix);
        fork.next_u64();
        fork
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number under `bound` (which must not be 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// A number under `bound`, which must not be 0, as a length.
    pub fn len(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `from`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.len(from.len())]
    }

    /// One of these words.
    pub fn word(&mut self, words: &'static str) -> &'static str {
        self.pick(&words.split(' ').collect::<Vec<_>>())
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}
