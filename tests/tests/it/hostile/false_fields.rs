//! Images with one false field, of kinds that have caused defects in readers. `ferofs check` must
//! find it; the other commands must end as documented, within limits on time and memory.

use std::fs;

use ferofs_tests::tree::DirWriter;
use ferofs_tests::{Content, Rng, need};
use rustix::fs::FileType;

use crate::common::fixture::Fixture;
use crate::common::hostile::{assert_handled, assert_mount_handled, command};
use crate::common::image_editor::{
    D_NAMEOFF, D_TYPE, I_FORMAT, I_MODE, I_U, I_XATTR_ICOUNT, ImageEditor, SUPER,
};

/// The name of a change, and the function that makes it.
type FieldChange = (&'static str, fn(&mut ImageEditor));

/// False fields of the superblock. Each makes the whole image unreadable.
const SUPERBLOCK: [FieldChange; 9] = [
    ("wrong magic", |f| f.put(SUPER, 0xE0F5_E1E3, 4)),
    ("blocks of 1 byte", |f| f.put(SUPER + 0x0C, 0, 1)),
    ("blocks of 256 bytes", |f| f.put(SUPER + 0x0C, 8, 1)),
    ("blocks of 2^255 bytes", |f| f.put(SUPER + 0x0C, 255, 1)),
    ("unknown incompatible feature", |f| f.bytes[SUPER + 0x53] |= 0x40),
    ("directory blocks of another size", |f| f.put(SUPER + 0x5A, 1, 1)),
    ("root past the image", |f| f.put(SUPER + 0x0E, 0xFFFF, 2)),
    ("metadata past the image", |f| f.put(SUPER + 0x28, 0x7FFF_FFFF, 4)),
    ("root is a file", |f| f.put(SUPER + 0x0E, f.find("aaa").nid, 2)),
];

/// False fields of directories.
const DIRECTORIES: [FieldChange; 18] = [
    ("a directory in itself", |f| {
        let below = f.find("outer/inner");
        let outer = f.find("outer").nid;
        f.put(below.at, outer, 8);
    }),
    ("the root below itself", |f| {
        let (below, root) = (f.find("outer/inner"), f.root());
        f.put(below.at, root, 8);
    }),
    ("a directory with two names", |f| {
        let (one, other) = (f.find("outer/inner"), f.find("other").nid);
        f.put(one.at, other, 8);
    }),
    ("a nid past the image", |f| f.put(f.find("aaa").at, 1 << 40, 8)),
    ("a nid of all ones", |f| f.put(f.find("aaa").at, u64::MAX, 8)),
    ("a nid that overflows", |f| f.put(f.find("aaa").at, u64::MAX / 32 + 1, 8)),
    ("a nid in a metabox that does not exist", |f| {
        let dirent = f.find("aaa");
        f.put(dirent.at, dirent.nid | 1 << 63, 8);
    }),
    ("first name offset of 0", |f| f.put(first(f, "outer") + D_NAMEOFF, 0, 2)),
    ("first name offset not a multiple of 12", |f| {
        let at = first(f, "outer");
        let offset = f.number(at + D_NAMEOFF, 2);
        f.put(at + D_NAMEOFF, offset + 1, 2);
    }),
    ("first name offset past the directory", |f| f.put(first(f, "outer") + D_NAMEOFF, 12 * 300, 2)),
    ("name offsets that decrease", |f| f.put(f.find("outer/inner").at + D_NAMEOFF, 12, 2)),
    ("name offset past the directory", |f| f.put(f.find("outer/inner").at + D_NAMEOFF, 4095, 2)),
    ("a slash in a name", |f| {
        let name = f.find("aaa").name;
        f.bytes[name.start + 1] = b'/';
    }),
    ("a name twice", |f| {
        let (one, other) = (f.find("aaa").name, f.find("bbb").name);
        f.bytes.copy_within(one, other.start);
    }),
    ("names out of order", |f| {
        let name = f.find("aaa").name;
        f.bytes[name.start] = b'z';
    }),
    ("a wrong type in a dirent", |f| f.put(f.find("aaa").at + D_TYPE, 2, 1)),
    ("a wrong parent", |f| {
        let outer = f.find("outer/inner").nid;
        let (at, other) = (f.dirents(outer)[1].at, f.find("other").nid);
        f.put(at, other, 8);
    }),
    ("a directory of exabytes", |f| f.put_size(f.find("outer").nid, 1 << 60)),
];

/// False fields of inodes.
const INODES: [FieldChange; 13] = [
    ("a mode without a file type", |f| {
        f.put(inode(f, "aaa") + I_MODE, 0o010_644 | 0o020_000 | 0o100_000, 2)
    }),
    ("layout 5", |f| layout(f, "aaa", 5)),
    ("layout 7", |f| layout(f, "aaa", 7)),
    ("unknown bits of i_format", |f| {
        let inode = inode(f, "aaa");
        f.bytes[inode + I_FORMAT + 1] |= 0x80;
    }),
    ("inline data longer than a block", |f| f.put_size(f.find("aaa").nid, 4_000)),
    ("more xattrs than the image has bytes", |f| {
        f.put(inode(f, "xattr") + I_XATTR_ICOUNT, 0xFFFF, 2)
    }),
    ("a symlink of 2^64 - 1 bytes", |f| f.put_size(f.find("symlink").nid, u64::MAX)),
    ("a symlink of 2^32 bytes", |f| f.put_size(f.find("symlink").nid, 1 << 32)),
    ("a file of 2^63 bytes", |f| f.put_size(f.find("aaa").nid, 1 << 63)),
    ("a file of 2^63 - 1 compressed bytes", |f| f.put_size(f.find("text").nid, (1 << 63) - 1)),
    ("a file of 2^40 compressed bytes", |f| f.put_size(f.find("text").nid, 1 << 40)),
    ("stored data past the image", |f| f.put(inode(f, "plain") + I_U, 0x00FF_FFFF, 4)),
    ("a directory that claims to be compressed", |f| layout(f, "outer", 3)),
];

/// False fields of the index of a compressed file. Its header has 8 bytes and follows the inode and
/// its xattrs.
const MAPS: [FieldChange; 6] = [
    ("an algorithm that does not exist", |f| f.put(map(f) + 6, 0x0F, 1)),
    ("clusters of 2^27 bytes", |f| f.put(map(f) + 7, 0x0F, 1)),
    ("a fragment without a packed inode", |f| f.put(map(f) + 7, 0x80, 1)),
    ("unknown advice", |f| f.put(map(f) + 4, 0xFFFF, 2)),
    ("an index of all ones", |f| {
        let map = map(f);
        f.bytes[map + 8..map + 40].fill(0xFF);
    }),
    ("an index of zeroes", |f| {
        let map = map(f);
        f.bytes[map + 8..map + 40].fill(0);
    }),
];

fn first(f: &ImageEditor, path: &str) -> usize {
    f.dirents(f.find(path).nid)[0].at
}

fn inode(f: &ImageEditor, path: &str) -> usize {
    f.inode(f.find(path).nid)
}

fn layout(f: &mut ImageEditor, path: &str, layout: u8) {
    let inode = inode(f, path);
    f.bytes[inode] = f.bytes[inode] & 1 | layout << 1;
}

fn map(f: &ImageEditor) -> usize {
    let nid = f.find("text").nid;
    assert!([1, 3].contains(&f.layout(nid)), "the file is compressed");
    f.after(nid).next_multiple_of(8)
}

#[test]
fn check_finds_each_false_field() {
    let fixture = Fixture::empty();
    create(&fixture);
    let image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "lz4", "-T0"])).unwrap());
    fs::write(fixture.path("image"), &image.bytes).unwrap();
    let clean = command(&["check", "--deep"], &fixture.path("image"), &[]);
    assert_eq!(clean.code, 0, "the image without a change: {}", clean.stderr);

    let (forged, target) = (fixture.path("forged"), fixture.path("extracted"));
    let mut not_found = Vec::new();
    for (name, change) in [&SUPERBLOCK[..], &DIRECTORIES, &INODES, &MAPS].concat() {
        let mut changed = image.clone();
        change(&mut changed);
        assert!(changed.bytes != image.bytes, "{name}: the image has not changed");
        fs::write(&forged, &changed.bytes).unwrap();
        let checked = command(&["check", "--deep"], &forged, &[]);
        assert_handled(&checked, &format!("check, {name}"));
        if checked.code == 0 {
            not_found.push(name);
        }
        assert_handled(&command(&["ls"], &forged, &[]), &format!("ls, {name}"));
        for path in ["aaa", "text", "plain", "symlink", "outer/inner/leaf"] {
            assert_handled(
                &command(&["cat"], &forged, &[path.as_ref()]),
                &format!("cat {path}, {name}"),
            );
        }
        assert_handled(&command(&["extract"], &forged, &[&target]), &format!("extract, {name}"));
        assert!(!target.is_file(), "extract, {name}: a tree is a directory");
        if target.exists() {
            fs::remove_dir_all(&target).unwrap();
        }
    }
    assert!(not_found.is_empty(), "check does not find: {not_found:#?}");
}

