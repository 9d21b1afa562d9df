//! Images that caused defects in other readers; each is written field by field. Every command
//! refuses them or reads them safely, and `check` finds each image that breaks a rule of the
//! format.

use std::fs;
use std::path::Path;

use ferofs_tests::need;

use crate::common::fixture::Fixture;
use crate::common::hostile::assert_mount_handled;
use crate::common::hostile::{assert_handled, command};
use crate::common::image_writer::{
    BIG_PCLUSTER, BIT48, COMPACT, DIRECTORY, FLAT_INLINE, FLAT_PLAIN, FRAGMENTS, FULL, ImageWriter,
    InodeSpec, LZ4_0PADDING, REGULAR, SYMLINK, dirents, head, non_head,
};

/// A case: its name, the image, and whether it breaks a rule.
type Case = (&'static str, fn() -> Vec<u8>, bool);

const CASES: [Case; 21] = [
    ("a directory that is its own child", self_loop, true),
    ("a loop of two directories", loop_of_two, true),
    ("a tree of 3,000 levels", || deep(3000, 1), false),
    ("paths beyond PATH_MAX", || deep(40, 250), false),
    ("an extent of 13 MiB", huge_extent, true),
    ("a zstd frame that declares another size", || zstd_frame(5000), true),
    ("a zstd frame that declares exabytes", || zstd_frame(u32::MAX), true),
    ("a size of more than 32 bits", || flat(REGULAR, (1 << 32) + 5), true),
    ("a negative size", || flat(REGULAR, 1 << 63), true),
    ("a symbolic link of 2^64 - 1 bytes", || flat(SYMLINK, u64::MAX), true),
    ("the packed inode as its own fragment", packed_in_itself, true),
    ("an interlaced extent that is longer than its block", long_interlaced, true),
    ("a compact index with a distance of 0", || compact(0, [0x2000, 0x2000]), true),
    ("a compact index with lclusters of 2^15 bytes", || compact(3, [0x1000, 0x2001]), true),
    ("big pclusters that overlap", overlapping, true),
    (
        "NONHEADs that refer to themselves",
        || chain(&[head(1, 0, 1), non_head(1, 0), non_head(2, 0)]),
        true,
    ),
    (
        "a file that starts with a NONHEAD",
        || chain(&[non_head(1, 1), non_head(1, 1), non_head(2, 1)]),
        true,
    ),
    ("unaligned extents, past the end of the image", off_alignment, true),
    ("names with slashes and dots", || names(&[b"..", b"../up", b"/etc/passwd"]), true),
    ("the same name twice", || names(&[b"twice", b"twice"]), true),
    ("a symbolic link, then an entry below it", link_then_below, true),
];

fn self_loop() -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let (root, inner) = (writer.root, writer.reserve(100));
    writer.directory(inner, 3, &[(b".", inner, 2), (b"..", root, 2), (b"again", inner, 2)]);
    writer.finish_with(&[(b"loop", inner, 2)])
}

fn loop_of_two() -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let [root, a, b] = [writer.root, writer.reserve(100), writer.reserve(100)];
    writer.directory(a, 3, &[(b".", a, 2), (b"..", root, 2), (b"b", b, 2)]);
    writer.directory(b, 3, &[(b".", b, 2), (b"..", a, 2), (b"a", a, 2)]);
    writer.finish_with(&[(b"a", a, 2)])
}

/// A chain of directories, with a file at its end.
fn deep(levels: usize, name: usize) -> Vec<u8> {
    let name = vec![b'd'; name];
    let mut writer = ImageWriter::with_root(0, 12 * 3 + 3 + name.len());
    let dirs: Vec<_> = (0..levels).map(|_| writer.reserve(12 * 3 + 3 + name.len())).collect();
    let leaf = writer.file(b"at the end\n");
    for (level, dir) in dirs.iter().enumerate() {
        let parent = if level == 0 { writer.root } else { dirs[level - 1] };
        let below = dirs.get(level + 1).map_or((leaf, 1), |next| (*next, 2));
        let links = if below.1 == 2 { 3 } else { 2 };
        writer.directory(
            *dir,
            links,
            &[(b".", *dir, 2), (b"..", parent, 2), (&name, below.0, below.1)],
        );
    }
    writer.finish_with(&[(&name, dirs[0], 2)])
}

