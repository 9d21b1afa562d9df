//! Builds from tar archives: every format of tar gives the same tree as the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::tar::{self, Header};
use ferofs_tests::{Mount, Run, ferofs, need, run, tree};

use crate::common::fixture::{Fixture, same};

const TIME: &str = "2000000000";
const UUID: &str = "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
const FIXED: [&str; 4] = ["-T", TIME, "-U", UUID];

/// An archive of the source, made by GNU tar.
#[track_caller]
fn archive(fixture: &Fixture, name: &str, options: &[&str]) -> PathBuf {
    let tar = run!("tar --create --sort=name --warning=no-file-ignored").args(options);
    let rest = fixture.words(&format!("--directory @source --file @{name} ."));
    let made = tar.args(rest).env("LC_ALL", "C.UTF-8").run();
    // Sockets are left out, with code 1 or 2.
    let path = fixture.path(name);
    assert!(path.is_file(), "{}", made.stderr);
    path
}

fn build(fixture: &Fixture, name: &str, sources: &[PathBuf], options: &[&str]) -> PathBuf {
    let image = fixture.path(name);
    ferofs!("build").args(FIXED).args(options).args(sources).arg(&image).success();
    ferofs!("check", &image).success();
    image
}

/// A tree without inodes that tar archives cannot contain.
fn tar_fixture() -> Fixture {
    let fixture = Fixture::new(&tree::Options { deep: 30, wide: 300, ..tree::Options::small() });
    run!("find", fixture.source(), "-type", "s", "-delete").success();
    // GNU tar archives these hard links as separate files.
    for name in ["device too", "fifo too"] {
        fs::remove_file(fixture.source().join("kinds/links").join(name)).unwrap();
    }
    fixture
}

/// Options that ignore the fields that a format cannot store.
fn without(fields: &[Field]) -> compare::Options {
    let mut options = same();
    options.ignore.extend_from_slice(fields);
    options
}

#[test]
fn linux_shows_the_tree_of_every_tar_format() {
    let Some(_) = need::tool("tar") else { return };
    require!(need::kernel_erofs());
    // Only PAX stores nanoseconds and xattrs.
    let (time, xattr) = (Field::Mtime, Field::Xattr(String::new()));
    for (format, sparse, lost) in [
        ("gnu", "--sparse", &[time.clone(), xattr.clone()][..]),
        ("oldgnu", "--sparse", &[time.clone(), xattr.clone()]),
        ("pax", "", &[]),
        ("ustar", "", &[time.clone(), xattr.clone()]),
        ("v7", "", &[time, xattr]),
    ] {
        let fixture =
            if matches!(format, "ustar" | "v7") { plain_fixture(format) } else { tar_fixture() };
        let format = format!("--format={format}");
        let mut options = vec![format.as_str()];
        options.extend(Some(sparse).filter(|option| !option.is_empty()));
        if format.ends_with("pax") {
            options.extend(["--xattrs", "--xattrs-include=*"]);
        }
        let tar = archive(&fixture, "archive.tar", &options);
        let image = build(&fixture, "image", &[tar], &["-z", "lz4"]);
        let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
        let report = compare(&fixture.source(), mount.path(), &without(lost)).unwrap();
        assert_eq!(report.differences, [], "{format}");
        mount.unmount().unwrap();
    }
}

/// A tree for the oldest formats: short names and small files, and no devices and fifos, which v7
/// does not have.
fn plain_fixture(format: &str) -> Fixture {
    let fixture = Fixture::empty();
    let source = fixture.source();
    for (name, content) in [("a", "alpha"), ("d/b", ""), ("d/e/c", &"text ".repeat(10_000))] {
        fixture.write(name, content);
    }
    fs::hard_link(source.join("a"), source.join("d/hard")).unwrap();
    std::os::unix::fs::symlink("../a", source.join("d/soft")).unwrap();
    if format == "ustar" {
        fixture.write(format!("{}/{}/file", "long".repeat(20), "path".repeat(10)), "far");
    }
    fixture
}

#[test]
fn compressed_and_piped_archives_give_the_same_image() {
    let Some(_) = need::tool("tar") else { return };
    let fixture = tar_fixture();
    let tar = archive(&fixture, "plain.tar", &["--format=pax", "--xattrs"]);
    let plain = fs::read(&tar).unwrap();
    let image = build(&fixture, "expected", std::slice::from_ref(&tar), &["-z", "lz4"]);
    let expected = fs::read(image).unwrap();
    let assert_same = |run: Run, what: &str| {
        run.success();
        assert!(fs::read(fixture.path("image")).unwrap() == expected, "{what}");
    };
    let build =
        |source: &str| fixture.line(&format!("build -q -z lz4 {source} @image")).args(FIXED);
    for tool in ["gzip", "xz", "zstd"] {
        let Some(tool) = need::tool(tool) else { continue };
        let packed = Run::new(&tool).arg("-c").arg(&tar).success().stdout;
        fs::write(fixture.path("packed"), &packed).unwrap();
        assert_same(build("@packed"), "compressed");
        assert_same(build("-").piped(packed), "compressed, through a pipe");
    }
    assert_same(build("-").piped(plain), "through a pipe");
    // Standard input is a file: ferofs reads it directly, without a temporary copy.
    assert_same(build("-").input(File::open(&tar).unwrap()), "redirected");
    let names = fixture.names();
    let is_left = names.iter().any(|name| name.starts_with('.'));
    assert!(!is_left, "a temporary file is left: {names:?}");
}

/// GNU tar cuts the name `DIR/GNUSparseFile.PID/NAME` off at 100 bytes: the rest may look like the
/// name of a directory.
#[test]
fn a_sparse_file_whose_short_name_ends_with_a_slash_is_a_file() {
    let fixture = Fixture::empty();
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"dir/name"),
        ("GNU.sparse.realsize", b"5000"),
    ];
    let mut map = b"1\n0\n4\n".to_vec();
    map.resize(512, 0);
    map.extend(b"text");
    let header = Header::new("dir/GNUSparseFile.1/", b'0', map.len() as u64);
    let members = [tar::pax(&records), tar::member(header, &map), tar::file("after", b"end")];
    let path = fixture.path("sparse.tar");
    fs::write(&path, tar::archive(&members)).unwrap();
    let image = build(&fixture, "image", &[path], &[]);
    let content = ferofs!("cat", &image, Path::new("dir/name")).success();
    assert_eq!(content.stdout, [&b"text"[..], &[0; 4996]].concat());
    ferofs!("cat", &image, Path::new("after")).success();
}
