use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn headers(block: BlockSize) -> impl Strategy<Value = MapHeader> {
    let cluster = (0u8..=15).prop_map(move |extra| ClusterSize::new(block, extra).unwrap());
    let tail = prop_oneof![
        Just(Tail::Blocks),
        (1u16..=512).prop_map(|size| Tail::Inline { size }),
        any::<u32>().prop_map(|offset| Tail::Fragment { offset }),
    ];
    let format = prop_oneof![
        Just(IndexFormat::Full),
        any::<bool>().prop_map(|compacted_2b| IndexFormat::Compact { compacted_2b })
    ];
    let index =
        (cluster.clone(), tail, format, 0usize..4, 0usize..4, any::<[bool; 2]>(), any::<bool>())
            .prop_map(|(cluster, tail, format, first, second, mut big_pclusters, interlaced)| {
                if format != IndexFormat::Full {
                    big_pclusters[1] = big_pclusters[0];
                }
                let algorithms = [Algorithm::ALL[first], Algorithm::ALL[second]];
                MapHeader::Index(IndexHeader {
                    format,
                    cluster,
                    algorithms,
                    big_pclusters,
                    interlaced,
                    tail,
                })
            });
    let records = prop_oneof![
        (any::<bool>(), cluster)
            .prop_map(|(with_start, unit)| Records::Regular { with_start, unit }),
        (any::<bool>(), 0..EXTENTS_LIMIT).prop_map(|(wide, count)| Records::Sorted { wide, count }),
    ];
    let extents =
        (records, any::<bool>(), any::<bool>()).prop_map(|(records, interlaced, fragment_tail)| {
            MapHeader::Extents(ExtentsHeader { records, interlaced, fragment_tail })
        });
    prop_oneof![
        (0..WHOLE_FRAGMENT).prop_map(|offset| MapHeader::WholeFragment { offset }),
        index,
        extents
    ]
}

fn blocks_and_headers() -> impl Strategy<Value = (BlockSize, MapHeader)> {
    (9u8..=16).prop_flat_map(|bits| {
        let block = BlockSize::from_bits(bits).unwrap();
        (Just(block), headers(block))
    })
}

proptest! {
    #[test]
    fn round_trips((block, header) in blocks_and_headers()) {
        let bytes = header.to_bytes(block).unwrap();
        prop_assert_eq!(MapHeader::parse(&bytes, header.layout(), block), Ok(header));
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>, full: bool, bits in 9u8..=16) {
        let layout = if full { DataLayout::CompressedFull } else { DataLayout::CompressedCompact };
        let block = BlockSize::from_bits(bits).unwrap();
        if let Ok(header) = MapHeader::parse(&bytes, layout, block) {
            prop_assert!(header.to_bytes(block).is_ok());
        }
    }
}

#[test]
fn refuses_contradictions() {
    let parse = |bytes: [u8; 8]| {
        MapHeader::parse(&bytes, DataLayout::CompressedCompact, BlockSize::DEFAULT)
    };
    assert!(parse([0, 0, 0, 0, 0x06, 0, 0, 0]).is_ok());
    assert!(parse([0, 0, 0, 0, 0x02, 0, 0, 0]).is_err());
    assert!(parse([0, 0, 1, 0, 0x28, 0, 0, 0]).is_err());
    assert!(parse([0, 0, 0, 0, 0x08, 0, 0, 0]).is_err());
    assert!(parse([0, 0, 1, 16, 0x08, 0, 0, 0]).is_err());
    assert!(parse([0, 0, 0, 0, 0, 0, 0x40, 0]).is_err());
    assert!(MapHeader::parse(&[0; 8], DataLayout::ChunkBased, BlockSize::DEFAULT).is_err());
    assert!(MapHeader::WholeFragment { offset: 1 << 63 }.to_bytes(BlockSize::DEFAULT).is_err());
}
