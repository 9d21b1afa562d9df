use super::super::decode;
use super::*;
use crate::decoder::Portion;
use proptest::prelude::*;

fn noise(len: usize, symbols: u32, seed: u32) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + ((state >> 16) % symbols) as u8
    })
    .take(len)
}

/// Encodes `src`, asserts that it decodes to the same bytes, and returns the bytes taken and the
/// encoded ones.
fn encode(optimal: &mut Optimal, src: &[u8], size: usize) -> (usize, usize) {
    let mut dst = vec![0; size];
    let Fit::Encoded { consumed, produced } = optimal.fit(src, src.len(), &mut dst) else {
        return (0, 0);
    };
    let mut out = vec![0; consumed];
    decode(&dst[..produced], &mut out, Portion::Whole).unwrap();
    assert!(out == src[..consumed]);
    (consumed, produced)
}

#[test]
fn memory_does_not_grow_with_the_input() {
    // Of two symbols nearly each position is a node.
    let src: Vec<u8> = noise(2 << 20, 2, 1).collect();
    let mut optimal = Optimal::new(Effort { attempts: 16, exact: true }, 65535);
    assert_eq!(encode(&mut optimal, &src, 1 << 20).0, src.len());
    assert!(optimal.settled.capacity() <= MAX_SETTLED, "{}", optimal.settled.capacity());
    assert!(optimal.path.capacity() <= MAX_SETTLED, "{}", optimal.path.capacity());
}

proptest! {
    #[test]
    fn starting_again_costs_some_bytes(
        pieces in proptest::collection::vec((0usize..9000, 1u32..40, any::<u32>(), 0usize..30_000, 0usize..3000), 9..30),
        size in 4096usize..70_000,
        attempts in 1u32..40,
    ) {
        let mut src = vec![0];
        for (len, symbols, seed, back, copied) in pieces {
            src.extend(noise(len, symbols, seed));
            let from = src.len() - back.min(src.len());
            src.extend_from_within(from..(from + copied).min(src.len()));
        }
        let mut optimal = Optimal::new(Effort { attempts, exact: true }, 65535);
        let (_, usual) = encode(&mut optimal, &src, 1 << 20);
        optimal.max_settled = 2 * RING + 1000;
        encode(&mut optimal, &src, size);
        // Usually one byte each time, and seldom ten: here after a thousand nodes, else after
        // 57,000.
        let (_, again) = encode(&mut optimal, &src, 1 << 20);
        prop_assert!(again <= usual + usual / 25 + 20, "{again} {usual}");
    }
}
