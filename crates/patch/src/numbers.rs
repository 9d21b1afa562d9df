//! Conversions between lengths in memory and lengths in files.

/// A length in memory as a length in a file.
pub(crate) fn to_u64(len: usize) -> u64 {
    // `usize` has at most 64 bits.
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A length in a file as a length in memory, or the largest one if memory has less.
pub(crate) fn to_usize(len: impl Into<u64>) -> usize {
    usize::try_from(len.into()).unwrap_or(usize::MAX)
}
