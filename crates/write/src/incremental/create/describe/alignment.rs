//! Aligns new content with old content of which most bytes are equal, but not in long runs: a
//! program that was compiled again has other addresses in it. Ranges of both lie side by side
//! although some bytes differ.

use ferofs_update::format::piece::delta::Step;

/// Bytes by which equal ranges are found.
const KEY: usize = 8;
/// Old positions with the same hash that are compared, the last ones first: content can have the
/// same bytes very often.
const COMPARED_MAX: usize = 48;
/// Bytes by which a range elsewhere must be better than the present alignment: a step takes some
/// bytes.
const GAIN_MIN: usize = 8;
/// Equal bytes at the present alignment after which no other one is searched.
const RUN_MIN: usize = 32;
/// The end of a chain of positions.
const NONE: u32 = u32::MAX;

/// The positions in old content by the hash of the bytes there.
struct Index<'a> {
    old: &'a [u8],
    heads: Vec<u32>,
    /// The position before with the same hash.
    chain: Vec<u32>,
    bits: u32,
}

impl<'a> Index<'a> {
    fn new(old: &'a [u8]) -> Self {
        let bits = old.len().max(2).ilog2().clamp(10, 22);
        let mut index =
            Self { old, heads: vec![NONE; 1 << bits], chain: vec![NONE; old.len()], bits };
        for (at, key) in old.windows(KEY).enumerate() {
            let hash = index.hash(key);
            index.chain[at] = std::mem::replace(&mut index.heads[hash], at as u32);
        }
        index
    }

    fn hash(&self, key: &[u8]) -> usize {
        let mut bytes = [0; KEY];
        bytes.copy_from_slice(key);
        (u64::from_le_bytes(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits)) as usize
    }

    /// The longest range of the old content that `new` starts with: its position and its length.
    fn longest(&self, new: &[u8]) -> (usize, usize) {
        let Some(key) = new.get(..KEY) else { return (0, 0) };
        let mut best = (0, 0);
        let mut at = self.heads[self.hash(key)];
        for _ in 0..COMPARED_MAX {
            let Some(old) = self.old.get(at as usize..) else { break };
            let len = equal_run(old, new);
            if len > best.1 {
                best = (at as usize, len);
            }
            at = self.chain[at as usize];
        }
        best
    }
}

/// The number of bytes that two slices have in common at their start.
fn equal_run(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

/// The number of equal bytes of two slices at the same positions.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b).count()
}

/// A range of new content that lies beside old content.
#[derive(Clone, Copy, Debug)]
struct Aligned {
    new: usize,
    old: usize,
    len: usize,
}

/// Divides `new` into steps.
pub(crate) fn align(old: &[u8], new: &[u8]) -> Vec<Step> {
    let index = Index::new(old);
    // The empty range at the start lets what comes before the first range be inserted.
    let mut ranges = vec![Aligned { new: 0, old: 0, len: 0 }];
    let mut at = 0;
    while at < new.len() {
        let last = ranges[ranges.len() - 1];
        // What the last range says about this position.
        let beside = old.get(last.old + (at - last.new)..).unwrap_or(&[]);
        let run = equal_run(beside, &new[at..]);
        if run >= RUN_MIN {
            at += run;
            continue;
        }
        let (pos, len) = index.longest(&new[at..]);
        let own = equal_bytes(beside, &new[at..at + len]);
        if len > own + GAIN_MIN {
            ranges.push(Aligned { new: at, old: pos, len });
            at += len;
        } else {
            // The present alignment is nearly as good for all of these.
            at += (len / 2).max(run).max(1);
        }
    }
    steps(old, new, &mut ranges)
}