fn huge_extent() -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let block = writer.data(&[0x55; 4096]);
    // 13 MiB of lclusters of 4 KiB.
    let lclusters: u16 = 3328;
    let rest = (1..lclusters).map(|n: u16| non_head(n.min(2047), (lclusters - n).min(2047)));
    let records: Vec<_> = std::iter::once(head(1, 0, block)).chain(rest).collect();
    let file = writer.full(13 << 20, [0; 8], &records);
    writer.finish_with_file(file)
}

/// A frame with one raw block of 100 bytes that declares `declared` bytes; the index declares 8192.
fn zstd_frame(declared: u32) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | BIG_PCLUSTER);
    writer.configure(8, &[6, 0, 0, 5, 0, 0, 0, 0]);
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    frame.extend_from_slice(&declared.to_le_bytes());
    frame.extend_from_slice(&[0x21, 0x03, 0x00]);
    frame.extend_from_slice(&[b'z'; 100]);
    let block = writer.data_at_end(&frame);
    let header = [0, 0, 0, 0, 0, 0, 0x33, 0];
    let file = writer.full(8192, header, &[head(1, 0, block), non_head(1, 1)]);
    writer.finish_with_file(file)
}

fn flat(mode: u16, size: u64) -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let union = writer.data(b"data");
    let file =
        writer.inode(&InodeSpec { mode, layout: FLAT_PLAIN, size, union, links: 1, after: &[] });
    writer.finish_with(&[(b"file", file, if mode == SYMLINK { 7 } else { 1 })])
}

fn packed_in_itself() -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | FRAGMENTS);
    // The whole file is in the packed inode, from its start.
    let map = [0, 0, 0, 0, 0, 0, 0, 0x80];
    let spec =
        InodeSpec { mode: REGULAR, layout: COMPACT, size: 5000, union: 0, links: 1, after: &map };
    let packed = writer.inode(&spec);
    let file = writer.inode(&spec);
    writer.set_packed(packed);
    writer.finish_with_file(file)
}

fn long_interlaced() -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let block = writer.data(&[0x55; 4 * 4096]);
    // The flag INTERLACED_PCLUSTER, and lclusters of two blocks.
    let header = [0, 0, 0, 0, 0x10, 0, 0, 1];
    let file = writer.full(16_384, header, &[head(0, 0, block), head(0, 100, block + 2)]);
    writer.finish_with_file(file)
}

/// A compact index of two lclusters, in one pack of 8 bytes.
fn compact(clusterbits: u8, records: [u16; 2]) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let block = writer.data(&[0x55; 4096]);
    let [a, b] = records.map(u16::to_le_bytes);
    let map =
        [&[0, 0, 0, 0, 0, 0, 0, clusterbits][..], &a, &b, &(block - 1).to_le_bytes()].concat();
    let size = 2 << (12 + clusterbits);
    let file = writer.inode(&InodeSpec {
        mode: REGULAR,
        layout: COMPACT,
        size,
        union: 1,
        links: 1,
        after: &map,
    });
    writer.finish_with_file(file)
}

fn overlapping() -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | BIG_PCLUSTER);
    writer.configure(1, &[14, 0, 0xFF, 0xFF, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let block = writer.data(&[0x55; 3 * 4096]);
    // The flag BIG_PCLUSTER_1. Each pcluster has two blocks; both contain the second block.
    let header = [0, 0, 0, 0, 2, 0, 0, 0];
    let one = writer.full(
        16_384,
        header,
        &[head(1, 0, block), non_head(0x802, 3), non_head(2, 2), non_head(3, 1)],
    );
    let other = writer.full(
        16_384,
        header,
        &[head(1, 0, block + 1), non_head(0x802, 3), non_head(2, 2), non_head(3, 1)],
    );
    writer.finish_with(&[(b"one", one, 1), (b"other", other, 1)])
}

fn chain(records: &[[u8; 8]]) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let file = writer.full(records.len() as u64 * 4096, [0; 8], records);
    writer.finish_with_file(file)
}

