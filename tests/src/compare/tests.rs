//! Tests that the comparison finds each kind of difference, and none in equal trees.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Gid, Mode, Uid};

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
    writer
        .sub(b"directory", |writer| writer.sub(b"below", |writer| writer.file(b"leaf", b"leaf")))
        .unwrap();
    writer.finish().unwrap();
}

/// Creates two equal trees, applies `change` to the second one, and returns the differences: path and field.
fn found(change: impl FnOnce(&Path)) -> Vec<(String, Field)> {
    let (left, right) = (scratch(), scratch());
    create(left.path());
    create(right.path());
    change(right.path());
    let options = Options::default();
    let report = compare(left.path(), right.path(), &options).unwrap();
    assert_eq!(report.count, report.differences.len() as u64);
    report.differences.into_iter().map(|difference| (difference.path, difference.field)).collect()
}

/// Runs `change`, and then sets the old time of `path` again.
fn keeping_time(path: PathBuf, change: impl FnOnce(&Path)) {
    let before = fs::symlink_metadata(&path).unwrap().modified().unwrap();
    change(&path);
    File::open(&path).unwrap().set_modified(before).unwrap();
}

fn one(path: &str, field: Field) -> Vec<(String, Field)> {
    vec![(path.to_owned(), field)]
}

#[test]
fn equal_trees_have_no_differences() {
    assert_eq!(found(|_| ()), []);
}

#[test]
fn a_changed_byte_is_found() {
    let change = |path: &Path| {
        File::options().write(true).open(path).unwrap().write_all_at(b"b", 262_145).unwrap()
    };
    let found = found(|root| keeping_time(root.join("other"), change));
    assert_eq!(found, one("other", Field::Content(262_145)));
}

#[test]
fn another_size_is_found() {
    let change =
        |path: &Path| File::options().write(true).open(path).unwrap().set_len(299_999).unwrap();
    let found = found(|root| keeping_time(root.join("other"), change));
    assert_eq!(found, [("other".into(), Field::Size), ("other".into(), Field::Content(299_999))]);
}

#[test]
fn another_mode_is_found() {
    let found = found(|root| {
        fs::set_permissions(root.join("directory"), PermissionsExt::from_mode(0o1755)).unwrap()
    });
    assert_eq!(found, one("directory", Field::Mode));
}

#[test]
fn another_owner_and_group_are_found() {
    if !need::root("owners in compare") {
        return;
    }
    let chown = |root: &Path| {
        rustix::fs::chown(root.join("other"), Some(Uid::from_raw(70_000)), Some(Gid::from_raw(1)))
            .unwrap();
    };
    assert_eq!(found(chown), [("other".into(), Field::Uid), ("other".into(), Field::Gid)]);
}

#[test]
fn a_nanosecond_is_found() {
    let touch = |root: &Path| {
        let path = root.join("directory/below/leaf");
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        File::open(&path)
            .unwrap()
            .set_modified(before + std::time::Duration::from_nanos(1))
            .unwrap();
    };
    assert_eq!(found(touch), one("directory/below/leaf", Field::Mtime));
}

#[test]
fn another_time_of_the_root_is_found() {
    let touch = |root: &Path| {
        File::open(root).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap()
    };
    assert_eq!(found(touch), one(".", Field::Mtime));
}

#[test]
fn a_missing_and_an_unexpected_name_are_found() {
    let rename = |root: &Path| {
        keeping_time(root.to_owned(), |root| {
            fs::rename(root.join("other"), root.join("another")).unwrap()
        });
    };
    assert_eq!(
        found(rename),
        [("another".into(), Field::Unexpected), ("other".into(), Field::Missing)]
    );
}

#[test]
fn another_type_is_found() {
    let change = |root: &Path| {
        keeping_time(root.to_owned(), |root| {
            fs::remove_file(root.join("fifo")).unwrap();
            fs::write(root.join("fifo"), b"").unwrap();
        });
    };
    assert_eq!(found(change), one("fifo", Field::Type));
}

#[test]
fn another_symlink_target_is_found() {
    let change = |root: &Path| {
        keeping_time(root.to_owned(), |root| {
            fs::remove_file(root.join("symlink")).unwrap();
            symlink("tarfet", root.join("symlink")).unwrap();
            let writer = DirWriter::open(root, Rng::new(1), false).unwrap();
            writer.default_time(b"symlink").unwrap();
        });
    };
    assert_eq!(found(change), one("symlink", Field::Target));
}

#[test]
fn another_device_number_is_found() {
    if !need::root("devices in compare") {
        return;
    }
    let (left, right) = (scratch(), scratch());
    for (dir, minor) in [(&left, 3), (&right, 4)] {
        let writer = DirWriter::open(dir.path(), Rng::new(1), true).unwrap();
        writer.node(b"device", FileType::CharacterDevice, (1, minor)).unwrap();
        writer.finish().unwrap();
    }
    let report = compare(left.path(), right.path(), &Options::default()).unwrap();
    assert_eq!(
        report.differences.iter().map(|d| d.field.clone()).collect::<Vec<_>>(),
        [Field::Device]
    );
}

#[test]
fn changed_missing_and_new_xattrs_are_found() {
    let xattr = |name: &str| Field::Xattr(name.to_owned());
    let set = |root: &Path, name: &[u8], key: &[u8], value: &[u8]| {
        let dir = rustix::fs::open(root, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
        xattr::set(&dir, name, key, value).unwrap();
    };
    assert_eq!(
        found(|root| set(root, b"other", b"user.key", b"Value")),
        one("other", xattr("user.key"))
    );
    assert_eq!(
        found(|root| set(root, b"directory", b"user.new", b"")),
        one("directory", xattr("user.new"))
    );
    let lose = |root: &Path| rustix::fs::removexattr(root.join("other"), "user.key").unwrap();
    assert_eq!(found(lose), one("other", xattr("user.key")));
}

#[test]
fn a_copy_instead_of_a_hard_link_is_found() {
    let unlink = |root: &Path| {
        keeping_time(root.to_owned(), |root| {
            fs::remove_file(root.join("linked")).unwrap();
            fs::copy(root.join("file"), root.join("linked")).unwrap();
            let time = fs::metadata(root.join("file")).unwrap().modified().unwrap();
            File::open(root.join("linked")).unwrap().set_modified(time).unwrap();
        });
    };
    let found = found(unlink);
    assert!(found.iter().any(|(_, field)| *field == Field::HardLink), "{found:?}");
    assert!(found.iter().any(|(_, field)| *field == Field::Links), "{found:?}");
}

#[test]
fn a_hard_link_instead_of_a_copy_is_found() {
    let link = |root: &Path| {
        keeping_time(root.to_owned(), |root| {
            fs::remove_file(root.join("directory/below/leaf")).unwrap();
            fs::hard_link(root.join("file"), root.join("directory/below/leaf")).unwrap();
        });
    };
    let found = found(link);
    assert!(found.contains(&("directory/below/leaf".into(), Field::HardLink)), "{found:?}");
}

#[test]
fn ignored_fields_are_not_reported() {
    let (left, right) = (scratch(), scratch());
    create(left.path());
    create(right.path());
    fs::set_permissions(right.path().join("directory"), PermissionsExt::from_mode(0o700)).unwrap();
    let options = Options { ignore: vec![Field::Mode], ..Options::default() };
    compare(left.path(), right.path(), &options).unwrap().assert_same();
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
