//! Builds images, and compares names and content that the reader finds in them: also inline tails
//! of files that share extents with other files, and images of 2^32 blocks or more, in which all
//! that the build writes is after a large hole.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use ferofs_format::{BlockSize, FileOffset};
use ferofs_read::{ExtentData, Location};

use crate::build::build_from;
use crate::options::compression::MetadataCompression;
use crate::output::Output;
use crate::tests::{TestBuild, noise, settings, text};
use crate::{Compression, Error, Fragments, IndexKind, Options, sources};

#[test]
fn links_and_directories_with_blocks_of_their_own_find_them() {
    let mut test = TestBuild::new();
    test.options.image.block_size = BlockSize::from_bits(9).unwrap();
    let root = test.options.source.path.clone();
    let target =
        |number: usize| char::from(b'a' + number as u8).to_string().repeat(500 + 137 * number);
    // Links before, between and after directories, which are placed before them.
    for number in 0..20 {
        symlink(target(number), root.join(format!("{number:02}"))).unwrap();
        let dir = root.join(format!("{number:02}dir"));
        fs::create_dir(&dir).unwrap();
        for name in 0..number * 9 {
            fs::write(dir.join(format!("{}{name}", target(number).split_at(30).0)), "").unwrap();
        }
    }
    test.build();
    let image = test.open();
    for number in 0..20 {
        let link = image.resolve(format!("{number:02}").as_ref(), false).unwrap();
        assert_eq!(image.read_link(&link).unwrap(), target(number).as_bytes());
        for name in 0..number * 9 {
            test.read(&format!("{number:02}dir/{}{name}", target(number).split_at(30).0));
        }
    }
}

#[test]
fn content_is_equal_with_each_kind_of_compression() {
    let mut test = TestBuild::new();
    let mut files: Vec<(String, Vec<u8>)> =
        [0, 1, 4000, 4096, 4097, 70_000, 1_000_000, (4 << 20) + 77]
            .into_iter()
            .flat_map(|size| {
                [(format!("text{size}"), text(size)), (format!("noise{size}"), noise(size))]
            })
            .collect();
    for n in 0..60 {
        files.push((format!("small{n}"), text(n * 97)));
    }
    for (name, content) in &files {
        test.write(name, content);
    }
    for setting in settings() {
        test.options.data.compression = Some(setting.clone());
        test.build();
        let image = test.open();
        for (name, content) in &files {
            let inode = image.resolve(Path::new(name), false).unwrap();
            let mut read = vec![0; inode.size() as usize];
            image.read_at(&inode, FileOffset::new(0), &mut read).unwrap();
            assert!(&read == content, "{name} with {setting:?}");
        }
    }
}

#[test]
fn holes_need_no_space() {
    let mut test = TestBuild::new();
    let sparse = fs::File::create(test.options.source.path.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"data", 1 << 39).unwrap();
    fs::File::create(test.options.source.path.join("empty")).unwrap().set_len(1 << 30).unwrap();
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        test.options.data.compression = compression;
        test.options.run.progress = Default::default();
        let summary = test.build();
        assert!(summary.bytes_out < 64 << 20, "{summary:?}");
        // Nor do they count as work that is left.
        let progress = &test.options.run.progress;
        let [total, done] =
            [&progress.bytes_total, &progress.bytes_done].map(ferofs_read::Count::get);
        assert!(total < 16 << 20 && done == total, "{done} of {total}");
        let image = test.open();
        let inode = image.resolve(Path::new("sparse"), false).unwrap();
        let mut bytes = [1; 8];
        image.read_at(&inode, FileOffset::new((1 << 39) - 2), &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0data\0\0");
    }
}

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

