//! Estimates, in one fast pass over the input, how many bits a slow compressor needs for each part
//! of it, so that few trials find the length that fits. Only the proportions of the costs matter:
//! the length search scales them.

/// Input bytes between two stored costs; costs between them are interpolated.
const STRIDE: usize = 128;
/// log2 of the hash table's entries, which take 16 KiB.
const TABLE_LOG: u32 = 12;
/// Costs in eighths of a bit: of a literal, of a match, and of each doubling of a match's length.
const LITERAL: u32 = 44;
const MATCH: u32 = 150;
const MATCH_BIT: u32 = 8;

/// The cost of each prefix of one cluster's input, computed as far as callers asked for.
pub(crate) struct CostEstimate {
    /// By hash of four bytes: their latest position.
    table: Box<[u32; 1 << TABLE_LOG]>,
    distance: usize,
    /// Entry `i` is the cost of the first `i * STRIDE` bytes.
    prefix_costs: Vec<u32>,
    /// Bytes scanned so far, and their cost.
    at: usize,
    cost: u32,
}

impl CostEstimate {
    /// Estimates for a compressor whose matches reach back at most `distance` bytes.
    pub(crate) fn new(distance: usize) -> Self {
        Self {
            table: Box::new([0; 1 << TABLE_LOG]),
            distance,
            prefix_costs: Vec::new(),
            at: 0,
            cost: 0,
        }
    }

    /// Starts another input.
    pub(crate) fn begin(&mut self) {
        self.table.fill(0);
        self.prefix_costs.clear();
        (self.at, self.cost) = (0, 0);
    }

    /// The cost of the first `len` bytes of `src`, at least 1.
    pub(crate) fn cost(&mut self, src: &[u8], len: usize) -> f64 {
        self.scan(src, |at, _| at >= len);
        let (index, rest) = (len / STRIDE, len % STRIDE);
        let low = self.prefix_cost(index);
        let high = self.prefix_cost(index + 1);
        (low + (high - low) * rest as f64 / STRIDE as f64).max(1.0)
    }

    /// The length of the prefix of `src` that costs `cost`; `src.len()` if all of it costs less.
    pub(crate) fn length(&mut self, src: &[u8], cost: f64) -> usize {
        self.scan(src, |_, so_far| f64::from(so_far) >= cost);
        let index = self.prefix_costs.partition_point(|&c| f64::from(c) < cost).saturating_sub(1);
        let (low, high) = (self.prefix_cost(index), self.prefix_cost(index + 1));
        let part = if high > low { ((cost - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        (index * STRIDE + (part * STRIDE as f64) as usize).min(src.len())
    }

    /// The cost of the first `index * STRIDE` bytes; of all bytes scanned if these are fewer.
    fn prefix_cost(&self, index: usize) -> f64 {
        f64::from(self.prefix_costs.get(index).copied().unwrap_or(self.cost))
    }

    /// Scans until `enough`, which gets the bytes scanned and their cost, returns true, or until
    /// the input's end.
    fn scan(&mut self, src: &[u8], enough: impl Fn(usize, u32) -> bool) {
        while self.at < src.len() && !enough(self.at, self.cost) {
            let (start, from) = self.search(src);
            self.advance(start, (start - self.at) as u32 * LITERAL);
            if let Some(from) = from {
                let len = 4 + common_prefix(&src[from + 4..], &src[start + 4..]);
                self.advance(
                    start + len,
                    (MATCH + MATCH_BIT * len.ilog2()).min(LITERAL * len as u32),
                );
            }
        }
    }

    /// The start of the next match, and the position that it repeats; `None` after 64 steps without
    /// a match. Steps grow, so that input without matches is scanned quickly.
    fn search(&mut self, src: &[u8]) -> (usize, Option<usize>) {
        let mut at = self.at;
        for tries in 0..64 {
            let Some(here) = src.get(at..at + 4) else { return (src.len(), None) };
            let word = u32::from_le_bytes([here[0], here[1], here[2], here[3]]);
            let slot =
                &mut self.table[(word.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_LOG)) as usize];
            let from = *slot as usize;
            *slot = at as u32;
            if from < at && at - from <= self.distance && src.get(from..from + 4) == Some(here) {
                return (at, Some(from));
            }
            at += 1 + tries / 16;
        }
        (at.min(src.len()), None)
    }

    /// Adds `cost` for the bytes up to `end`, distributed uniformly over them.
    fn advance(&mut self, end: usize, cost: u32) {
        let (start, len) = (self.at, (end - self.at) as u64);
        while self.prefix_costs.len() * STRIDE <= end {
            let part = (self.prefix_costs.len() * STRIDE).saturating_sub(start) as u64;
            self.prefix_costs
                .push(self.cost + (u64::from(cost) * part).checked_div(len).unwrap_or(0) as u32);
        }
        (self.at, self.cost) = (end, self.cost.saturating_add(cost));
    }
}

/// The length of the common prefix of `a` and `b`; a rest of less than eight bytes counts as
/// different.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) else { break };
        let differ = u64::from_le_bytes(x) ^ u64::from_le_bytes(y);
        if differ != 0 {
            return len + differ.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_the_inverse_of_cost() {
        let text: Vec<u8> = (0..9000u32).flat_map(|n| (n * n % 1009).to_le_bytes()).collect();
        let mut estimate = CostEstimate::new(1 << 20);
        estimate.begin();
        for len in [1, 100, 5000, 128, 36000, 20000] {
            let cost = estimate.cost(&text, len);
            assert!(estimate.length(&text, cost).abs_diff(len) <= STRIDE, "{len}");
        }
        assert_eq!(estimate.length(&text, 1e12), text.len());
    }

    #[test]
    fn repetitions_cost_less_than_random_bytes() {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..10_000).map(|_| noise()).collect();
        let mut estimate = CostEstimate::new(1 << 20);
        estimate.begin();
        let random_cost = estimate.cost(&noise, 10_000);
        estimate.begin();
        assert!(estimate.cost(&vec![7; 10_000], 10_000) * 20.0 < random_cost);
    }
}
