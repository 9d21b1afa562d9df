//! Classifies access patterns.
//!
//! A server reads for the kernel's page cache, and adds pages to what the kernel asked for.
//! [`page_reads`] sees the kernel's reads, and tells the server which other pages to store.
//! `requests` sees the requests that the engine gets, with the bytes that the server added, and
//! decides on read-ahead and prefetch. The two cannot be one: the pages that the server adds hide
//! the kernel's pattern from the engine.

pub mod page_reads;
pub(crate) mod requests;

/// The entry of a table for a number. Numbers with equal remainders share an entry.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "`N` is at least 1, and a remainder by `N` is below `N`"
)]
pub(crate) fn table_entry<T, const N: usize>(table: &[T; N], number: u64) -> &T {
    &table[usize::try_from(number % ferofs_format::units::to_u64(N)).unwrap_or(0)]
}
