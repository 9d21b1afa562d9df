//! Checks of images that are built here, undamaged and damaged.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;

use ferofs_format::FileOffset;

use super::*;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::{ExtentData, Inode, Location};
use ferofs_write as build;
use std::path::Path;

fn image_bytes() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("below/deeper")).unwrap();
    // LZ4 needs several clusters for this, and stores what is random.
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let digits: String =
        (0..9000).map(|n| format!("line {n} of some words and {}\n", number(n))).collect();
    let random = |n: u64| {
        n.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29).wrapping_mul(n).to_le_bytes()
    };
    fs::write(source.join("text"), digits).unwrap();
    fs::write(source.join("plain"), (1u64..1025).flat_map(random).collect::<Vec<_>>()).unwrap();
    fs::write(source.join("below/small"), "small").unwrap();
    fs::hard_link(source.join("text"), source.join("below/same")).unwrap();
    symlink("below/small", source.join("link")).unwrap();
    let mut options = build::Options::new(&source);
    options.data.compression = Some(build::Compression::lz4(0).unwrap());
    options.image.uuid = Some([7; 16]);
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    fs::read(path).unwrap()
}

fn findings(bytes: Vec<u8>) -> Vec<Finding> {
    check(&Image::open(bytes).unwrap(), &Options::default()).unwrap().findings
}

#[test]
fn a_sound_image_has_no_findings() {
    let report = check(&Image::open(image_bytes()).unwrap(), &Options::default()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.inodes, 7);
    assert!(report.content_bytes > 150_000);
}

#[test]
fn damaged_data_and_wrong_links_are_found() {
    let bytes = image_bytes();
    let image = Image::open(bytes.clone()).unwrap();
    let file = image.resolve("text".as_ref(), true).unwrap();
    let extent = image.extents(&file, FileOffset::new(0)).unwrap().next().unwrap().unwrap();
    let ExtentData::Encoded { at: Location::Device(_, pos), .. } = extent.data else {
        panic!("{extent:?}");
    };
    let mut damaged = bytes.clone();
    let at = usize::try_from(pos.get()).unwrap();
    damaged[at..at + 4096].fill(0xff);
    let found = findings(damaged);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].corruption.fault.rule(), "decode");
    assert_eq!(found[0].corruption.pos, Some(pos));

    let mut short = bytes;
    short.truncate(short.len() - 4096);
    let image = Image::open(short).unwrap();
    assert!(!check(&image, &Options::default()).unwrap().findings.is_empty());
}

#[test]
fn a_check_that_is_stopped_reports_what_it_found() {
    use crate::read::{Cancel, OpenOptions};
    let mut tampered = Tampered::new();
    // More blocks than the file has: found before the walk begins.
    tampered.put(1024 + 0x24, 0x00ff_ffff_u32.to_le_bytes());
    let cancel = Cancel::default();
    let mut options = OpenOptions::default();
    options.cancel = cancel.clone();
    let image = Image::open_with(Box::new(tampered.bytes), Vec::new(), &options).unwrap();
    cancel.cancel();
    // A new thread has no work left that was charged before.
    let run = || {
        std::thread::scope(|scope| {
            scope.spawn(|| check_until_stopped(&image, &Options::default())).join().unwrap()
        })
    };
    let (report, result) = run();
    assert!(matches!(result, Err(crate::Error::Interrupted)), "{result:?}");
    let rules: Vec<_> = report.findings.iter().map(|found| found.corruption.fault.rule()).collect();
    assert_eq!(rules, [ferofs_format::Fault::CutOff { have: 0, need: 0 }.rule()]);
}

