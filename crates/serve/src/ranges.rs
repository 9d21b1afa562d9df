//! Ranges of bytes of objects.

use std::ops::Range;

use ferofs_format::units::to_u64;

pub(crate) fn range_of(start: u64, bytes: &[u8]) -> Range<u64> {
    start..start.saturating_add(to_u64(bytes.len()))
}

/// The length of `range`.
pub(crate) const fn len_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Sorts ranges, drops empty ones, and joins those that touch or overlap.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The smallest range around `range` whose ends are multiples of `align`, which is not 0.
#[expect(clippy::arithmetic_side_effects, reason = "`align` is not 0")]
pub(crate) fn widened(range: &Range<u64>, align: u64) -> Range<u64> {
    range.start / align * align..range.end.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

/// The largest range within `range` whose ends are multiples of `align`, which is not 0. It can end
/// before it starts.
#[expect(clippy::arithmetic_side_effects, reason = "`align` is not 0")]
pub(crate) fn narrowed(range: &Range<u64>, align: u64) -> Range<u64> {
    range.start.checked_next_multiple_of(align).unwrap_or(u64::MAX)..range.end / align * align
}
