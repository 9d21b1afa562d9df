//! Holes in compressed files: the image has the long runs of zeroes of its source as holes, whether
//! or not the source reports them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use ferofs_tests::{Content, Mount, Rng, ferofs, ferofs_path, need, run};
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
    ferofs!("build").args(words).args(setting.split(' ')).args([source, &image]).success();
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

/// Fails unless the mount has the source, and the holes if it can show them.
fn assert_shown(fixture: &Fixture, mount: Mount, shows: bool, context: &str) {
    if shows {
        assert_sparse(mount.path(), context);
    }
    fixture.assert_same_as_source(mount.path());
    mount.unmount().unwrap();
}

#[test]
fn runs_of_zeroes_become_holes() {
    let fixture = Fixture::empty();
    write_source(&fixture.source(), true);
    for setting in SETTINGS {
        let image = build(&fixture, "image", setting, &fixture.source());
        let path = fixture.path("image");
        let checked = ferofs!("check --deep", &path).success();
        assert_eq!(checked.stderr, "", "{setting}");
        assert!(image.len() < 1 << 20, "{setting}: {} bytes", image.len());
        let words: Vec<&str> = setting.split([' ', ',']).collect();
        let shows = !words.contains(&"fragments");
        if need::fuse() {
            let dir = fixture.directory(&format!("fuse{setting}"));
            assert_shown(
                &fixture,
                Mount::fuse(ferofs_path(), &path, &dir).unwrap(),
                shows,
                setting,
            );
        }
        if need::kernel_erofs() && !words.contains(&"1024") {
            let dir = fixture.directory(&format!("kernel{setting}"));
            let shows = shows && words.contains(&"48bit");
            assert_shown(&fixture, Mount::kernel(&path, &dir).unwrap(), shows, setting);
        }
        // A new image of an image keeps the holes.
        let again = build(&fixture, "again", setting, &path);
        assert_eq!(again.len(), image.len(), "{setting}: the image as a source");
        let extracted = fixture.extract(&path, &format!("extracted{setting}"));
        assert_eq!(fs::metadata(extracted.join("empty")).unwrap().blocks(), 0);
    }
}

/// Only bytes and metadata decide the image: sharing, chunks and holes do not follow from the
/// blocks that a source reports.
#[test]
fn equal_trees_with_other_holes_give_equal_images() {
    let fixture = Fixture::empty();
    let full = fixture.directory("full");
    for (dir, sparse) in [(&fixture.source(), true), (&full, false)] {
        write_source(dir, sparse);
        // Copies, of which some lack blocks of zeroes, and files with enough holes for chunks.
        for (name, copies, size) in
            [("small", 4, 103_000), ("middle", 2, 12 << 20), ("large", 2, 260 << 20)]
        {
            for number in 0..copies {
                let file = File::create(dir.join(format!("{name}{number}"))).unwrap();
                file.set_len(size).unwrap();
                if !sparse {
                    let zeroes = vec![0; 1 << 20];
                    (0..size.div_ceil(1 << 20)).for_each(|part| {
                        let len = (size - (part << 20)).min(1 << 20) as usize;
                        file.write_all_at(&zeroes[..len], part << 20).unwrap();
                    });
                }
                file.write_all_at(&Content::Text.bytes(90_000, &mut Rng::new(size)), 0).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
        }
        File::open(dir).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let mut sources = vec![fixture.source(), fixture.path("full.tar"), fixture.path("sparse.tar")];
    for (archive, dir, options) in [(1, &full, "-cf"), (2, &fixture.source(), "-Scf")] {
        let tar = run!("tar --sort=name -C", dir, options, &sources[archive]);
        tar.arg(".").success();
    }
    build(&fixture, "mounted", "-z lz4 -E 48bit", &full);
    sources.push(fixture.path("mounted"));
    let mut mounts = Vec::new();
    if need::fuse() {
        mounts.push(Mount::fuse(ferofs_path(), &sources[3], &fixture.directory("fuse")).unwrap());
    }
    if need::kernel_erofs() {
        mounts.push(Mount::kernel(&sources[3], &fixture.directory("kernel")).unwrap());
    }
    sources.extend(mounts.iter().map(|mount| mount.path().to_owned()));
    let more = ["-z lz4", "-z zstd -E dedupe", "-z none", "--chunk-size 4096"];
    for setting in SETTINGS.iter().step_by(2).chain(&more) {
        let image = build(&fixture, "image", setting, &full);
        assert!(image.len() < 3 << 20, "{setting}: {} bytes", image.len());
        for source in &sources {
            let other = build(&fixture, "other", setting, source);
            assert!(
                other == image,
                "{setting}: {}: {} and {}",
                source.display(),
                other.len(),
                image.len()
            );
        }
    }
    for mount in mounts {
        mount.unmount().unwrap();
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
    ferofs!("check", fixture.path("image")).success();
    let shown = ferofs!("inspect --path /sparse", fixture.path("image")).success();
    let holes = shown.text().matches("  hole\n").count();
    assert!((1024..1030).contains(&holes), "{holes}");
}
