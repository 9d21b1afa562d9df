//! Conversions between lengths in memory and lengths on the medium.

/// A length in memory as a length on the medium. Linux has no platform with lengths beyond 64 bits.
pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
