//! The bytes of ten small images. A round trip does not show that the writer and the reader have changed together, and that images which
//! others keep, sign or download in pieces change. `pinned.txt` lists the digests.
//!
//! The same tree gives the same image, bit for bit, with any number of workers.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::tar::{self, Header, member, pax};
use ferofs_tests::{Run, ferofs, tree};
use sha2::{Digest, Sha256};

use crate::common::erofs_utils::mkfs;
use crate::common::fixture::{COMPRESSIONS, Fixture};

/// With this variable, the test writes the digests that it finds.
const ACCEPT: &str = "FEROFS_TEST_ACCEPT";
const FIXED: [&str; 4] = ["-T", "1000000000", "-U", "00000000-0000-4000-8000-000000000000"];
/// The options of the images: every compressor, inode layout and place of data and metadata.
const IMAGES: [&[&str]; 10] = [
    &["-z", "none"],
    &["-z", "none", "--chunk-size", "4096", "--inodes", "extended"],
    &["--preset", "fast", "-z", "lz4", "-b", "512", "-E", "legacy-compress"],
    &["--preset", "fast", "-z", "lz4", "-E", "dedupe,ztailpacking"],
    &[
        "--preset",
        "fast",
        "-z",
        "lz4hc,12",
        "-C",
        "65536",
        "--no-share",
        "--xattr-prefix",
        "user.long.",
    ],
    &["--preset", "fast", "-z", "zstd,9", "-C", "65536", "-E", "all-fragments"],
    &["--preset", "fast", "-z", "deflate", "-C", "32768", "-E", "fragments"],
    &["--preset", "fast", "-z", "lzma", "-C", "131072", "-E", "48bit"],
    &[
        "--preset",
        "fast",
        "-z",
        "zstd",
        "-m",
        "4096",
        "--compress-directories",
        "-E",
        "dot-omitted",
    ],
    &["--preset", "default"],
];

/// An archive, because the tree of a directory depends on the file system that holds it.
fn archive() -> Vec<u8> {
    let mut rng = Rng::new(1);
    let mut members = vec![tar::dir("dir/"), tar::dir("names/")];
    for (number, kind) in Content::ALL.into_iter().enumerate() {
        for len in [1, 100, 4096, 5000, 150_000] {
            members.push(tar::file(&format!("dir/{number}-{len}"), &kind.bytes(len, &mut rng)));
        }
    }
    members.push(tar::hard_link("dir/again", "dir/0-5000"));
    members.push(tar::soft_link("link", "dir/0-5000"));
    for number in 0..400 {
        let name = format!("names/{number:04}{}", "n".repeat(number % 90));
        members.push(tar::file(&name, b""));
    }
    for number in 0..6 {
        let own = format!("value {number}");
        let both: [(&str, &[u8]); 3] = [
            ("SCHILY.xattr.user.long.shared", b"the same in each of them"),
            ("SCHILY.xattr.trusted.own", own.as_bytes()),
            ("mtime", b"1234567890.123456789"),
        ];
        members.push(pax(&both[..1 + number % 3]));
        members.push(tar::file(&format!("with attributes {number}"), own.as_bytes()));
    }
    let device =
        |name, kind| Header::new(name, kind, 0).with(329, b"0000010\0").with(337, b"0000003\0");
    for (name, kind) in [("char", b'3'), ("block", b'4'), ("fifo", b'6')] {
        members
            .push(member(device(name, kind).with(100, b"0000600\0").with(108, b"0200000\0"), b""));
    }
    tar::archive(&members)
}

fn list() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/build/pinned.txt")
}

#[test]
fn images_have_the_same_bytes_as_before() {
    let fixture = Fixture::empty();
    let source = fixture.path("source.tar");
    fs::write(&source, archive()).unwrap();
    let mut found = String::new();
    for options in IMAGES {
        let image = fixture.path("image");
        ferofs().arg("build").args(FIXED).args(options).args([&source, &image]).run().success();
        ferofs().args(["check", "--deep"]).arg(&image).run().success();
        let digest = Sha256::digest(fs::read(&image).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        found += &format!("{digest} {}\n", options.join(" "));
    }
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(list(), &found).unwrap();
    }
    let expected = fs::read_to_string(list()).unwrap_or_default();
    let changed: Vec<_> =
        found.lines().filter(|line| !expected.lines().any(|known| known == *line)).collect();
    assert!(
        changed.is_empty(),
        "these images have other bytes than before:\n{}\nIf that is meant, say so in CHANGELOG.md, and accept it:\n\
         {ACCEPT}=1 cargo test -p ferofs-tests --test it pinned",
        changed.join("\n")
    );
}

