//! The encoder's output decodes to its input.

use super::*;
use crate::options::compression::IndexKind;
use ferofs_codec::{Decoder, Params, Portion};
use ferofs_format::Algorithm;
use proptest::prelude::*;

fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..9000),
        (any::<u8>(), 1usize..30_000).prop_map(|(byte, len)| vec![byte; len]),
        (proptest::collection::vec(0u8..4, 1..40), 1usize..800)
            .prop_map(|(text, n)| text.repeat(n)),
    ];
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

fn compression() -> impl Strategy<Value = Compression> {
    let method = prop_oneof![
        4 => Just((Algorithm::Lz4, 0u8)),
        1 => Just((Algorithm::Lz4, 9)),
        1 => Just((Algorithm::Deflate, 1)),
        1 => Just((Algorithm::Zstd, 1)),
    ];
    let index =
        prop_oneof![Just(IndexKind::Compact), Just(IndexKind::Full), Just(IndexKind::Extents)];
    let fragments = prop_oneof![Just(Fragments::None), Just(Fragments::Tails)];
    let max_extent = prop_oneof![3 => Just(None), 1 => (4096u32..20_000).prop_map(Some)];
    (method, 0u32..6, index, fragments, max_extent, any::<bool>()).prop_map(
        |((algorithm, level), blocks, index, fragments, max_extent, inline_tails)| Compression {
            pcluster: Some(4096 << blocks),
            index,
            fragments,
            max_extent,
            inline_tails,
            ..Compression::new(Params::new(algorithm, Some(level)).unwrap())
        },
    )
}

proptest! {
    #[test]
    fn extents_decode_to_the_content(
        compression in compression(), src in content(), more: bool, inline_capacity in 0usize..5000,
    ) {
        let (block, timings) = (BlockSize::DEFAULT, Timings::default());
        let mut encoder = Encoder::new(&compression, block, &timings);
        let file_compression = compression.for_file(0, Vec::new, block).unwrap();
        let following = if more { Following::MoreData } else { Following::EndOfFile { inline_capacity } };
        let (mut extents, mut tails) = (Vec::new(), Vec::new());
        let sink = Sink { extents: &mut extents, tails: &mut tails };
        let Encoded { log, tail, .. } = encoder.encode(&src, file_compression, following, None, u64::MAX, sink).unwrap().unwrap();
        let algorithm = compression.methods[0].algorithm;
        let mut out = Vec::new();
        let mut decoder = Decoder::default();
        let mut decode = |bytes: &[u8], len: usize| {
            let mut decoded = vec![0; len];
            decoder.decode(algorithm, bytes, &mut decoded, Portion::Whole).unwrap();
            decoded
        };
        prop_assert_eq!(log.size(), extents.len() as u64);
        for (at, extent) in log.placed(ferofs_format::BytePos::new(0)) {
            let bytes = &extents[at.get() as usize..][..extent.size as usize];
            match extent.encoded {
                true => out.extend(decode(bytes, extent.len as usize)),
                false => out.extend_from_slice(&bytes[..extent.len as usize]),
            }
            prop_assert!(extent.size <= file_compression.pcluster as u64);
            if compression.index != IndexKind::Extents {
                prop_assert_eq!(extent.size % block.bytes64(), 0);
                prop_assert!(!extent.encoded || extent.len > extent.size);
            }
        }
        let rest = src.len() - out.len();
        match tail {
            EncodedTail::None => prop_assert!(tails.is_empty()),
            EncodedTail::Fragment { bytes } => {
                prop_assert!(!more && bytes == tails.len());
                out.extend_from_slice(&tails);
            }
            EncodedTail::Inline { bytes, encoded } => {
                prop_assert!(!more && bytes == tails.len() && bytes <= inline_capacity);
                if encoded { out.extend(decode(&tails, rest)) } else { out.extend_from_slice(&tails) }
            }
        }
        prop_assert!(out == src);
    }
}

#[test]
fn random_bytes_are_stored_up_to_where_others_begin() {
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let src: Vec<u8> =
        noise.take(1 << 20 | 200 << 10).chain(b"some words ".repeat(40_000)).collect();
    let compression = Compression {
        pcluster: Some(1 << 20),
        index: IndexKind::Extents,
        ..Compression::new(Params::new(Algorithm::Zstd, Some(3)).unwrap())
    };
    let (block, timings) = (BlockSize::DEFAULT, Timings::default());
    let mut encoder = Encoder::new(&compression, block, &timings);
    let (mut extents, mut tails) = (Vec::new(), Vec::new());
    let sink = Sink { extents: &mut extents, tails: &mut tails };
    let file = compression.for_file(0, Vec::new, block).unwrap();
    let encoded =
        encoder.encode(&src, file, Following::MoreData, None, u64::MAX, sink).unwrap().unwrap();
    let extents: Vec<(bool, u64)> =
        encoded.log.iter().map(|extent| (extent.encoded, extent.len)).collect();
    let stored: u64 = extents.iter().filter(|(encoded, _)| !encoded).map(|(_, len)| len).sum();
    // The last whole piece of 16 KiB that is random ends at 1216 KiB.
    assert_eq!(stored, 1216 << 10, "{extents:?}");
    assert!(extents.last().unwrap().0);
}