/// Records of 16 bytes for encoded extents: length and format, start (64 bits), offset in the file.
fn off_alignment() -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | BIT48);
    let block = writer.data(&[0x55; 2 * 4096]);
    let record =
        |len: u32, start: u32, offset: u32| [len, start, 0, offset].map(u32::to_le_bytes).concat();
    // Layout EXTENTS with two records of 16 bytes.
    let header = [2, 0, 0, 0, 0x05, 0, 0, 0];
    let map = [
        &header[..],
        &[0; 8],
        &record(4096, block * 4096 + 7, 0),
        &record(4096, block * 4096 + 8191, 4096),
    ]
    .concat();
    let file = writer.inode(&InodeSpec {
        mode: REGULAR,
        layout: FULL,
        size: 8192,
        union: 2,
        links: 1,
        after: &map,
    });
    writer.finish_with_file(file)
}

fn names(names: &[&[u8]]) -> Vec<u8> {
    let mut writer = ImageWriter::with_root(0, 300);
    let entries: Vec<_> = names.iter().map(|name| (*name, writer.file(b"content\n"), 1)).collect();
    writer.finish_with(&entries)
}

fn link_then_below() -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let (root, dir) = (writer.root, writer.reserve(100));
    let target = b"..";
    let link = writer.inode(&InodeSpec {
        mode: SYMLINK,
        layout: FLAT_INLINE,
        size: 2,
        union: 0,
        links: 1,
        after: target,
    });
    let evil = writer.file(b"written through a link\n");
    writer.directory(dir, 2, &[(b".", dir, 2), (b"..", root, 2), (b"evil", evil, 1)]);
    writer.finish_with(&[(b"x", link, 7), (b"x", dir, 2)])
}

/// So each case is wrong only in the field that it changes.
#[test]
fn the_image_writer_writes_valid_images() {
    let fixture = Fixture::empty();
    let mut writer = ImageWriter::new(0);
    let (root, dir) = (writer.root, writer.reserve(100));
    let file = writer.file(b"content\n");
    writer.directory(dir, 2, &[(b".", dir, 2), (b"..", root, 2), (b"file", file, 1)]);
    assert_eq!(dirents(&[(b"n", 1, 1)]).len(), 13);
    assert_eq!(DIRECTORY >> 12, 4);
    fs::write(fixture.path("image"), writer.finish_with(&[(b"dir", dir, 2)])).unwrap();
    let checked = command(&["check", "--deep"], &fixture.path("image"), &[]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    let read = command(&["cat"], &fixture.path("image"), &["dir/file".as_ref()]);
    assert_eq!(read.stdout, b"content\n");
}

#[test]
fn every_command_handles_malformed_images() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    // An extraction may write to `target`, and to nothing else in `parent`.
    let parent = fixture.directory("parent");
    let target = parent.join("target");
    fs::write(fixture.path("other"), names(&[b"name"])).unwrap();
    let mut wrong = Vec::new();
    for (name, create, broken) in CASES {
        fs::write(&image, create()).unwrap();
        let run = |args: &[&str], more: &[&Path]| {
            let mut outcome = command(args, &image, more);
            if args[0] == "diff" || args.contains(&"--json") {
                // These commands report findings on standard output, so stderr has no message.
                outcome.stderr.push_str("\nferofs: ");
            }
            assert_handled(&outcome, &format!("{args:?}, {name}"));
            outcome
        };
        let checked = run(&["check", "--deep"], &[]);
        if (checked.code != 0) != broken {
            wrong.push((name, checked.code, checked.stderr));
        }
        run(&["check", "--json"], &[]);
        run(&["ls", "-R", "-l"], &[]);
        run(&["cat"], &["file".as_ref()]);
        run(&["inspect"], &[]);
        run(&["inspect", "--json"], &[]);
        run(&["inspect", "--block", "1"], &[]);
        run(&["diff"], &[&image]);
        run(&["diff"], &[&fixture.path("other")]);
        run(&["diff"], &[&fixture.source()]);
        run(&["extract"], &[&target]);
        if target.exists() {
            fs::remove_dir_all(&target).unwrap();
        }
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0, "{name}: nothing beside the target");
    }
    assert!(wrong.is_empty(), "check gives the wrong result: {wrong:#?}");
}

#[test]
fn the_daemon_handles_malformed_images() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let (image, dir) = (fixture.path("image"), fixture.directory("mount"));
    for (name, create, _) in CASES {
        fs::write(&image, create()).unwrap();
        assert_mount_handled(&image, &dir, name);
    }
}
