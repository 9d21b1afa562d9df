//! Joins missing ranges that are near each other, so that one request fetches them: a request costs
//! time, and so do bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fetch::join::join_gaps;
use crate::ranges::len_of;

/// How many bytes are fetched although they could be copied: at most one twentieth of those that
/// must be fetched.
#[derive(Debug, Default)]
pub(crate) struct GapBudget {
    /// Bytes that had to be fetched.
    needed: AtomicU64,
    /// Bytes between them that were fetched with them.
    gaps: AtomicU64,
}

impl GapBudget {
    const SHARE: u64 = 20;

    fn left(&self, needed: u64) -> u64 {
        let needed = self.needed.load(Ordering::Relaxed).saturating_add(needed);
        (needed / Self::SHARE).saturating_sub(self.gaps.load(Ordering::Relaxed))
    }

    /// Records a request that fetches `needed` bytes, and `gaps` bytes between them.
    fn spend(&self, needed: u64, gaps: u64) {
        self.needed.fetch_add(needed, Ordering::Relaxed);
        self.gaps.fetch_add(gaps, Ordering::Relaxed);
    }

    /// The ranges of requests that fetch `missing`, which are sorted. Gaps of at most `longest`
    /// bytes are also fetched, the shortest first, as far as the budget allows.
    pub(super) fn requests(&self, missing: &[Range<u64>], longest: u64) -> Vec<Range<u64>> {
        let needed = missing.iter().map(len_of).fold(0, u64::saturating_add);
        join_gaps(missing, longest, self.left(needed))
    }

    /// Records a request for `request`, of the ranges `missing`.
    pub(crate) fn record(&self, request: &Range<u64>, missing: &[Range<u64>]) {
        let within =
            missing.iter().filter(|range| request.start <= range.start && range.end <= request.end);
        let needed = within.map(len_of).fold(0, u64::saturating_add);
        self.spend(needed, len_of(request).saturating_sub(needed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_are_fetched_within_the_budget() {
        let budget = GapBudget::default();
        let missing = [0..1600, 1610..3200, 3205..3300, 4000..4800, 4810..4900];
        // 4175 bytes are needed: 208 bytes of gaps.
        assert_eq!(budget.requests(&missing, 1000), [0..3300, 4000..4900]);
        assert_eq!(budget.requests(&missing, 5), [0..1600, 1610..3300, 4000..4800, 4810..4900]);
        assert_eq!(budget.requests(&missing[..1], 5), [0..1600]);
        assert_eq!(budget.requests(&[], 5), []);
        budget.spend(0, 193);
        // 15 bytes are left: for the shortest, and one of the two others.
        assert_eq!(budget.requests(&missing, 1000), [0..3300, 4000..4800, 4810..4900]);
        budget.spend(0, 100);
        assert_eq!(budget.requests(&missing, 1000), missing);
        budget.record(&(0..3300), &missing);
        assert_eq!((budget.needed.into_inner(), budget.gaps.into_inner()), (3285, 308));
    }

    #[test]
    fn gaps_stay_within_their_share() {
        let budget = GapBudget::default();
        let (mut needed, mut requested) = (0, 0);
        for round in 0..200_u64 {
            let missing: Vec<_> = (0..40)
                .map(|n| n * 1000..n * 1000 + (n * 7919 + round * 104_729) % 900 + 1)
                .collect();
            needed += missing.iter().map(|range| range.end - range.start).sum::<u64>();
            for request in budget.requests(&missing, 500) {
                requested += request.end - request.start;
                budget.record(&request, &missing);
            }
        }
        assert!(requested > needed + needed / 21, "the budget is used: {requested} of {needed}");
        assert!(requested <= needed + needed / 20, "{requested} of {needed}");
    }
}
