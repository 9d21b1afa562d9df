//! Tests that the comparison finds each kind of difference, and none in equal trees.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};

use super::*;
use crate::need;
use crate::rng::Rng;
use crate::scratch;
use crate::tree::DirWriter;
use crate::xattr;

/// Creates a small tree with one entry for each test.
fn create(dir: &Path) {
    let writer = DirWriter::open(dir, Rng::new(1), need::is_root()).unwrap();
    writer.file(b"file", &[b'a'; 300_000]).unwrap();
    writer.link(b"file", &writer, b"linked").unwrap();
    writer.file(b"other", &[b'a'; 300_000]).unwrap();
    writer.xattr(b"other", b"user.key", b"value").unwrap();
    writer.symlink(b"symlink", b"target").unwrap();
    writer.node(b"fifo", FileType::Fifo, (0, 0)).unwrap();
    if writer.root() {
        writer.node(b"device", FileType::CharacterDevice, (1, 3)).unwrap();
    }
    writer
        .sub(b"directory", |writer| writer.sub(b"below", |writer| writer.file(b"leaf", b"leaf")))
        .unwrap();
    writer.finish().unwrap();
}

/// Creates two equal trees, applies `change` to the second one, and returns the differences: path
/// and field.
fn found(change: impl FnOnce(&Path), options: &Options) -> Vec<(String, Field)> {
    let (left, right) = (scratch(), scratch());
    create(left.path());
    create(right.path());
    change(right.path());
    let report = compare(left.path(), right.path(), options).unwrap();
    assert_eq!(report.count, report.differences.len() as u64);
    report.differences.into_iter().map(|difference| (difference.path, difference.field)).collect()
}

/// A change of a tree, and the differences that it makes.
type Case<'a> = (fn(&Path), &'a [(&'a str, Field)]);

/// Runs `change`, and then sets the old time of `path` again.
fn keeping_time(path: &Path, change: impl FnOnce()) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    change();
    File::open(path).unwrap().set_modified(before).unwrap();
}

/// Replaces a name of the root by what `create` makes.
fn replace(root: &Path, name: &str, create: impl FnOnce(&Path)) {
    keeping_time(root, || {
        fs::remove_file(root.join(name)).unwrap();
        create(&root.join(name));
    });
}

fn set_xattr(root: &Path, name: &str, key: &[u8], value: &[u8]) {
    let dir = rustix::fs::open(root, OFlags::DIRECTORY, Mode::empty()).unwrap();
    xattr::set(&dir, name.as_bytes(), key, value).unwrap();
}

fn assert_found(cases: &[Case<'_>]) {
    for (change, expected) in cases {
        let expected: Vec<_> =
            expected.iter().map(|(path, field)| ((*path).to_owned(), field.clone())).collect();
        assert_eq!(found(change, &Options::default()), expected);
    }
}

#[test]
fn each_kind_of_difference_is_found() {
    let xattr = |name: &str| Field::Xattr(name.to_owned());
    assert_found(&[
        (|_| (), &[]),
        (
            |root| {
                let file = File::options().write(true).open(root.join("other")).unwrap();
                keeping_time(&root.join("other"), || file.write_all_at(b"b", 262_145).unwrap());
            },
            &[("other", Field::Content(262_145))],
        ),
        (
            |root| {
                let file = File::options().write(true).open(root.join("other")).unwrap();
                keeping_time(&root.join("other"), || file.set_len(299_999).unwrap());
            },
            &[("other", Field::Size), ("other", Field::Content(299_999))],
        ),
        (
            |root| {
                let mode = PermissionsExt::from_mode(0o1755);
                fs::set_permissions(root.join("directory"), mode).unwrap();
            },
            &[("directory", Field::Mode)],
        ),
        (
            |root| {
                let file = File::open(root.join("directory/below/leaf")).unwrap();
                let before = file.metadata().unwrap().modified().unwrap();
                file.set_modified(before + Duration::from_nanos(1)).unwrap();
            },
            &[("directory/below/leaf", Field::Mtime)],
        ),
        (
            |root| File::open(root).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap(),
            &[(".", Field::Mtime)],
        ),
        (
            |root| {
                keeping_time(root, || {
                    fs::rename(root.join("other"), root.join("another")).unwrap();
                });
            },
            &[("another", Field::Unexpected), ("other", Field::Missing)],
        ),
        (
            |root| replace(root, "fifo", |path| fs::write(path, b"").unwrap()),
            &[("fifo", Field::Type)],
        ),
        (
            |root| {
                replace(root, "symlink", |path| symlink("tarfet", path).unwrap());
                keeping_time(root, || {
                    let writer = DirWriter::open(root, Rng::new(1), false).unwrap();
                    writer.default_time(b"symlink").unwrap();
                });
            },
            &[("symlink", Field::Target)],
        ),
        (|root| set_xattr(root, "other", b"user.key", b"Value"), &[("other", xattr("user.key"))]),
        (
            |root| set_xattr(root, "directory", b"user.new", b""),
            &[("directory", xattr("user.new"))],
        ),
        (
            |root| rustix::fs::removexattr(root.join("other"), "user.key").unwrap(),
            &[("other", xattr("user.key"))],
        ),
    ]);
}

#[test]
fn other_owners_and_device_numbers_are_found() {
    if !need::root() {
        return;
    }
    assert_found(&[
        (
            |root| chown(root.join("other"), Some(70_000), Some(1)).unwrap(),
            &[("other", Field::Uid), ("other", Field::Gid)],
        ),
        (
            |root| {
                replace(root, "device", |_| {
                    let writer = DirWriter::open(root, Rng::new(1), true).unwrap();
                    writer.node(b"device", FileType::CharacterDevice, (1, 4)).unwrap();
                    writer.default_time(b"device").unwrap();
                });
            },
            &[("device", Field::Device)],
        ),
    ]);
}

#[test]
fn links_and_copies_are_told_apart() {
    let unlink = |root: &Path| {
        replace(root, "linked", |path| {
            fs::copy(root.join("file"), path).unwrap();
            let time = fs::metadata(root.join("file")).unwrap().modified().unwrap();
            File::open(path).unwrap().set_modified(time).unwrap();
        });
    };
    let unlinked = found(unlink, &Options::default());
    for field in [Field::HardLink, Field::Links] {
        assert!(unlinked.iter().any(|(_, found)| *found == field), "{unlinked:?}");
    }
    let link = |root: &Path| {
        fs::remove_file(root.join("directory/below/leaf")).unwrap();
        fs::hard_link(root.join("file"), root.join("directory/below/leaf")).unwrap();
    };
    let linked = found(link, &Options::default());
    assert!(linked.contains(&("directory/below/leaf".into(), Field::HardLink)), "{linked:?}");
}

#[test]
fn ignored_fields_are_not_reported() {
    let change = |root: &Path| {
        let mode = PermissionsExt::from_mode(0o700);
        fs::set_permissions(root.join("directory"), mode).unwrap();
    };
    let options = Options { ignore: vec![Field::Mode], ..Options::default() };
    assert_eq!(found(change, &options), []);
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let (left, right) = (scratch(), scratch());
    create(left.path());
    let report = |threads| {
        compare(left.path(), right.path(), &Options { threads, ..Options::default() }).unwrap()
    };
    let (one, many) = (report(1), report(8));
    assert_eq!(one.differences, many.differences);
    assert!(!one.differences.is_empty());
}
