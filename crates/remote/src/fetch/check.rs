//! Checks bytes against the hash tree before they are stored.

use std::ops::Range;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The bytes have the digests of the hash tree.
    Right,
    /// Nothing covers these bytes.
    NotCovered,
    /// They have others.
    Wrong,
}

/// Checks bytes that arrived from a server.
pub trait Check: Send + Sync {
    /// Start and end of checked ranges are multiples of this, or the end of the object.
    fn align(&self) -> u64;

    /// The ranges of the object that must be stored before `range` can be checked, in the order in which they can be checked.
    fn needs(&self, range: &Range<u64>) -> Vec<Range<u64>>;

    /// Checks the bytes that start at `start`.
    fn check(&self, start: u64, bytes: &[u8]) -> Checked;
}
