//! Data that several files have is stored once.

use std::fs;
use std::num::NonZeroUsize;

use ferofs_format::FileOffset;

use super::{TestBuild, noise, prose, settings, text};
use crate::{Compression, Fragments, IndexKind};

#[test]
fn identical_files_share_their_data() {
    let mut test = TestBuild::new();
    for size in [100, 4096, 50_000, 300_000] {
        for n in 0..5 {
            test.write(&format!("text{size}-{n}"), text(size));
            test.write(&format!("noise{size}-{n}"), noise(size));
        }
    }
    let settings = std::iter::once(None).chain(settings().into_iter().step_by(5).map(Some));
    for setting in settings {
        test.options.data.compression = setting;
        test.options.data.share_identical = false;
        let apart = test.build();
        test.options.data.share_identical = true;
        let shared = test.build();
        assert_eq!(apart.bytes_shared, 0);
        assert_eq!(shared.bytes_shared, 4 * 2 * (100 + 4096 + 50_000 + 300_000));
        assert!(shared.bytes_out < apart.bytes_out / 3, "{shared:?} {apart:?}");
        assert_eq!(test.read("text300000-4"), text(300_000));
        assert_eq!(test.read("noise4096-3"), noise(4096));
        assert_eq!(test.read("text100-3"), text(100));
    }
}

#[test]
fn files_that_differ_at_the_end_share_the_data_before() {
    let mut test = TestBuild::new();
    let ended = |end: u8| [noise(200_000), vec![end; 300]].concat();
    for end in 0..5 {
        test.write(&format!("file{end}"), ended(end));
    }
    for index in [IndexKind::Compact, IndexKind::Full, IndexKind::Extents] {
        for fragments in [Fragments::None, Fragments::Tails] {
            let lz4 = Compression::lz4(0).unwrap();
            let pcluster = Some(65536);
            test.options.data.compression =
                Some(Compression { pcluster, index, fragments, inline_tails: true, ..lz4 });
            let built = test.build();
            for end in 0..5 {
                assert_eq!(test.read(&format!("file{end}")), ended(end));
            }
            let shares = fragments == Fragments::Tails;
            assert_eq!(built.bytes_out < 400_000, shares, "{index:?} {fragments:?}: {built:?}");
        }
    }
}

#[test]
fn large_identical_files_are_stored_once() {
    let mut test = TestBuild::new();
    let book = prose(9 << 20, 1);
    test.write("a", &book);
    test.write("b", &book);
    // The same size, and the same samples.
    let mut other = book.clone();
    other[1 << 20] ^= 1;
    test.write("c", &other);
    for compression in [
        None,
        Some(Compression::lz4(0).unwrap()),
        Some(Compression {
            index: IndexKind::Extents,
            dedupe: true,
            ..Compression::lz4(0).unwrap()
        }),
    ] {
        test.options.data.compression = compression.clone();
        test.options.data.share_identical = false;
        let alone = test.build();
        test.options.data.share_identical = true;
        let images = [1, 4].map(|workers| {
            test.options.run.workers = NonZeroUsize::new(workers);
            let shared = test.build();
            let saved = alone.bytes_out - shared.bytes_out;
            if compression.as_ref().is_none_or(|compression| !compression.dedupe) {
                assert_eq!(shared.bytes_shared, 9 << 20);
                assert!(saved * 3 > alone.bytes_out * 9 / 10, "{saved} of {alone:?}");
            }
            fs::read(test.image()).unwrap()
        });
        assert!(images[0] == images[1]);
        let image = test.open();
        for (path, content) in [("a", &book), ("b", &book), ("c", &other)] {
            let inode = image.resolve(path.as_ref(), false).unwrap();
            let mut bytes = vec![0; content.len()];
            image.read_at(&inode, FileOffset::new(0), &mut bytes).unwrap();
            assert!(bytes == **content, "{path}");
        }
    }
}

#[test]
fn repeated_data_is_stored_once() {
    let mut test = TestBuild::new();
    let book = prose(3 << 20, 1);
    // Tasks that are encoded at the same time do not find each other's data, so other files are
    // between the two.
    for n in 0..40 {
        test.write(&format!("b{n:02}"), prose(1_100_000 + n, n as u32 + 2));
    }
    test.write("a", &book);
    let edited =
        [&book[..1_000_000], b"here", &book[1_000_000..2_000_000], &book[2_000_100..]].concat();
    let moved = [prose(333, 77), book[5000..].to_vec()].concat();
    test.write("y", &edited);
    test.write("z", &moved);
    let small = prose(100_000, 90);
    for n in 0..3 {
        test.write(
            &format!("near{n}"),
            [small.as_slice(), &prose(9000 + n, n as u32 + 95)].concat(),
        );
    }
    for index in [IndexKind::Compact, IndexKind::Extents] {
        for pcluster in [4096, 64 << 10] {
            let mut setting =
                Compression { index, pcluster: Some(pcluster), ..Compression::lz4(0).unwrap() };
            test.options.data.compression = Some(setting.clone());
            test.options.run.workers = None;
            let plain = test.build();
            setting.dedupe = true;
            test.options.data.compression = Some(setting);
            let mut images = [1, 5].map(|workers| {
                test.options.run.workers = NonZeroUsize::new(workers);
                let deduplicated = test.build();
                let saved = plain.bytes_out - deduplicated.bytes_out;
                assert!(deduplicated.bytes_shared > 5 << 20, "{deduplicated:?}");
                assert!(saved > 2 << 20, "{saved} of {plain:?}");
                fs::read(test.image()).unwrap()
            });
            images.sort_unstable_by_key(Vec::len);
            assert!(images[0] == images[1]);
            assert!(test.read("y") == edited && test.read("z") == moved && test.read("a") == book);
            assert!(test.read("near2").starts_with(&small));
        }
    }
}

#[test]
fn stored_content_is_found_again() {
    let mut test = TestBuild::new();
    let (small, large) = (noise(3 << 20), noise(9 << 20)[5 << 20..].repeat(3));
    test.write("a-small", &small);
    // Parts of a large file, which stay uncompressed together.
    let large: Vec<u8> =
        large.iter().zip(noise(large.len() + 9)[9..].iter()).map(|(a, b)| a ^ b).collect();
    test.write("b-large", &large);
    // A job finds what is some jobs before it.
    for n in 0..40 {
        test.write(&format!("c{n:02}"), prose(1 << 20, n));
    }
    // The same bytes in whole blocks, and at another offset.
    let again = |offset: usize| [&noise(offset)[..], &small[8192..], &large[40_960..]].concat();
    let blocks = noise(20_480).iter().map(|byte| !byte).collect::<Vec<_>>();
    let in_blocks = [&blocks[..], &small[8192..], &large[40_960..]].concat();
    test.write("x-in-blocks", &in_blocks);
    test.write("y-shifted", again(1234));
    for (index, finds) in [(IndexKind::Compact, 1), (IndexKind::Full, 1), (IndexKind::Extents, 2)] {
        let lz4 = Compression::lz4(0).unwrap();
        let sizes = [false, true].map(|dedupe| {
            test.options.data.compression = Some(Compression { index, dedupe, ..lz4.clone() });
            let built = test.build();
            assert_eq!(test.read("x-in-blocks"), in_blocks);
            assert_eq!(test.read("y-shifted"), again(1234));
            assert_eq!(test.read("b-large"), large);
            built.bytes_out
        });
        let (saved, file) = (sizes[0].saturating_sub(sizes[1]), in_blocks.len() as u64);
        assert!(
            saved > finds * file / 100 * 95,
            "{index:?}: {saved} bytes saved of {finds} x {file}"
        );
    }
}
