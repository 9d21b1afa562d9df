use super::*;
use proptest::prelude::*;

fn configs() -> impl Strategy<Value = CompressionConfigs> {
    let windows = (1u32..=65535, 0..=*LZMA_DICT_SIZES.end(), 0u8..=15, 10u8..=31);
    (windows, any::<u16>(), 0u16..16).prop_map(|((lz4, lzma, deflate, zstd), blocks, used)| {
        let mut configs = CompressionConfigs::default();
        for (algorithm, window) in
            Algorithm::ALL.into_iter().zip([lz4, lzma, 1 << deflate, 1 << zstd])
        {
            let max_pcluster_blocks = if algorithm == Algorithm::Lz4 { blocks } else { 0 };
            if used & algorithm.bit() != 0 {
                configs.extend(algorithm, AlgorithmConfig { window, max_pcluster_blocks });
            }
        }
        configs
    })
}

proptest! {
    #[test]
    fn round_trips(configs in configs()) {
        let bytes = configs.to_bytes();
        prop_assert_eq!(CompressionConfigs::parse(configs.available(), &bytes), Ok(configs));
        let is_longest = Algorithm::ALL.into_iter().all(|algorithm| configs.contains(algorithm));
        prop_assert_eq!(bytes.len() == CompressionConfigs::LEN_MAX, is_longest);
    }

    #[test]
    fn garbage_never_panics(available: u16, bytes: Vec<u8>) {
        let _ = CompressionConfigs::parse(available, &bytes);
    }
}

/// The last values that are accepted, and the first ones that are not.
#[test]
fn limits_of_records() {
    let lz4 = CompressionConfigs::parse(1, &[14, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let config = AlgorithmConfig { window: 65535, max_pcluster_blocks: 3 };
    assert_eq!(lz4.unwrap().get(Algorithm::Lz4), Some(config));
    let is_taken = |available, len: u8, record: &[u8]| {
        let mut bytes = [&[len, 0], record].concat();
        bytes.resize(usize::from(len) + 2, 0);
        CompressionConfigs::parse(available, &bytes).is_ok()
    };
    for (available, len, good, bad) in [
        (2, 14, &[0, 0, 0x80, 0][..], &[&[1, 0, 0x80, 0][..], &[0, 0, 0, 0, 1]][..]),
        (4, 6, &[15], &[&[16]]),
        (8, 6, &[0, 21], &[&[0, 22], &[0, 246], &[1]]),
    ] {
        assert!(is_taken(available, len, good) && !is_taken(available, len - 1, good));
        assert!(bad.iter().all(|bad| !is_taken(available, len, bad)), "{available}");
    }
    assert!(!is_taken(16, 14, &[]));
}

#[test]
fn numbers_are_unique_and_ascend() {
    assert!(Algorithm::ALL.is_sorted_by(|one, next| one.id() < next.id()));
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_id(algorithm.id()), Some(algorithm));
        assert_eq!(algorithm.bit(), 1 << algorithm.id());
    }
}
