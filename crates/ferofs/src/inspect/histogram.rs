//! Histograms of sizes and ratios.

/// The number of values for each power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        let bin = usize::try_from(value.max(1).ilog2()).unwrap_or(0);
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
    }

    /// The bins that are not empty: the smallest value of each, and its count.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0u32..)
            .zip(&self.counts)
            .filter(|(_, count)| **count > 0)
            .map(|(bin, count)| (1u64 << bin, *count))
    }
}

/// The number of extents for each ratio of encoded to decoded size, in steps of 5 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ratios {
    counts: [u64; 21],
}

impl Ratios {
    pub(super) fn add(&mut self, encoded: u64, decoded: u64) {
        let percent = u128::from(encoded) * 100 / u128::from(decoded.max(1));
        let bin = usize::try_from(percent / 5).unwrap_or(20).min(20);
        self.counts[bin] += 1;
    }

    /// The lower bound of each step in per cent, and its count. The last step holds all ratios from
    /// 100 % on.
    pub fn bins(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0u32..).step_by(5).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_their_bins() {
        let mut sizes = Histogram::default();
        [0, 1, 4096, 8191, 8192, u64::MAX].into_iter().for_each(|value| sizes.add(value));
        let bins: Vec<_> = sizes.bins().collect();
        assert_eq!(bins, [(1, 2), (4096, 2), (8192, 1), (1 << 63, 1)]);
        let mut ratios = Ratios::default();
        for (encoded, decoded) in [(0, 100), (50, 100), (100, 100), (u64::MAX, 1)] {
            ratios.add(encoded, decoded);
        }
        let filled: Vec<_> = ratios.bins().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0, 1), (50, 1), (100, 2)]);
    }
}