/// Linux's LZ4 decoder keeps as many bytes for matches as the superblock says, for every cluster.
#[test]
fn all_compressed_data_is_checked_by_linux_s_rules() {
    use ferofs_format::superblock;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("large")).unwrap();
    for n in 0..600 {
        fs::write(
            source.join(format!("large/a long name that is repeated, {n}")),
            format!("{n} fragment ").repeat(20),
        )
        .unwrap();
    }
    fs::write(source.join("text"), "words and more words of a text, ".repeat(9000)).unwrap();
    let mut options = build::Options::new(&source);
    let mut compression = build::Compression::lz4(0).unwrap();
    compression.pcluster = Some(16384);
    compression.directories = true;
    compression.fragments = build::Fragments::Tails;
    compression.metadata = Some(build::MetadataCompression::new(0, 16384));
    options.data.compression = Some(compression);
    options.image.checksum = false;
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    assert_eq!(findings(bytes.clone()), []);
    let superblock = Image::open(bytes.clone()).unwrap().superblock().size();
    // The record of LZ4: its size in two bytes, then the distance.
    let at = superblock::OFFSET + superblock;
    assert_eq!(bytes[at..at + 4], [14, 0, 255, 255]);
    bytes[at + 2..at + 4].copy_from_slice(&[16, 0]);
    let found = findings(bytes);
    assert!(
        found.iter().all(|found| found.corruption.fault.rule() == "linux-decoder"),
        "{found:#?}"
    );
    let (fragments, own): (Vec<_>, Vec<_>) = found.iter().partition(|found| found.also.is_some());
    let mut paths: Vec<_> = own.iter().map(|found| found.path.display().to_string()).collect();
    paths.dedup();
    assert_eq!(paths, ["(metabox)", "(packed inode)", "large"]);
    // The small files and the text are in the packed inode.
    assert_eq!(fragments.len(), 601);
}

/// An image without checksum, so that tests can change it.
struct Tampered {
    bytes: Vec<u8>,
    image: Image,
}

impl Tampered {
    fn new() -> Self {
        let mut bytes = image_bytes();
        bytes[1024 + 8] &= !1;
        Self { image: Image::open(bytes.clone()).unwrap(), bytes }
    }

    /// The position of the inode of `path`.
    fn inode(&self, path: &str) -> usize {
        usize::try_from(self.image.resolve(path.as_ref(), false).unwrap().place().pos.get())
            .unwrap()
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&bytes);
    }

    fn rules(self) -> Vec<(String, &'static str)> {
        let finding =
            |found: Finding| (found.path.display().to_string(), found.corruption.fault.rule());
        findings(self.bytes).into_iter().map(finding).collect()
    }
}

#[test]
fn a_device_that_overlaps_the_image_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), [7; 20_000]).unwrap();
    // Several blocks of names: address 0 would mean that the device has none.
    (0..500).for_each(|number| fs::write(source.join(format!("empty{number:050}")), "").unwrap());
    let (path, device) = (dir.path().join("image"), dir.path().join("device"));
    let mut options = build::Options::new(&source);
    let mut chunks = build::ChunkOptions::new(4096);
    chunks.device = Some(device.clone());
    options.data.chunks = Some(chunks);
    build::build(&options, &path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let open = |bytes: &[u8]| {
        let extra: Vec<Box<dyn crate::read::Source>> = vec![Box::new(fs::read(&device).unwrap())];
        Image::open_with(Box::new(bytes.to_vec()), extra, &crate::read::OpenOptions::default())
            .unwrap()
    };
    let image = open(&bytes);
    let (table, blocks) = (image.superblock().device_table.get(), image.superblock().blocks);
    let uniaddr = usize::try_from(table).unwrap() + 68;
    // Without the checksum of the superblock.
    bytes[1024 + 8] &= !1;
    let mut finds = |start: u64| {
        let start = u32::try_from(start).unwrap();
        bytes[uniaddr..uniaddr + 4].copy_from_slice(&start.to_le_bytes());
        let found = check(&open(&bytes), &Options::default()).unwrap().findings;
        found
            .iter()
            .any(|found| found.corruption.fault == ferofs_format::Fault::Overlap("another device"))
    };
    assert!(!finds(blocks) && finds(blocks - 1));
}

#[test]
fn overlaps_name_both_sides() {
    let finds = |place: fn(&Image, &Inode) -> u64, path: &str, what, also: Option<&str>| {
        let mut tampered = Tampered::new();
        let text = tampered.image.resolve("text".as_ref(), false).unwrap();
        let block = u32::try_from(place(&tampered.image, &text) / 4096).unwrap();
        let plain = tampered.inode("plain");
        // The stored file has two blocks. Move it so that the second one is at `block`, or the
        // first one if there is none before.
        tampered.put(plain + 0x10, block.saturating_sub(1).to_le_bytes());
        let found = findings(tampered.bytes);
        let is_found = found.iter().any(|found| {
            found.path == Path::new(path)
                && found.corruption.fault == ferofs_format::Fault::Overlap(what)
                && (also.is_none() || found.also.as_deref() == also.map(Path::new))
        });
        assert!(is_found, "{path}: {found:#?}");
    };
    finds(|_, text| text.place().pos.get(), "plain", "metadata", None);
    let second = |image: &Image, text: &Inode| {
        let extent = image.extents(text, FileOffset::new(0)).unwrap().nth(1).unwrap().unwrap();
        let ExtentData::Encoded { at: Location::Device(_, pos), .. } = extent.data else {
            panic!("{extent:?}")
        };
        pos.get()
    };
    finds(second, "text", "data", Some("plain"));
}