/// Lets the ranges grow towards each other while at least half of the bytes are equal; the rest is
/// inserted.
fn steps(old: &[u8], new: &[u8], ranges: &mut [Aligned]) -> Vec<Step> {
    for number in 0..ranges.len() {
        let (this, next) = (ranges[number], ranges.get(number + 1).copied());
        let gap = this.new + this.len..next.map_or(new.len(), |next| next.new);
        let is_equal = |(new_at, old_at): (usize, usize)| old[old_at] == new[new_at];
        let forward = best_len(gap.clone().zip(this.old + this.len..old.len()).map(is_equal));
        let Some(next) = next else {
            ranges[number].len += forward;
            continue;
        };
        let backward = best_len(gap.clone().rev().zip((0..next.old).rev()).map(is_equal));
        let (forward, backward) = match (forward + backward).checked_sub(gap.len()) {
            None => (forward, backward),
            Some(both) => {
                // The ranges overlap: the border is where most bytes are equal.
                let equal = |range: Aligned, at: usize| old[range.old + at - range.new] == new[at];
                let before = |at: usize| old[next.old - (next.new - at)] == new[at];
                let start = gap.start + forward - both;
                let (mut score, mut best, mut taken) = (0, 0, 0);
                for at in start..start + both {
                    score += i64::from(equal(this, at)) - i64::from(before(at));
                    if score > best {
                        (best, taken) = (score, at + 1 - start);
                    }
                }
                (forward - (both - taken), backward - taken)
            }
        };
        ranges[number].len += forward;
        let grown = Aligned {
            new: next.new - backward,
            old: next.old - backward,
            len: next.len + backward,
        };
        ranges[number + 1] = grown;
    }
    let ends = ranges.iter().skip(1).map(|next| next.new).chain([new.len()]);
    let steps = ranges.iter().zip(ends).map(|(range, end)| Step {
        old: range.old,
        add: range.len,
        insert: end - (range.new + range.len),
    });
    steps.filter(|step| step.add + step.insert > 0).collect()
}

/// The length at which the equal bytes outweigh the others most.
fn best_len(equal: impl Iterator<Item = bool>) -> usize {
    let (mut score, mut best, mut len) = (0i64, 0, 0);
    for (number, is_equal) in equal.enumerate() {
        score += if is_equal { 1 } else { -1 };
        if score > best {
            (best, len) = (score, number + 1);
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferofs_update::format::piece::delta;
    use proptest::prelude::*;

    fn round_trip(old: &[u8], new: &[u8]) -> usize {
        let delta = delta::encode(old, new, &align(old, new));
        let mut out = Vec::new();
        delta::decode(&delta, old, new.len(), &mut out).unwrap();
        assert!(out == new);
        delta.len()
    }

    /// Code with an address of four bytes after each twelve bytes, all of which are `base` higher.
    fn program(seed: u64, len: usize, base: u32) -> Vec<u8> {
        let mut state = seed;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&state.to_be_bytes());
            bytes.extend_from_slice(&state.rotate_left(20).to_be_bytes()[..4]);
            bytes.extend_from_slice(&((state >> 44) as u32 + base).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn moved_addresses_are_short() {
        let old = program(1, 200_000, 0);
        let moved = program(1, 200_000, 0x40);
        // Something is inserted, and the order of two halves is another.
        let new = [&moved[120_000..], &program(9, 3_000, 7)[..], &moved[..120_000]].concat();
        let steps = align(&old, &new);
        assert!(steps.len() <= 6, "{steps:?}");
        assert!(steps.iter().map(|step| step.insert).sum::<usize>() < 3_200, "{steps:?}");
        let len = round_trip(&old, &new);
        // A byte or two of each address, its distance, its length.
        assert!(len < 3_200 + 200_000 / 16 * 5, "{len}");
    }

    proptest! {
        #[test]
        fn any_content_round_trips(
            old: Vec<u8>,
            parts in proptest::collection::vec((any::<u16>(), 0usize..300, any::<u8>(), any::<Vec<u8>>()), 0..12),
        ) {
            let old = [&old[..], &program(3, 900, 5)].concat();
            let mut new = Vec::new();
            for (at, len, step, more) in parts {
                let start = usize::from(at) % old.len();
                let part = &old[start..(start + len).min(old.len())];
                new.extend(part.iter().enumerate().map(|(n, byte)| byte.wrapping_add(u8::from(n % 9 == 8) * step)));
                new.extend_from_slice(&more);
            }
            round_trip(&old, &new);
            round_trip(&new, &old);
            round_trip(&[], &new);
        }
    }
}
