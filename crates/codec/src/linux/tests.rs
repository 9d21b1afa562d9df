use super::*;
use crate::{Fit, Params, compressor};
use ferofs_format::algorithm::AlgorithmConfig;

fn text(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 28) as u8
    })
    .take(len)
    .collect()
}

fn encoded(algorithm: Algorithm, src: &[u8]) -> Vec<u8> {
    let mut out = vec![0; src.len()];
    let mut compressor = compressor(&Params::new(algorithm, None).unwrap()).unwrap();
    let Fit::Encoded { produced, .. } = compressor.fit_exact(src, &mut out).unwrap() else {
        panic!()
    };
    out.truncate(produced);
    out
}

fn announced(algorithm: Algorithm, window: u32) -> CompressionConfigs {
    let mut configs = CompressionConfigs::default();
    configs.extend(algorithm, AlgorithmConfig { window, max_pcluster_blocks: 1 });
    configs
}

#[test]
fn matches_beyond_the_announced_distance_are_refused() {
    let half = text(30_000);
    let src = [&half[..], &half].concat();
    let place = ClusterPlace { block: 4096, offset: 0 };
    let check = |algorithm, stream: &[u8], configs: &CompressionConfigs| {
        LinuxChecker::default().check(algorithm, stream, place, src.len(), Portion::Whole, configs)
    };
    let lz4 = encoded(Algorithm::Lz4, &src);
    for (distance, result) in
        [(29_999, Err(LinuxRefusal::Distance)), (30_000, Ok(())), (65_535, Ok(()))]
    {
        let configs = announced(Algorithm::Lz4, distance);
        assert_eq!(check(Algorithm::Lz4, &lz4, &configs), result, "{distance}");
    }
    let lzma = encoded(Algorithm::Lzma, &src);
    for (dict_size, result) in [(16 << 10, Err(LinuxRefusal::Distance)), (32 << 10, Ok(()))] {
        let configs = announced(Algorithm::Lzma, dict_size);
        assert_eq!(check(Algorithm::Lzma, &lzma, &configs), result, "{dict_size}");
    }
}

fn check(
    algorithm: Algorithm,
    src: &[u8],
    offset: usize,
    decoded: usize,
) -> Result<(), LinuxRefusal> {
    let place = ClusterPlace { block: 4096, offset };
    let configs = announced(Algorithm::Zstd, 128 << 10);
    LinuxChecker::default().check(algorithm, src, place, decoded, Portion::Whole, &configs)
}

#[test]
fn a_page_must_hold_more_than_the_end_of_a_deflate_stream() {
    let mut refused = Vec::new();
    for len in 9000..9016 {
        let src = text(len);
        let stream = encoded(Algorithm::Deflate, &src);
        // The number of bytes in the last page.
        for end in 1..8 {
            let offset = (end + 8192 - stream.len()) % 4096;
            let place = ClusterPlace { block: 4096, offset };
            let padding = LinuxChecker::default().deflate_padding(&stream, place, len);
            if check(Algorithm::Deflate, &stream, offset, len).is_ok() {
                assert_eq!(padding, Some(0));
                continue;
            }
            refused.push(end);
            let Some(padding) = padding else { continue };
            assert!(padding > 0);
            let padded = [&vec![0; padding][..], &stream].concat();
            check(Algorithm::Deflate, &padded, offset, len).unwrap();
        }
    }
    refused.sort_unstable();
    refused.dedup();
    // An end-of-block code of 15 bits at most is in the last two bytes.
    assert!(refused == [1] || refused == [1, 2], "{refused:?}");
}

#[test]
fn padding_must_end_in_the_first_block() {
    let stream = encoded(Algorithm::Lz4, &b"the same and the same and ".repeat(400));
    let padded = [&[0; 4][..], &stream].concat();
    check(Algorithm::Lz4, &padded, 4091, 10_400).unwrap();
    assert_eq!(check(Algorithm::Lz4, &padded, 4092, 10_400), Err(LinuxRefusal::Padding));
    assert_eq!(check(Algorithm::Lz4, &[0; 100], 0, 10_400), Err(LinuxRefusal::Padding));
}

#[test]
fn an_inline_cluster_must_not_start_at_a_pages_second_block() {
    let stream = encoded(Algorithm::Lz4, &b"the same and the same and ".repeat(400));
    let check = |offset| {
        let place = ClusterPlace { block: 1024, offset };
        let none = CompressionConfigs::default();
        LinuxChecker::default().check(Algorithm::Lz4, &stream, place, 10_400, Portion::Whole, &none)
    };
    assert_eq!(check(1024), Err(LinuxRefusal::Padding));
    for offset in [0, 1016, 1032, 2048, 3072] {
        check(offset).unwrap();
    }
}

#[test]
fn a_frame_needs_the_extents_length_and_an_announced_window() {
    let src = text(300_000);
    let stream = encoded(Algorithm::Zstd, &src);
    let check = |decoded, portion, log| {
        let place = ClusterPlace { block: 4096, offset: 0 };
        LinuxChecker::default().check(
            Algorithm::Zstd,
            &stream,
            place,
            decoded,
            portion,
            &announced(Algorithm::Zstd, 1u32 << log),
        )
    };
    check(300_000, Portion::Whole, 19).unwrap();
    check(299_999, Portion::Prefix, 19).unwrap();
    assert_eq!(check(299_999, Portion::Whole, 19), Err(LinuxRefusal::Frame));
    assert_eq!(check(300_001, Portion::Prefix, 19), Err(LinuxRefusal::Frame));
    assert_eq!(check(300_000, Portion::Whole, 12), Err(LinuxRefusal::Window));
}

#[test]
fn a_block_is_not_longer_than_the_window() {
    // A frame with a window of 1 KiB, and blocks that are not encoded or repeat a byte.
    let frame = |lens: &[u32]| {
        let content: u32 = lens.iter().sum();
        let mut frame = [&ZSTD_MAGIC[..], &[0x80, 0], &content.to_le_bytes()].concat();
        for (number, len) in lens.iter().enumerate() {
            let (last, repeats) = (number + 1 == lens.len(), number % 2);
            let header = len << 3 | (repeats as u32) << 1 | u32::from(last);
            frame.extend_from_slice(&header.to_le_bytes()[..3]);
            frame.resize(frame.len() + if repeats == 1 { 1 } else { *len as usize }, 7);
        }
        (frame, content as usize)
    };
    for (lens, is_refused) in [
        (&[1024; 8][..], false),
        (&[1024, 1024, 1024, 1024, 1024, 1024, 1024, 1025], true),
        (&[1024, 1025, 1024, 1024, 1024, 1024, 1024, 1024], true),
        // In one page, Linux decodes it at once.
        (&[1025, 1024], false),
    ] {
        let (stream, decoded) = frame(lens);
        zstd_safe::decompress(&mut vec![0; decoded][..], &stream).unwrap();
        let refused = check(Algorithm::Zstd, &stream, 0, decoded);
        assert_eq!(refused == Err(LinuxRefusal::Stream), is_refused, "{lens:?}: {refused:?}");
        let place = ClusterPlace { block: 4096, offset: 0 };
        let configs = announced(Algorithm::Zstd, 128 << 10);
        let prefix = LinuxChecker::default().check(
            Algorithm::Zstd,
            &stream,
            place,
            decoded - 1025,
            Portion::Prefix,
            &configs,
        );
        // Linux reads no further than it needs.
        assert_eq!(prefix.is_err(), is_refused && lens.last() == Some(&1024), "{lens:?}");
    }
}