/// The space for inline tails is computed for a compact index. Shared extents need a full index,
/// which is longer.
#[test]
fn inline_tails_stay_within_a_block_after_a_longer_index() {
    for in_metabox in [false, true] {
        let mut test = TestBuild::new();
        let compression = test.options.data.compression.as_mut().unwrap();
        compression.inline_tails = true;
        compression.dedupe = true;
        let metadata =
            crate::options::compression::MetadataCompression { method: 0, pcluster: 4096 };
        compression.metadata = in_metabox.then_some(metadata);
        let files = write_similar_files(&test);
        assert!(test.build().bytes_shared > 1_000_000);
        let image = test.open();
        let mut long = 0;
        for (name, content) in files {
            assert!(test.read(&name) == content, "{name}");
            let inode = image.resolve(Path::new(&name), false).unwrap();
            let last = image
                .extents(&inode, FileOffset::new(inode.size() - 1))
                .unwrap()
                .next()
                .unwrap()
                .unwrap();
            let inline = matches!(
                last.data,
                ExtentData::Encoded { at: Location::Metadata(_), .. }
                    | ExtentData::Stored { at: Location::Metadata(_) }
            );
            long += usize::from(
                inline && inode.layout() == ferofs_format::inode::DataLayout::CompressedFull,
            );
        }
        // Without this, the test would prove nothing.
        assert!(long > 0, "no inline tail follows a full index");
    }
}

/// Metadata begins after the superblock if all of it fits there, or if no data is before it.
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

/// The end of the hole, with blocks of 512 bytes.
const FAR: u64 = 512 * ((1 << 32) + 1000);

/// Builds with the first data at [`FAR`].
fn build_far(test: &TestBuild, options: &Options) -> Result<(), Error> {
    let mut output = Output::create(&test.image(), 0)?;
    output.pad_to(FAR)?;
    build_from(options, &mut output, test.dir.path(), |own_files, time, warnings| {
        sources::read_source(options, own_files, test.dir.path(), time, warnings)
    })?;
    output.finish()
}

#[test]
fn everything_is_found_after_two_to_the_32_blocks() {
    let mut test = TestBuild::new();
    let source = test.options.source.path.clone();
    test.write("small", text(100));
    test.write("large", text(300_000));
    fs::hard_link(source.join("small"), source.join("link")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(1300 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 1000 << 30).unwrap();
    fs::create_dir(source.join("directory")).unwrap();
    for number in 0..300 {
        test.write(&format!("directory/a-rather-long-name-{number}"), format!("{number}"));
    }
    test.options.image.block_size = BlockSize::from_bytes(512).unwrap();
    assert!(matches!(build_far(&test, &test.options), Err(Error::TooManyBlocks)));

    let compression = test.options.data.compression.as_mut().unwrap();
    compression.index = IndexKind::Extents;
    for (metadata, directories) in [(None, true), (Some(8192), false)] {
        let mut options = test.options.clone();
        let compression = options.data.compression.as_mut().unwrap();
        compression.metadata = metadata.map(|pcluster| MetadataCompression::new(0, pcluster));
        compression.directories = directories;
        let refused = build_far(&test, &options);
        assert!(
            matches!(refused, Err(Error::Option { option: "compressed metadata", .. })),
            "{refused:?}"
        );
    }
    for fragments in [Fragments::None, Fragments::Tails] {
        test.options.data.compression.as_mut().unwrap().fragments = fragments;
        build_far(&test, &test.options).unwrap();
        let what = format!("{fragments:?}");
        let image = test.open();
        assert!(image.superblock().blocks > 1 << 32, "{what}");
        assert_eq!(test.read("small"), text(100), "{what}");
        assert_eq!(test.read("link"), text(100), "{what}");
        assert_eq!(test.read("large"), text(300_000), "{what}");
        for number in [0, 150, 299] {
            let name = format!("directory/a-rather-long-name-{number}");
            assert_eq!(test.read(&name), number.to_string().as_bytes(), "{what}");
        }
        let directory = image.resolve(Path::new("directory"), false).unwrap();
        assert_eq!(image.read_dir(&directory).unwrap().count(), 302, "{what}");
        let sparse = image.resolve(Path::new("sparse"), false).unwrap();
        let mut data = [0; 6];
        assert_eq!(
            image.read_at(&sparse, FileOffset::new((1000 << 30) - 1), &mut data).unwrap(),
            6
        );
        assert_eq!(&data, b"\0data\0", "{what}");
    }
}