#[test]
fn every_damaged_extent_is_listed() {
    let mut tampered = Tampered::new();
    let text = tampered.image.resolve("text".as_ref(), false).unwrap();
    let extents: Vec<_> =
        tampered.image.extents(&text, FileOffset::new(0)).unwrap().flatten().collect();
    assert!(extents.len() >= 3, "{extents:?}");
    for extent in [extents[0], extents[2]] {
        let at = usize::try_from(
            DeviceRange::of(&tampered.image, &extent).unwrap().unwrap().start.get(),
        )
        .unwrap();
        tampered.put(at, [0xff; 4096]);
    }
    let found = findings(tampered.bytes);
    let damaged: Vec<_> = found.iter().map(|found| found.content.clone().unwrap()).collect();
    let expected = [&extents[0], &extents[2]].map(|extent| extent.start.get()..extent.end());
    assert_eq!(damaged, expected);
}

#[test]
fn links_and_parents_are_counted() {
    let mut tampered = Tampered::new();
    let below = tampered.inode("below");
    // Compact: i_nb; a directory with one subdirectory has three.
    assert_eq!(tampered.bytes[below] & 1, 0);
    tampered.put(below + 6, 7u16.to_le_bytes());
    let report = check(&Image::open(tampered.bytes.clone()).unwrap(), &Options::default()).unwrap();
    let warnings: Vec<_> =
        report.warnings.iter().map(|found| found.corruption.fault.rule()).collect();
    assert!(report.is_sound() && warnings == ["link-count"], "{report:?}");
    tampered.put(below + 6, 2u16.to_le_bytes());
    assert_eq!(tampered.rules(), [("below".to_owned(), "link-count")]);
}

#[test]
fn each_file_with_a_damaged_fragment_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    // Three clusters of 4 KiB: `first` and `second` are in the first one.
    let text = |seed: u64, len: usize| {
        let digit =
            |n: u64| b'0' + (n.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8;
        (0u64..).take(len).map(digit).collect::<Vec<_>>()
    };
    for (name, seed, len) in
        [("first", 1, 1500), ("second", 9_999, 1500), ("third", 77_777, 30_000)]
    {
        fs::write(source.join(name), text(seed, len)).unwrap();
    }
    let mut options = build::Options::new(&source);
    let mut compression = build::Compression::lz4(0).unwrap();
    compression.fragments = build::Fragments::All;
    options.data.compression = Some(compression);
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let image = Image::open(bytes.clone()).unwrap();
    let offset = |name: &str| {
        let inode = image.resolve(name.as_ref(), false).unwrap();
        let extent = image.extents(&inode, FileOffset::new(0)).unwrap().next().unwrap().unwrap();
        let ExtentData::Fragment { offset } = extent.data else { panic!("{extent:?}") };
        offset
    };
    let packed = image.inode(image.superblock().packed.unwrap()).unwrap();
    let damaged = image.extents(&packed, offset("second")).unwrap().next().unwrap().unwrap();
    let at =
        usize::try_from(DeviceRange::of(&image, &damaged).unwrap().unwrap().start.get()).unwrap();
    bytes[at..at + 4096].fill(0xff);
    let found = findings(bytes);
    let concerned: Vec<_> = ["first", "second", "third"]
        .into_iter()
        .filter(|name| damaged.contains(offset(name)))
        .collect();
    let mut named: Vec<_> = found.iter().map(|found| found.path.display().to_string()).collect();
    named.dedup();
    assert!(concerned.contains(&"second"), "{concerned:?}");
    named.retain(|name| name != "(packed inode)");
    assert!(concerned.iter().all(|name| named.iter().any(|path| path == name)), "{found:#?}");
    assert!(found.iter().any(|found| found.also.as_deref() == Some(Path::new("(packed inode)"))));
}

/// Positions in a superblock.
const COMPAT: usize = 1024 + 8;
const FIXED_NSEC: usize = 1024 + 32;
const BLOCKS: usize = 1024 + 36;

