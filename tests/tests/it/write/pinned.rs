//! The bytes of ten small images. A round trip does not show that the writer and the reader have
//! changed together, and that images which others keep, sign or download in pieces change.
//! `pinned.txt` lists the digests.
//!
//! The same tree gives the same image, bit for bit, with any number of workers.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::tar::{self, Header, member, pax};
use ferofs_tests::{Content, Rng, ferofs, run, tree};
use sha2::{Digest, Sha256};

use crate::common::erofs_utils::mkfs;
use crate::common::fixture::Fixture;

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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/write/pinned.txt")
}

#[test]
fn images_have_the_same_bytes_as_before() {
    let fixture = Fixture::empty();
    let source = fixture.path("source.tar");
    fs::write(&source, archive()).unwrap();
    let mut found = String::new();
    for options in IMAGES {
        let image = fixture.path("image");
        ferofs!("build").args(FIXED).args(options).args([&source, &image]).success();
        ferofs!("check --deep", &image).success();
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
fn the_image_does_not_depend_on_date_directory_and_order() {
    let fixture =
        Fixture::new(&tree::Options { largest: 5_000_003, wide: 500, ..tree::Options::small() });
    let other = Fixture::empty();
    let mut names: Vec<_> =
        fs::read_dir(fixture.source()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    // The copy has other inode numbers, in another order, and other times.
    for path in names.iter().rev() {
        run!("cp -a --", path, other.source()).success();
    }
    let touch = "find . -depth -exec touch -h -d 2001-01-01 {} +";
    run!("sh -c", &format!("cd \"$0\" && {touch}"), other.source()).success();
    let owner = "chown --reference=\"$0\" \"$1\" && chmod --reference=\"$0\" \"$1\"";
    run!("sh -c", owner, fixture.source(), other.source()).success();
    for options in [
        "",
        "-zlz4 -Eztailpacking,dedupe",
        "-zzstd,3 -C65536 -Efragments",
        "-zlz4hc,9 -m4096 --zD",
        "--chunksize=4096",
        "--xattr-inode-digest -x 1",
    ] {
        let build = |fixture: &Fixture, workers: &str| {
            let fixed = "-T 1700000000 -U c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
            let image = fixture.path("image");
            mkfs(fixture, &format!("{fixed} --workers={workers} {options}"), &image).success();
            fs::read(image).unwrap()
        };
        assert!(build(&fixture, "1") == build(&other, "4"), "{options}");
    }
}
