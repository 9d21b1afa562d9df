//! Conversions between lengths in memory and lengths on the medium, and look-ups in fixed tables.

/// A length in memory as a length on the medium. Linux has no platform with lengths beyond 64 bits.
pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The entry of a table for a number. Numbers with equal remainders share an entry.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "`N` is at least 1, and a remainder by `N` is below `N`"
)]
pub(crate) fn table_entry<T, const N: usize>(table: &[T; N], number: u64) -> &T {
    &table[usize::try_from(number % to_u64(N)).unwrap_or(0)]
}
