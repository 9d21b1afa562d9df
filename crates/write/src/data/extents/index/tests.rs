use super::*;

fn encoder(bits: u8, index: IndexKind) -> IndexEncoder {
    IndexEncoder { index, block: BlockSize::from_bits(bits).unwrap(), big_pclusters: false }
}

fn extent(len: u64, encoded: bool, size: u64) -> Extent {
    Extent { len, encoded, size, place: ExtentPlace::Next }
}

/// The length in KiB of each pcluster of a hole of `len` KiB after one block, and whether it is
/// marked as a hole.
fn hole_after_a_block(bits: u8, len: u64) -> Vec<(u64, bool)> {
    let encoder = IndexEncoder { big_pclusters: true, ..encoder(bits, IndexKind::Full) };
    let block = encoder.block.bytes64();
    let mut log = ExtentLog::new(block);
    log.push(extent(block, false, block));
    log.push(Extent::hole(len << 10));
    let zeroes = Some(ZeroCluster { at: BytePos::new(0), len: ZeroCluster::BLOCKS_MIN * block });
    let (first, algorithm, tail) = (BytePos::new(block), Algorithm::Lz4, &FileTail::None);
    let file = FileExtents { log: &log, tail, size: log.decoded_len(), first, algorithm, zeroes };
    let (mut end, mut parts) = (log.decoded_len(), Vec::new());
    for pcluster in encoder.pclusters(file).skip(1).collect::<Vec<_>>().into_iter().rev() {
        parts.insert(0, ((end - pcluster.start.get()) >> 10, pcluster.hole));
        end = pcluster.start.get();
    }
    parts
}

#[test]
fn holes_of_few_blocks_have_whole_extents() {
    assert_eq!(hole_after_a_block(16, 64), [(64, false)]);
    assert_eq!(hole_after_a_block(15, 80), [(80, false)]);
    assert_eq!(hole_after_a_block(15, 96), [(64, false), (32, true)]);
    assert_eq!(hole_after_a_block(12, 24), [(8, false), (12, true), (4, true)]);
}

#[test]
fn every_block_size_has_an_index() {
    for bits in 9..=16 {
        for index in [IndexKind::Compact, IndexKind::Full] {
            let encoder = encoder(bits, index);
            let block = encoder.block.bytes64();
            let mut log = ExtentLog::new(block);
            log.push(extent(100 * block + 7, true, block));
            log.push(extent(block, false, block));
            let file = FileExtents {
                log: &log,
                tail: &FileTail::None,
                size: log.decoded_len(),
                first: BytePos::new(block),
                algorithm: Algorithm::Lz4,
                zeroes: None,
            };
            let (_, bytes) = encoder.encode(file, 44).unwrap();
            assert!(bytes.len() as u64 <= encoder.max_size(log.decoded_len()), "{block} {index:?}");
        }
    }
}

#[test]
fn extents_take_the_smallest_records() {
    let encoder = encoder(12, IndexKind::Extents);
    let records = |lens: &[u64], first: u64, tail: &FileTail, size: u64| {
        let mut log = ExtentLog::new(4096);
        lens.iter().for_each(|len| log.push(extent(*len, true, 1000)));
        let first = BytePos::new(first);
        encoder
            .choose_records(FileExtents {
                log: &log,
                tail,
                size,
                first,
                algorithm: Algorithm::Zstd,
                zeroes: None,
            })
            .unwrap()
            .size()
    };
    let none = FileTail::None;
    assert_eq!(records(&[5000], 100, &none, 5000), RecordSize::Bytes8);
    assert_eq!(records(&[5000], 1 << 33, &none, 5000), RecordSize::Bytes16);
    assert_eq!(records(&[8192, 8192, 8192, 1], 100, &none, 24577), RecordSize::Bytes4);
    assert_eq!(
        records(&[8192, 8192, 8192], 100, &FileTail::Fragment { offset: 9 }, 24577),
        RecordSize::Bytes4
    );
    let far = FileTail::Fragment { offset: 1 << 33 };
    assert_eq!(records(&[8192, 8192, 8192], 100, &far, 24577), RecordSize::Bytes8);
    assert_eq!(records(&[8192, 8193], 100, &none, 16385), RecordSize::Bytes16);
    assert_eq!(records(&[8192; 2000], 100, &none, 2000 * 8192), RecordSize::Bytes8);
    assert_eq!(records(&[8192; 2000], 1 << 33, &none, 2000 * 8192), RecordSize::Bytes16);
}
