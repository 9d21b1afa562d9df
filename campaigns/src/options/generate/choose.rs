//! Random choices that depend only on a seed.

use ferofs_tests::rng::Rng;

/// Adds choices to [`Rng`].
pub(crate) trait Choose {
    /// One of `from`, which must not be empty.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T;
    /// True in `percent` of 100 cases.
    fn chance(&mut self, percent: u64) -> bool;
    /// A number under `bound`, which must not be 0, as a length.
    fn len(&mut self, bound: usize) -> usize;
}

impl Choose for Rng {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.len(from.len())]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn len(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }
}