#[test]
fn the_image_does_not_depend_on_the_number_of_workers() {
    // The largest files have several segments.
    let fixture = Fixture::new(&tree::Options {
        largest: 20_000_003,
        wide: 2_000,
        deep: 50,
        ..tree::Options::default()
    });
    for compression in COMPRESSIONS {
        let build = |workers: &str| {
            let name = format!("{compression}-{workers}");
            let image = fixture.build(
                &name,
                ["--compress", compression, "--workers", workers].iter().chain(&FIXED),
            );
            fs::read(image).unwrap()
        };
        let one = build("1");
        assert!(build("2") == one, "{compression}: two workers give another image than one");
        assert!(build("5") == one, "{compression}: five workers give another image than one");
    }
}

#[test]
fn the_image_does_not_depend_on_workers() {
    let fixture =
        Fixture::new(&tree::Options { wide: 3_000, deep: 50, ..tree::Options::default() });
    let metadata = ["-z", "lz4", "-m", "4096", "--compress-directories"];
    let settings: [&[&str]; 4] = [
        &["-z", "lz4"],
        &["-z", "zstd,9", "-C", "64K", "-E", "fragments"],
        &["-z", "lz4", "-E", "ztailpacking,dedupe"],
        &metadata,
    ];
    for (number, settings) in settings.into_iter().enumerate() {
        let build = |more: &[&str]| {
            let name = format!("workers-{number}-{}", more.len());
            fs::read(fixture.build(&name, settings.iter().chain(more).chain(&FIXED))).unwrap()
        };
        let image = build(&[]);
        assert!(
            build(&["--workers", "1", "--quiet"]) == image,
            "{settings:?}: another image with one worker"
        );
    }
}

#[test]
fn another_copy_of_the_tree_gives_the_same_image() {
    let options = tree::Options { wide: 500, ..tree::Options::small() };
    let build = |fixture: &Fixture| {
        fs::read(fixture.build("image", ["--compress", "lz4"].iter().chain(&FIXED))).unwrap()
    };
    let image = build(&Fixture::new(&options));
    assert!(build(&Fixture::new(&options)) == image);
    assert!(
        build(&Fixture::new(&tree::Options { seed: 2, ..options })) != image,
        "the test must be able to fail"
    );
}

#[test]
fn the_image_does_not_depend_on_date_directory_and_order() {
    let fixture =
        Fixture::new(&tree::Options { largest: 5_000_003, wide: 500, ..tree::Options::small() });
    // Holes are part of the source, and copies may have other holes.
    fs::remove_dir_all(fixture.source().join("sparse")).unwrap();
    let other = Fixture::empty();
    let mut names: Vec<_> =
        fs::read_dir(fixture.source()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    // The copy has other inode numbers, in another order, and other times.
    for path in names.iter().rev() {
        Run::new("cp").args(["-a", "--"]).arg(path).arg(other.source()).run().success();
    }
    let touch = "find . -depth -exec touch -h -d 2001-01-01 {} +";
    Run::new("sh")
        .args(["-c", &format!("cd \"$0\" && {touch}")])
        .arg(other.source())
        .run()
        .success();
    let owner = "chown --reference=\"$0\" \"$1\" && chmod --reference=\"$0\" \"$1\"";
    Run::new("sh").args(["-c", owner]).args([fixture.source(), other.source()]).run().success();
    for options in ["", "-zlz4", "-zlz4hc,9", "--chunksize=4096", "--xattr-inode-digest -x 1"] {
        let build = |fixture: &Fixture, workers: &str| {
            let fixed = "-T 1700000000 -U c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
            let image = fixture.path("image");
            mkfs(fixture, &format!("{fixed} --workers={workers} {options}"), &image).success();
            fs::read(image).unwrap()
        };
        assert!(build(&fixture, "1") == build(&other, "4"), "{options}");
    }
}
