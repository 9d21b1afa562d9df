//! Builds from tar archives: every format of tar gives the same tree as the directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::run::ferofs_path;
use ferofs_tests::tar::{self, Header};
use ferofs_tests::{Mount, ferofs, need, tree};

use crate::common::fixture::{Fixture, same};

const TIME: &str = "2000000000";
const UUID: &str = "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
const FIXED: [&str; 4] = ["-T", TIME, "-U", UUID];

/// An archive of the source, made by GNU tar.
#[track_caller]
fn archive(fixture: &Fixture, name: &str, options: &[&str]) -> PathBuf {
    let path = fixture.path(name);
    let made = Command::new("tar")
        .arg("--create")
        .args(options)
        .args(["--sort=name", "--warning=no-file-ignored", "--directory"])
        .arg(fixture.source())
        .arg("--file")
        .args([&path, Path::new(".")])
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    // Sockets are left out, with code 1 or 2.
    assert!(path.is_file(), "{}", String::from_utf8_lossy(&made.stderr));
    path
}

fn build(fixture: &Fixture, name: &str, sources: &[PathBuf], options: &[&str]) -> PathBuf {
    let image = fixture.path(name);
    ferofs().arg("build").args(FIXED).args(options).args(sources).arg(&image).run().success();
    ferofs().arg("check").arg(&image).run().success();
    image
}

/// A tree without inodes that tar archives cannot contain.
fn tar_fixture() -> Fixture {
    let fixture = Fixture::new(&tree::Options { deep: 30, wide: 300, ..tree::Options::small() });
    let sockets =
        Command::new("find").arg(fixture.source()).args(["-type", "s", "-delete"]).status();
    assert!(sockets.unwrap().success());
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
fn pax_archives_give_the_same_image_as_the_directory() {
    let Some(_) = need::tool("tar", "archives") else { return };
    let fixture = tar_fixture();
    let xattrs = ["--xattrs", "--xattrs-include=*"];
    for compress in ["none", "lz4"] {
        let expected =
            fs::read(build(&fixture, "directory", &[fixture.source()], &["-z", compress])).unwrap();
        for version in ["0.0", "0.1", "1.0"] {
            let sparse = format!("--sparse-version={version}");
            let options = ["--format=pax", "--sparse", &sparse, xattrs[0], xattrs[1]];
            let tar = archive(&fixture, "pax.tar", &options);
            for workers in ["1", "3"] {
                let image = build(
                    &fixture,
                    "image",
                    std::slice::from_ref(&tar),
                    &["-z", compress, "--workers", workers],
                );
                assert!(
                    fs::read(&image).unwrap() == expected,
                    "sparse {version}, {compress}, {workers} workers"
                );
            }
        }
    }
}

#[test]
fn linux_shows_the_tree_of_every_tar_format() {
    let Some(_) = need::tool("tar", "archives") else { return };
    require!(need::kernel_erofs("images of archives through the kernel"));
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

/// A tree for the oldest formats: short names and small files, and no devices and fifos, which v7 does not have.
fn plain_fixture(format: &str) -> Fixture {
    let fixture = Fixture::empty();
    let source = fixture.source();
    fs::create_dir_all(source.join("d/e")).unwrap();
    for (name, content) in [("a", "alpha"), ("d/b", ""), ("d/e/c", &"text ".repeat(10_000))] {
        fs::write(source.join(name), content).unwrap();
    }
    fs::hard_link(source.join("a"), source.join("d/hard")).unwrap();
    std::os::unix::fs::symlink("../a", source.join("d/soft")).unwrap();
    if format == "ustar" {
        fs::create_dir_all(source.join("long".repeat(20)).join("path".repeat(10))).unwrap();
        fs::write(source.join("long".repeat(20)).join("path".repeat(10)).join("file"), "far")
            .unwrap();
    }
    fixture
}

#[test]
fn compressed_and_piped_archives_give_the_same_image() {
    let Some(_) = need::tool("tar", "archives") else { return };
    let fixture = tar_fixture();
    let tar = archive(&fixture, "plain.tar", &["--format=pax", "--xattrs"]);
    let expected =
        fs::read(build(&fixture, "expected", std::slice::from_ref(&tar), &["-z", "lz4"])).unwrap();
    for tool in ["gzip", "xz", "zstd"] {
        let Some(_) = need::tool(tool, "compressed archives") else { continue };
        let packed = Command::new(tool).arg("-c").arg(&tar).output().unwrap().stdout;
        let path = fixture.path("packed");
        fs::write(&path, &packed).unwrap();
        let image = build(&fixture, "image", &[path], &["-z", "lz4"]);
        assert!(fs::read(image).unwrap() == expected, "{tool}");
        assert!(fs::read(piped(&fixture, &packed)).unwrap() == expected, "{tool} through a pipe");
    }
    assert!(
        fs::read(piped(&fixture, &fs::read(&tar).unwrap())).unwrap() == expected,
        "through a pipe"
    );
    // Standard input is a file: ferofs reads it directly, without a temporary copy.
    let image = fixture.path("redirected");
    let status = Command::new(ferofs_path())
        .args(["build", "-z", "lz4", "-"])
        .args(FIXED)
        .arg(&image)
        .stdin(File::open(&tar).unwrap())
        .status();
    assert!(status.unwrap().success());
    assert!(fs::read(image).unwrap() == expected, "redirected");
    let names: Vec<_> =
        fs::read_dir(fixture.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        names.iter().all(|name| !name.to_string_lossy().starts_with('.')),
        "a temporary file is left: {names:?}"
    );
}

/// An image of an archive that ferofs reads from a pipe.
fn piped(fixture: &Fixture, bytes: &[u8]) -> PathBuf {
    let image = fixture.path("piped");
    let mut child = Command::new(ferofs_path())
        .args(["build", "-z", "lz4", "-"])
        .args(FIXED)
        .arg(&image)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(child.wait().unwrap().success());
    image
}

/// GNU tar cuts the name `DIR/GNUSparseFile.PID/NAME` off at 100 bytes: the rest may look like the name of a directory.
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
    let content = ferofs().arg("cat").args([&image, Path::new("dir/name")]).run().success();
    assert_eq!(content.stdout, [&b"text"[..], &[0; 4996]].concat());
    ferofs().arg("cat").args([&image, Path::new("after")]).run().success();
}
