//! Conversions between lengths in memory and lengths in files.

/// For lengths in memory.
pub(crate) fn to_u64(len: usize) -> u64 {
    // `usize` has at most 64 bits.
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// For sizes of blocks and units, which fit.
pub(crate) fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
