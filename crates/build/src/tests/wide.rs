//! Images of 2^32 blocks or more: all that the build writes is behind a large hole.

use std::fs;
use std::path::Path;

use ferofs_format::{BlockSize, FileOffset};

use super::{TestBuild, text};
use crate::build::build_from;
use crate::options::compression::MetadataCompression;
use crate::output::Output;
use crate::{Error, Fragments, IndexKind, Options, sources};

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
fn everything_is_found_behind_two_to_the_32_blocks() {
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
        assert!(matches!(refused, Err(Error::Option { option: "compressed metadata", .. })), "{refused:?}");
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
        assert_eq!(image.read_at(&sparse, FileOffset::new((1000 << 30) - 1), &mut data).unwrap(), 6);
        assert_eq!(&data, b"\0data\0", "{what}");
    }
}