#[test]
fn the_daemon_handles_each_false_field() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    create(&fixture);
    let image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "lz4", "-T0"])).unwrap());
    let (forged, dir) = (fixture.path("forged"), fixture.directory("mount"));
    for (name, change) in [&SUPERBLOCK[..], &DIRECTORIES, &INODES, &MAPS].concat() {
        let mut changed = image.clone();
        change(&mut changed);
        fs::write(&forged, &changed.bytes).unwrap();
        assert_mount_handled(&forged, &dir, name);
    }
}

/// Creates the files and directories whose fields are changed.
fn create(fixture: &Fixture) {
    let writer = DirWriter::open(&fixture.source(), Rng::new(1), false).unwrap();
    writer.file(b"aaa", b"a small file\n").unwrap();
    writer.file(b"bbb", b"another\n").unwrap();
    writer.file(b"text", &Content::Text.bytes(300_000, &mut Rng::new(1))).unwrap();
    writer.file(b"plain", &Content::Noise.bytes(8 << 10, &mut Rng::new(1))).unwrap();
    writer.file(b"xattr", b"with one xattr\n").unwrap();
    writer.xattr(b"xattr", b"user.key", b"value").unwrap();
    writer.symlink(b"symlink", b"target").unwrap();
    writer.node(b"fifo", FileType::Fifo, (0, 0)).unwrap();
    writer
        .sub(b"outer", |writer| writer.sub(b"inner", |writer| writer.file(b"leaf", b"leaf\n")))
        .unwrap();
    writer.sub(b"other", |writer| writer.file(b"leaf", b"leaf\n")).unwrap();
    writer.finish().unwrap();
}