#[test]
fn fields_of_the_superblock_are_checked() {
    let rules = |at, change: fn(u32) -> u32| {
        let mut tampered = Tampered::new();
        let old = u32::from_le_bytes(tampered.bytes[at..at + 4].try_into().unwrap());
        tampered.put(at, change(old).to_le_bytes());
        tampered.rules()
    };
    let of_image = |rule| [(String::new(), rule)];
    assert_eq!(rules(FIXED_NSEC, |_| 999_999_999), []);
    // And all compact inodes.
    assert_eq!(rules(FIXED_NSEC, |_| 1_000_000_000)[..1], of_image("field-value"));
    assert_eq!(rules(BLOCKS, |blocks| blocks + 1), of_image("truncated"));
    // Shared attributes in a metabox, and the attribute with digests: the image has neither.
    assert_eq!(rules(COMPAT, |compat| compat | 8), of_image("feature-not-set"));
    assert_eq!(rules(COMPAT, |compat| compat | 32), of_image("field-value"));
}

#[test]
fn settings_of_algorithms_are_those_that_linux_mounts() {
    use ferofs_codec::{Algorithm, Params};
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("text"), "words and more words of a text, ".repeat(3000)).unwrap();
    // The field in the record, which follows the superblock: its position, its last good value, and
    // its first bad one.
    for (algorithm, at, good, bad) in [
        (Algorithm::Lz4, 4, [0, 1], [1, 1]),
        (Algorithm::Lzma, 3, [0x10, 0], [0x0f, 0]),
        (Algorithm::Zstd, 3, [10, 0], [11, 0]),
    ] {
        let mut options = build::Options::new(&source);
        let method = Params::new(algorithm, None).unwrap();
        let mut compression = build::Compression::new(method);
        compression.pcluster = Some(16384);
        options.data.compression = Some(compression);
        options.image.checksum = false;
        let path = dir.path().join("image");
        build::build(&options, &path).unwrap();
        let mut bytes = fs::read(path).unwrap();
        let at = 1024 + Image::open(bytes.clone()).unwrap().superblock().size() + at;
        let mut about_image = |value: [u8; 2]| {
            bytes[at..at + 2].copy_from_slice(&value);
            let found = findings(bytes.clone());
            found
                .iter()
                .filter(|found| found.path == Path::new(""))
                .map(|found| found.corruption.fault.rule())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (about_image(good), about_image(bad)),
            (vec![], vec!["field-value"]),
            "{algorithm:?}"
        );
    }
}

/// The index of the last file is cut off with the end of the image.
#[test]
fn metadata_ends_within_the_image() {
    let tampered = Tampered::new();
    let end = tampered.bytes.len();
    let text = tampered.image.resolve("text".as_ref(), true).unwrap();
    let extents = tampered.image.extents(&text, FileOffset::new(0)).unwrap();
    let metadata_end = usize::try_from(extents.metadata_end().unwrap().pos.get()).unwrap();
    assert!(metadata_end <= end);
    let of_text = |len: usize| {
        let mut cut = Tampered { bytes: tampered.bytes[..len].to_vec(), ..Tampered::new() };
        // Otherwise what is beyond the end is only counted.
        cut.put(BLOCKS, 0_u32.to_le_bytes());
        let found = findings(cut.bytes);
        let is_map = |found: &&Finding| {
            matches!(found.corruption.fault, ferofs_format::Fault::OutOfRange { field: "map", .. })
        };
        found.iter().filter(is_map).any(|found| found.path == Path::new("text"))
    };
    assert!(!of_text(metadata_end) && of_text(metadata_end - 1));
}

