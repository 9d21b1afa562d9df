//! Inline tails of files that share extents with other files.

use std::path::Path;

use ferofs_format::FileOffset;
use ferofs_read::{ExtentData, Location};

use super::TestBuild;

/// Text from 1,024 different words. Each `seed` gives another order.
fn words(seed: u32, len: usize) -> Vec<u8> {
    let (mut state, mut bytes) = (seed.wrapping_mul(2_654_435_761), Vec::new());
    while bytes.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend(format!("{:07x} ", (state >> 22).wrapping_mul(2_654_435_761)).bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Writes files with the same first 1.6 MB and different ends.
fn write_similar_files(test: &TestBuild) -> Vec<(String, Vec<u8>)> {
    let start = words(1, 1_600_000);
    (0..40u32)
        .map(|number| {
            let end = words(number + 9, 2000 + 50 * number as usize);
            let (name, content) = (format!("file{number}"), [start.clone(), end].concat());
            test.write(&name, &content);
            (name, content)
        })
        .collect()
}

/// The space for inline tails is computed for a compact index. Shared extents need a full index, which is longer.
#[test]
fn inline_tails_stay_within_a_block_when_shared_extents_make_the_index_longer() {
    for in_metabox in [false, true] {
        let mut test = TestBuild::new();
        let compression = test.options.data.compression.as_mut().unwrap();
        compression.inline_tails = true;
        compression.dedupe = true;
        let metadata = crate::options::compression::MetadataCompression { method: 0, pcluster: 4096 };
        compression.metadata = in_metabox.then_some(metadata);
        let files = write_similar_files(&test);
        assert!(test.build().bytes_shared > 1_000_000);
        let image = test.open();
        let mut long = 0;
        for (name, content) in files {
            assert!(test.read(&name) == content, "{name}");
            let inode = image.resolve(Path::new(&name), false).unwrap();
            let last =
                image.extents(&inode, FileOffset::new(inode.size() - 1)).unwrap().next().unwrap().unwrap();
            let inline = matches!(
                last.data,
                ExtentData::Encoded { at: Location::Metadata(_), .. }
                    | ExtentData::Stored { at: Location::Metadata(_) }
            );
            long += usize::from(inline && inode.layout() == ferofs_format::inode::DataLayout::CompressedFull);
        }
        // Without this, the test would prove nothing.
        assert!(long > 0, "no inline tail follows a full index");
    }
}

/// Metadata begins behind the superblock if all of it fits there, or if no data is before it.
#[test]
fn tiny_images_have_one_block() {
    for (bits, files, blocks) in [
        (12, vec![], 1),
        (12, vec![100], 1),
        (12, vec![2700], 1),
        (12, vec![2900], 2),
        (12, vec![100; 10], 1),
        (12, vec![1000; 10], 4),
        // Data in a block of its own.
        (12, vec![4096], 2),
        (12, vec![4096 + 100], 2),
        (12, vec![4096 + 3500], 3),
        (13, vec![5000], 1),
        (9, vec![], 3),
        (9, vec![100], 3),
        (10, vec![500], 2),
    ] {
        let mut test = TestBuild::new();
        test.options.data.compression = None;
        test.options.image.block_size = crate::BlockSize::from_bits(bits).unwrap();
        for (number, len) in files.iter().enumerate() {
            test.write(&format!("file{number}"), words(number as u32, *len));
        }
        let summary = test.build();
        assert_eq!(summary.bytes_out >> bits, blocks, "{files:?} with blocks of 2^{bits} bytes");
        for (number, len) in files.iter().enumerate() {
            assert_eq!(test.read(&format!("file{number}")), words(number as u32, *len));
        }
    }
}
