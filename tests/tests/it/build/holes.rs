//! Holes in compressed files: the image has the long runs of zeroes of its source as holes, whether or not the source reports them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, ferofs, need};
use rustix::fs::SeekFrom;

use crate::common::fixture::Fixture;

/// Extents with holes, and indexes with marks.
const SETTINGS: [&str; 9] = [
    "-z lz4 -E 48bit",
    "-z zstd -C 64K -E 48bit,fragments",
    "-z deflate -C 64K -E 48bit,dedupe",
    "-z lzma -C 64K -E 48bit -m 4K",
    "-z lz4 -E holes",
    "-z lz4hc -C 64K -E holes,ztailpacking",
    "-z zstd -C 64K -E holes,fragments,dedupe",
    "-z deflate -b 1024 -E holes",
    "-z deflate -C 1M -E holes",
];
/// The name of a file, the offset and the length of each part of its data, and its size.
type SparseFile = (&'static str, &'static [(u64, usize)], u64);

const FILES: [SparseFile; 6] = [
    ("middle", &[(0, 70_000), (11 << 20, 70_000)], 12 << 20),
    ("small", &[(5000, 3000), (100_000, 3000)], 103_000),
    ("end", &[(0, 100_000)], 9_000_000),
    ("start", &[(8 << 20, 100)], (8 << 20) + 100),
    ("blocks", &[(0, 1), (70 << 10, 1), (140 << 10, 4096), (210 << 10, 4097)], 300 << 10),
    ("empty", &[], 20 << 20),
];

fn write_source(dir: &Path, sparse: bool) {
    for (number, (name, data, size)) in FILES.iter().enumerate() {
        let file = File::create(dir.join(name)).unwrap();
        if sparse {
            file.set_len(*size).unwrap();
        } else {
            file.write_all_at(&vec![0; *size as usize], 0).unwrap();
        }
        for (at, len) in *data {
            // A part without zeroes, which could continue the runs.
            let bytes = Content::Text.bytes(*len, &mut Rng::new(number as u64 + at));
            file.write_all_at(&bytes, *at).unwrap();
        }
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    File::open(dir).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

fn build(fixture: &Fixture, name: &str, setting: &str, source: &Path) -> Vec<u8> {
    let words = ["-T0", "-U", "00000000-0000-0000-0000-000000000001", "--preset", "fast", "-q"];
    let image = fixture.path(name);
    ferofs()
        .arg("build")
        .args(words)
        .args(setting.split(' '))
        .args([source, &image])
        .run()
        .success();
    fs::read(image).unwrap()
}

/// Whether the data of each file is found, with at most a few blocks around it.
fn assert_sparse(tree: &Path, context: &str) {
    for (name, data, size) in FILES {
        let file = File::open(tree.join(name)).unwrap();
        let mut shown = Vec::new();
        let mut at = 0;
        while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
            at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
            shown.push((start, at));
        }
        let near = |(start, end): (u64, u64), (at, len): &(u64, usize)| {
            (at.saturating_sub(40_000)..=*at).contains(&start)
                && (at + *len as u64..=at + *len as u64 + 40_000).contains(&end)
        };
        let all = shown.len() == data.len()
            && shown.iter().zip(data).all(|(shown, data)| near(*shown, data));
        assert!(all, "{context}: {name} of {size} bytes: {shown:?}");
    }
}

#[test]
fn runs_of_zeroes_become_holes() {
    let fixture = Fixture::empty();
    write_source(&fixture.source(), true);
    let full = fixture.directory("full");
    write_source(&full, false);
    let archive = fixture.path("archive.tar");
    let names = FILES.map(|(name, ..)| name);
    let packed = Command::new("tar")
        .arg("-C")
        .arg(fixture.source())
        .arg("-Scf")
        .arg(&archive)
        .args(names)
        .status();
    assert!(packed.unwrap().success());
    for setting in SETTINGS {
        let image = build(&fixture, "image", setting, &fixture.source());
        assert!(
            build(&fixture, "full.erofs", setting, &full) == image,
            "{setting}: a source without holes"
        );
        let of_archive = build(&fixture, "archive.erofs", setting, &archive);
        assert_eq!(of_archive.len(), image.len(), "{setting}: an archive");
        let path = fixture.path("image");
        let checked = ferofs().args(["check", "--deep"]).arg(&path).run().success();
        assert_eq!(checked.stderr, "", "{setting}");
        assert!(image.len() < 1 << 20, "{setting}: {} bytes", image.len());
        let words: Vec<&str> = setting.split([' ', ',']).collect();
        let shows = !words.contains(&"fragments");
        if need::fuse("holes of compressed files in a FUSE mount") {
            let mount =
                Mount::fuse(ferofs_path(), &path, &fixture.directory(&format!("fuse{setting}")))
                    .unwrap();
            if shows {
                assert_sparse(mount.path(), setting);
            }
            fixture.assert_same_as_source(mount.path());
            mount.unmount().unwrap();
        }
        if need::kernel_erofs("holes of compressed files in the kernel") && !words.contains(&"1024")
        {
            let mount =
                Mount::kernel(&path, &fixture.directory(&format!("kernel{setting}"))).unwrap();
            if shows && words.contains(&"48bit") {
                assert_sparse(mount.path(), setting);
            }
            fixture.assert_same_as_source(mount.path());
            mount.unmount().unwrap();
        }
        // A new image of an image keeps the holes.
        let again = build(&fixture, "again", setting, &path);
        assert_eq!(again.len(), image.len(), "{setting}: the image as a source");
        let extracted = fixture.extract(&path, &format!("extracted{setting}"));
        assert_eq!(fs::metadata(extracted.join("empty")).unwrap().blocks(), 0);
    }
}

/// A long hole is one record, and is not read.
#[test]
fn a_file_of_a_tebibyte_is_built_at_once() {
    let fixture = Fixture::empty();
    let file = File::create(fixture.source().join("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&Content::Text.bytes(1 << 20, &mut Rng::new(1)), 1 << 39).unwrap();
    let image = build(&fixture, "image", "-z zstd -C 64K -E 48bit", &fixture.source());
    assert!(image.len() < 1 << 20, "{} bytes", image.len());
    ferofs().arg("check").arg(fixture.path("image")).run().success();
    let shown =
        ferofs().args(["inspect", "--path", "/sparse"]).arg(fixture.path("image")).run().success();
    let holes = String::from_utf8(shown.stdout).unwrap().matches("  hole\n").count();
    assert!((1024..1030).contains(&holes), "{holes}");
}
