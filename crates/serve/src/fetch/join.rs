//! Joins ranges so that few requests fetch them.

use std::ops::Range;

use crate::cache::UNIT;
use crate::ranges::{len_of, merged, widened};

/// Bytes of gaps that are fetched with the ranges: a quarter of the ranges' bytes. With the rest of
/// the units at their borders, a program fetches less than 1.3 times what it needs.
const GAPS: u64 = 4;
/// The largest gap that is fetched, in bytes. To fetch it takes about as long as the latency of a
/// far server over a line of 100 Mbit/s; a larger one costs more than the request that it saves.
const GAP_MAX: u64 = 512 << 10;

/// Sorts `ranges`, widens them to whole units, and joins them across the smallest gaps between
/// them. The gaps have at most a quarter of the bytes of the ranges.
#[must_use]
pub fn join_ranges(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    let ranges = merged(ranges.iter().map(|range| widened(range, UNIT)).collect());
    let bytes = ranges.iter().map(len_of).fold(0, u64::saturating_add);
    join_gaps(&ranges, GAP_MAX, bytes / GAPS)
}

/// Joins ranges, which are sorted, across the smallest gaps between them: of at most `longest` bytes
/// each, and of at most `left` bytes together.
pub(super) fn join_gaps(ranges: &[Range<u64>], longest: u64, mut left: u64) -> Vec<Range<u64>> {
    let pairs = ranges.iter().zip(ranges.iter().skip(1));
    let gaps = pairs.map(|(one, next)| next.start.saturating_sub(one.end));
    let mut gaps: Vec<u64> = gaps.filter(|gap| *gap <= longest).collect();
    gaps.sort_unstable();
    // The largest gap of which some are joined, and how many of this size.
    let (mut largest, mut fits) = (0, 0usize);
    for gap in gaps {
        let Some(rest) = left.checked_sub(gap) else { break };
        fits = if gap == largest { fits.saturating_add(1) } else { 1 };
        (left, largest) = (rest, gap);
    }
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let gap = joined.last().map(|last| range.start.saturating_sub(last.end));
        let is_joined = gap.is_some_and(|gap| gap < largest || gap == largest && fits > 0);
        match joined.last_mut().filter(|_| is_joined) {
            Some(last) => {
                fits = fits.saturating_sub((gap == Some(largest)).into());
                last.end = range.end;
            }
            None => joined.push(range.clone()),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn sum(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn the_smallest_gaps_are_fetched() {
        // 40 KiB, and gaps of 12, 4, 8 and 4 KiB: 10 KiB may be fetched.
        let starts = [0, 20, 32, 48, 60].map(|start| start * KIB);
        let ranges: Vec<_> = starts.iter().map(|start| *start..start + 8 * KIB).collect();
        assert_eq!(
            join_ranges(ranges.clone()),
            [0..8 * KIB, 20 * KIB..40 * KIB, 48 * KIB..68 * KIB]
        );
        // Gaps of the largest size that fits are filled until the budget is used up.
        let equal: Vec<_> =
            (0..8).map(|number| number * 8 * KIB..number * 8 * KIB + 4 * KIB).collect();
        let joined = join_ranges(equal);
        assert_eq!((joined.len(), sum(&joined)), (6, 40 * KIB));
        // In any order, with overlaps, repetitions and nothing.
        let mut mixed: Vec<_> = ranges.iter().rev().chain(&ranges).cloned().collect();
        mixed.extend([9..9, 20 * KIB + 1..20 * KIB + 3]);
        assert_eq!(join_ranges(mixed), join_ranges(ranges));
        assert_eq!(join_ranges(Vec::new()), []);
    }

    #[test]
    fn units_are_whole_and_large_gaps_are_not_fetched() {
        assert_eq!(join_ranges(vec![1..2, 4097..4098]), [0..8192]);
        let far = 64 << 20;
        let ranges = vec![0..far, far + GAP_MAX..far + GAP_MAX + 4096, 2 * far..3 * far];
        assert_eq!(join_ranges(ranges), [0..far + GAP_MAX + 4096, 2 * far..3 * far]);
        assert_eq!(join_ranges(vec![u64::MAX - 5..u64::MAX]).len(), 1);
    }

    #[test]
    fn all_ranges_are_in_the_result_which_is_at_most_a_quarter_larger() {
        let mut random = 1_u64;
        let mut next = |most: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        for count in [1, 10, 300] {
            let ranges: Vec<Range<u64>> = (0..count)
                .map(|_| {
                    let start = next(20_000) * UNIT;
                    start..start + (next(40) + 1) * UNIT
                })
                .collect();
            let joined = join_ranges(ranges.clone());
            assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start), "{joined:?}");
            let is_in = |range: &Range<u64>| {
                joined.iter().any(|all| all.start <= range.start && range.end <= all.end)
            };
            assert!(ranges.iter().all(is_in));
            let mut units: Vec<u64> =
                ranges.iter().flat_map(|range| range.start / UNIT..range.end / UNIT).collect();
            units.sort_unstable();
            units.dedup();
            assert!(sum(&joined) <= units.len() as u64 * UNIT * 5 / 4, "{count}");
        }
    }
}
