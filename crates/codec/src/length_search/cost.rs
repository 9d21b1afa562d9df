//! How much of the input costs how much to encode, estimated by one fast look: a guess at what a slow compressor will
//! make of each stretch, so that few trials find the length that fits. Only proportions matter.

/// Input bytes between two marks.
const STRIDE: usize = 128;
const TABLE_LOG: u32 = 12;
/// Costs in eighths of a bit: of a literal, and of a match by its first and each further doubling of its length.
const LITERAL: u32 = 44;
const MATCH: u32 = 150;
const MATCH_BIT: u32 = 8;

/// The cost of every prefix of one cluster's input, known as far as it was asked for.
pub(crate) struct CostEstimate {
    /// Where four bytes with this hash were last seen.
    table: Box<[u32; 1 << TABLE_LOG]>,
    distance: usize,
    /// The cost of the first `i * STRIDE` bytes.
    marks: Vec<u32>,
    /// Bytes scanned, and their cost.
    at: usize,
    cost: u32,
}

impl CostEstimate {
    /// One for a compressor that refers back at most `distance` bytes.
    pub(crate) fn new(distance: usize) -> Self {
        Self { table: Box::new([0; 1 << TABLE_LOG]), distance, marks: Vec::new(), at: 0, cost: 0 }
    }

    /// Forgets the input so far.
    pub(crate) fn begin(&mut self) {
        self.table.fill(0);
        self.marks.clear();
        (self.at, self.cost) = (0, 0);
    }

    /// The cost of the first `len` bytes of `src`, at least 1.
    pub(crate) fn cost(&mut self, src: &[u8], len: usize) -> f64 {
        self.scan(src, |at, _| at >= len);
        let (mark, rest) = (len / STRIDE, len % STRIDE);
        let low = self.mark(mark);
        let high = self.mark(mark + 1);
        (low + (high - low) * rest as f64 / STRIDE as f64).max(1.0)
    }

    /// How many bytes of `src` cost `cost`; all of them if they cost less.
    pub(crate) fn length(&mut self, src: &[u8], cost: f64) -> usize {
        self.scan(src, |_, so_far| f64::from(so_far) >= cost);
        let mark = self.marks.partition_point(|&c| f64::from(c) < cost).saturating_sub(1);
        let (low, high) = (self.mark(mark), self.mark(mark + 1));
        let part = if high > low { ((cost - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        (mark * STRIDE + (part * STRIDE as f64) as usize).min(src.len())
    }

    /// The cost at a mark; the last one's if there is none.
    fn mark(&self, at: usize) -> f64 {
        f64::from(self.marks.get(at).copied().unwrap_or(self.cost))
    }

    /// Goes on until `enough` of the bytes scanned and their cost, or the input's end.
    fn scan(&mut self, src: &[u8], enough: impl Fn(usize, u32) -> bool) {
        while self.at < src.len() && !enough(self.at, self.cost) {
            let (start, from) = self.search(src);
            self.go_to(start, (start - self.at) as u32 * LITERAL);
            if let Some(from) = from {
                let len = 4 + common(&src[from + 4..], &src[start + 4..]);
                self.go_to(start + len, (MATCH + MATCH_BIT * len.ilog2()).min(LITERAL * len as u32));
            }
        }
    }

    /// Where the next match starts and what it repeats; `None` after some fruitless steps, which grow.
    fn search(&mut self, src: &[u8]) -> (usize, Option<usize>) {
        let mut at = self.at;
        for tries in 0..64 {
            let Some(here) = src.get(at..at + 4) else { return (src.len(), None) };
            let word = u32::from_le_bytes([here[0], here[1], here[2], here[3]]);
            let slot = &mut self.table[(word.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_LOG)) as usize];
            let from = *slot as usize;
            *slot = at as u32;
            if from < at && at - from <= self.distance && src.get(from..from + 4) == Some(here) {
                return (at, Some(from));
            }
            at += 1 + tries / 16;
        }
        (at.min(src.len()), None)
    }

    /// Spreads `cost` over the bytes up to `end`.
    fn go_to(&mut self, end: usize, cost: u32) {
        let (start, len) = (self.at, (end - self.at) as u64);
        while self.marks.len() * STRIDE <= end {
            let part = (self.marks.len() * STRIDE).saturating_sub(start) as u64;
            self.marks.push(self.cost + (u64::from(cost) * part).checked_div(len).unwrap_or(0) as u32);
        }
        (self.at, self.cost) = (end, self.cost.saturating_add(cost));
    }
}

/// The length of the common start.
fn common(a: &[u8], b: &[u8]) -> usize {
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
    fn lengths_and_costs_are_each_others_inverse() {
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
    fn repeats_cost_less_than_noise() {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..10_000).map(|_| noise()).collect();
        let mut estimate = CostEstimate::new(1 << 20);
        estimate.begin();
        let dear = estimate.cost(&noise, 10_000);
        estimate.begin();
        assert!(estimate.cost(&vec![7; 10_000], 10_000) * 20.0 < dear);
    }
}
