use proptest::prelude::*;

use super::*;
use crate::{Algorithm, Fit, Params, compressor};

/// One encoded cluster, and its decoded content.
fn cluster(content: &[u8], max_distance: u16) -> (Vec<u8>, Vec<u8>) {
    let params = Params::new(Algorithm::Lz4, Some(3)).unwrap();
    let mut encoder = compressor(&Params { dictionary: max_distance.into(), ..params }).unwrap();
    let mut block = vec![0; 1 << 16];
    let Fit::Encoded { consumed, produced, .. } = encoder.fit(content, 0, &mut block).unwrap()
    else {
        return (Vec::new(), Vec::new());
    };
    block.truncate(produced);
    (block, content[..consumed].to_vec())
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..300),
        (any::<u8>(), 1usize..5000).prop_map(|(byte, len)| vec![byte; len]),
        (proptest::collection::vec(0u8..9, 1..60), 1usize..90).prop_map(|(text, n)| text.repeat(n)),
    ];
    // The same bytes twice, so that matches reach far back.
    proptest::collection::vec(piece, 1..60)
        .prop_map(|pieces| [pieces.concat(), pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_range_equals_that_part_of_the_whole(
        content in content(),
        skip: prop::sample::Index,
        len: prop::sample::Index,
    ) {
        let (encoded, expected) = cluster(&content, u16::MAX);
        if !expected.is_empty() {
            let skip = skip.index(expected.len());
            let len = len.index(expected.len() - skip) + 1;
            let mut window = vec![0xa5; lz4_window(u16::MAX)];
            let mut out = vec![0; len];
            decode_range(&encoded, &mut window, skip, &mut out).unwrap();
            prop_assert!(out == expected[skip..skip + len]);
            let mut beyond = vec![0; expected.len() - skip + 1];
            prop_assert!(decode_range(&encoded, &mut window, skip, &mut beyond).is_err());
        }
    }

    #[test]
    fn a_window_for_the_largest_distance_is_enough(
        content in content(),
        max_distance in 1024u16..9000,
        skip: prop::sample::Index,
    ) {
        let (encoded, expected) = cluster(&content, max_distance);
        if !expected.is_empty() {
            let skip = skip.index(expected.len());
            let mut window = vec![0xa5; lz4_window(max_distance)];
            let mut out = vec![0; expected.len() - skip];
            decode_range(&encoded, &mut window, skip, &mut out).unwrap();
            prop_assert!(out == expected[skip..]);
        }
    }

    #[test]
    fn garbage_never_panics(src: Vec<u8>, len in 0usize..3000, skip in 0usize..200_000, window in 0usize..9000) {
        let mut window = vec![0; window];
        let _ = decode_range(&src, &mut window, skip, &mut vec![0; len]);
    }
}

#[test]
fn matches_reach_back_across_the_windows_end() {
    // Three times the same 50,000 random bytes, in one match as our encoders do not write it.
    let part = noise(50_000);
    let expected = [part.as_slice(), &part, &part, &[9; 12]].concat();
    let length =
        |len: usize| [vec![255; len / 255], vec![u8::try_from(len % 255).unwrap()]].concat();
    let distance = 50_000u16.to_le_bytes();
    let encoded = [
        &[0xff],
        &*length(50_000 - 15),
        &part,
        &distance,
        &*length(100_000 - 19),
        &[0xc0],
        &[9; 12],
    ]
    .concat();
    let mut window = vec![0; lz4_window(u16::MAX)];
    let ring = window.len() - SLACK;
    for skip in [0, 1, 49_999, 65_535, 65_536, ring - 1, ring, ring + 1, 2 * ring, 149_000] {
        let mut out = vec![0; (expected.len() - skip).min(60_000)];
        decode_range(&encoded, &mut window, skip, &mut out).unwrap();
        assert!(out == expected[skip..skip + out.len()], "{skip}");
    }
    let result = decode_range(&encoded, &mut vec![0; lz4_window(40_000)], 60_000, &mut [0; 9]);
    assert!(matches!(result, Err(DecodeError::MatchBeyondWindow)), "{result:?}");
}