#[test]
fn directories_are_checked() {
    const NAMES: &[u8] = b"...deepersamesmall";
    let rules = |change: &dyn Fn(&mut Tampered, [usize; 5], usize)| {
        let mut tampered = Tampered::new();
        let names = tampered.bytes.windows(NAMES.len()).position(|bytes| bytes == NAMES).unwrap();
        let dirents = std::array::from_fn(|number| names - 12 * (5 - number));
        change(&mut tampered, dirents, names);
        tampered.rules()
    };
    let below = |rule| [("below".to_owned(), rule)];
    let nid = |tampered: &Tampered, path: &str| {
        tampered.image.resolve(path.as_ref(), false).unwrap().nid().get().to_le_bytes()
    };
    assert_eq!(rules(&|_, _, _| ()), []);
    // The types of `same`, and none.
    let small = [("below/small".to_owned(), "file-type")];
    assert_eq!(rules(&|tampered, [.., small], _| tampered.put(small + 10, [7])), small);
    assert_eq!(rules(&|tampered, [.., small], _| tampered.put(small + 10, [0])), []);
    assert_eq!(rules(&|tampered, [dot, ..], _| tampered.put(dot, [0; 8])), below("dot-entry"));
    assert_eq!(
        rules(&|tampered, [_, dot_dot, ..], _| tampered.put(dot_dot, [0; 8])),
        below("dot-entry")
    );
    assert_eq!(rules(&|tampered, _, names| tampered.put(names + 9, *b"zame")), below("name-order"));
    assert_eq!(rules(&|tampered, _, names| tampered.put(names + 15, *b"/")), below("name"));
    assert_eq!(rules(&|tampered, _, names| tampered.put(names + 10, [0])), below("name"));
    // `.`, then `.`, then `.deeper`.
    let twice = rules(&|tampered, [_, _, deeper, ..], names| {
        assert_eq!(usize::from(tampered.bytes[deeper + 8]), names + 3 - (deeper - 24));
        tampered.bytes[deeper + 8] -= 1;
    });
    assert_eq!(
        twice.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(),
        ["dot-entry", "duplicate-name"]
    );
    let root = rules(&|tampered, [_, _, deeper, ..], _| tampered.put(deeper, nid(tampered, "")));
    assert_eq!(root, [("below/deeper".to_owned(), "directory-loop")]);
    let outside =
        rules(&|tampered, [.., small], _| tampered.put(small, [0xff, 0xff, 0xff, 0, 0, 0, 0, 0]));
    assert_eq!(outside.len(), 1);
}

#[test]
fn attributes_are_checked() {
    let mut tampered = Tampered::new();
    let small = tampered.inode("below/small");
    // Linux refuses a region without attributes.
    tampered.put(small + 2, 1u16.to_le_bytes());
    let rules = tampered.rules();
    assert!(rules.contains(&("below/small".to_owned(), "field-value")), "{rules:?}");
}

/// Each change of the attributes of a file, and the rule that it breaks.
#[test]
fn names_and_values_of_attributes_are_checked() {
    const ACL: &[u8] = &[2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255];
    let mut builder = build::Builder::new();
    builder.options().image.checksum = false;
    builder.options().xattrs.name_filter = true;
    let attributes = || build::Attributes::default().xattr("user.shared", "in both files");
    let own = attributes()
        .xattr("user.first", "first value")
        .xattr("user.other", "other value")
        .xattr("system.posix_acl_access", ACL);
    builder.file("file", build::Content::bytes("content"), own);
    builder.file("shares", build::Content::bytes("content"), attributes());
    let mut image = Vec::new();
    builder.write_to(&mut image).unwrap();
    assert_eq!(findings(image.clone()), []);
    let find = |what: &[u8]| image.windows(what.len()).position(|bytes| bytes == what).unwrap();
    let rules = |at: usize, change: &[u8]| {
        let mut bytes = image.clone();
        bytes[at..at + change.len()].copy_from_slice(change);
        let found = findings(bytes);
        assert!(found.iter().all(|found| found.path == Path::new("file")), "{found:?}");
        found.iter().map(|found| found.corruption.fault.rule()).collect::<Vec<_>>()
    };
    let first = find(b"firstfirst value");
    // Another value breaks nothing; another name is not in the filter.
    assert!(rules(first + 5, b"x").is_empty());
    assert_eq!(rules(first, b"fir\0t"), ["name", "name-filter"]);
    assert_eq!(rules(first, b"xxxxx"), ["name-filter"]);
    assert_eq!(rules(first, b"other"), ["duplicate-name"]);
    assert_eq!(rules(first - 3, &[5]), ["field-value"], "a prefix that no image has");
    assert_eq!(rules(find(ACL) + 4, &[3]), ["field-value"]);
    let inode = Image::open(image.clone()).unwrap().resolve("file".as_ref(), false).unwrap();
    let filter = usize::try_from(inode.place().pos.get()).unwrap() + inode.on_disk().version.size();
    assert_eq!(rules(filter, &[255; 4]), ["name-filter"]);
}

#[test]
fn threads_change_nothing() {
    let mut bytes = image_bytes();
    let half = bytes.len() / 2;
    bytes[half..half + 9000].fill(0x5a);
    let with = |workers| {
        let image = Image::open(bytes.clone()).unwrap();
        let options = Options { workers: NonZeroUsize::new(workers), ..Options::default() };
        check(&image, &options).unwrap().findings
    };
    assert!(!with(1).is_empty());
    assert_eq!(with(1), with(8));
}
