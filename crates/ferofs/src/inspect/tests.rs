//! Images built here.

use std::fs;

use super::*;
use ferofs_write as build;

fn image() -> Image {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("below")).unwrap();
    fs::write(source.join("words.TXT"), "words, again and again. ".repeat(8000)).unwrap();
    fs::write(source.join("below/small.txt"), "small").unwrap();
    fs::hard_link(source.join("below/small.txt"), source.join("linked.txt")).unwrap();
    let mut options = build::Options::new(&source);
    options.data.compression = Some(build::Compression::lz4(0).unwrap());
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    Image::open(fs::read(path).unwrap()).unwrap()
}

#[test]
fn counts_inodes_and_extents() {
    let image = image();
    let options = Options { files: true, ..Options::default() };
    let inspection = inspect(&image, &options).unwrap();
    assert_eq!(inspection.damage, []);
    assert_eq!(inspection.names, 5);
    assert_eq!(inspection.files.len(), 4, "{:?}", inspection.files);
    assert_eq!(inspection.types["file"].files, 2);
    assert_eq!(inspection.types["directory"].files, 2);
    let text = inspection.extensions["txt"];
    assert_eq!((text.files, text.size), (2, 192_005));
    assert!(text.stored < text.size / 10);
    let lz4 = inspection.storage[&Storage::Encoded(Algorithm::Lz4)];
    assert!(lz4.decoded >= 180_000 && lz4.encoded == 4096 * lz4.extents, "{lz4:?}");
    assert_eq!(inspection.largest[0].path, Path::new("words.TXT"));
    assert_eq!(inspection.sharing, Sharing::default());
    assert_eq!(inspection.ratios.bins().map(|(_, count)| count).sum::<u64>(), lz4.extents);
}

/// Two equal files share a range of the packed inode, whose extents are not content of their own.
#[test]
fn fragments_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let text: Vec<u8> = (0..9000u32).flat_map(|number| (number * number).to_le_bytes()).collect();
    for (name, len) in [("one", 30_000), ("equal", 30_000), ("shorter", 20_001)] {
        fs::write(source.join(name), &text[text.len() - len..]).unwrap();
    }
    let mut options = build::Options::new(&source);
    let mut compression = build::Compression::lz4(0).unwrap();
    compression.fragments = build::Fragments::All;
    options.data.compression = Some(compression);
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    let inspection =
        inspect(&Image::open(fs::read(path).unwrap()).unwrap(), &Options::default()).unwrap();
    let sharing = inspection.sharing;
    assert_eq!(
        (sharing.fragment_files, sharing.fragment_bytes),
        (3, sharing.packed_size),
        "{sharing:?}"
    );
    assert!(sharing.packed_size < 80_001 && sharing.packed_stored > 0, "{sharing:?}");
    let fragments = inspection.storage[&Storage::Fragment];
    assert_eq!(
        (fragments.extents, fragments.encoded),
        (3, sharing.packed_stored),
        "{inspection:?}"
    );
    let other: u64 =
        inspection.storage.values().map(|sum| sum.encoded).sum::<u64>() - fragments.encoded;
    let directories = inspection.types["directory"].stored;
    assert_eq!(
        other, directories,
        "only directories are stored otherwise: {:?}",
        inspection.storage
    );
}

#[test]
fn the_map_has_every_block_once() {
    let image = image();
    let inspection = inspect(&image, &Options::default()).unwrap();
    let map = &inspection.map;
    let mut next = 0;
    for run in map.runs() {
        assert_eq!(run.start, next);
        assert!(run.blocks > 0);
        next += run.blocks;
    }
    assert_eq!(next, image.superblock().blocks);
    let sum: u64 = BlockKind::ALL.into_iter().map(|kind| map.total(kind)).sum();
    assert_eq!(sum, map.blocks());
    assert!(
        map.total(BlockKind::Metadata) > 0 && map.total(BlockKind::Encoded(Algorithm::Lz4)) > 0
    );
    let (per_cell, cells) = map.cells(2);
    assert!(cells.len() <= 2 && per_cell * u64::try_from(cells.len()).unwrap() >= map.blocks());
}

#[test]
fn blocks_have_owners() {
    let image = image();
    let file = image.resolve("words.TXT".as_ref(), false).unwrap();
    let extent = image.extents(&file, FileOffset::new(0)).unwrap().next().unwrap().unwrap();
    let range = DeviceRange::of(&image, &extent).unwrap().unwrap();
    let owners = block_owners(&image, range.device, range.start.get() / 4096, 8).unwrap();
    let expected =
        Owner { path: "words.TXT".into(), nid: file.nid(), content: Some(0..extent.len) };
    assert_eq!(owners, [expected]);
    let block = file.place().pos.get() / 4096;
    let owners = block_owners(&image, range.device, block, 8).unwrap();
    assert!(
        owners.iter().any(|owner| owner.nid == file.nid() && owner.content.is_none()),
        "{owners:?}"
    );
}

#[test]
fn the_extension_follows_the_last_dot() {
    for (name, expected) in [
        ("a.txt", "txt"),
        ("a.tar.GZ", "gz"),
        (".hidden", ""),
        ("none", ""),
        ("dot.", ""),
        ("a.much-too-long-for-one", ""),
    ] {
        assert_eq!(extension(Path::new(name)), expected, "{name}");
    }
}
