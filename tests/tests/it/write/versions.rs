//! Several versions of a tree in one image: `--versions`, `--order`, `--compress-large` and the
//! preset `backup`. Their pclusters decode to more than those of other images: Linux and FUSE must
//! show all bytes.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use ferofs_tests::{Mount, Rng, compare, ferofs, need, tree};

use crate::common::fixture::{Fixture, same};

/// Three versions of a tree with one large file, in directories below the source of the result.
fn versions() -> (Fixture, Vec<PathBuf>) {
    let fixture = Fixture::empty();
    let mut directories = Vec::new();
    let mut large = Vec::new();
    // 30 MB that compress by about 20: one pcluster of 1 MiB decodes to 12 MiB, Linux's limit.
    let mut rng = Rng::new(7);
    for _ in 0..30 {
        let mut page = vec![0; 50_000];
        rng.fill(&mut page);
        for _ in 0..20 {
            large.extend_from_slice(&page);
        }
    }
    for name in ["first", "second", "2026-11-24"] {
        let directory = fixture.source().join(name);
        fs::create_dir_all(&directory).unwrap();
        tree::create(&directory, &tree::Options::small()).unwrap();
        large[name.len() * 1_000_000] ^= 1;
        fs::write(directory.join("large"), &large).unwrap();
        fs::write(directory.join("changed"), name.repeat(3000)).unwrap();
        directories.push(directory);
    }
    (fixture, directories)
}

#[test]
fn each_directory_has_its_name_and_all_bytes() {
    let (fixture, directories) = versions();
    let sources = || {
        directories.iter().zip(["v1", "v2", "v3"]).map(|(directory, name)| {
            let mut source = OsString::from(format!("{name}="));
            source.push(directory);
            source
        })
    };
    for (number, form) in [
        "--preset backup",
        "--preset backup -z lz4hc,9 --order auto",
        "-z deflate -C 1M -E 48bit,all-fragments --order similar",
        "-z lzma,1 -C 1M -E 48bit,dedupe,fragments --order similar",
        "-z zstd -C 1M -E all-fragments --compress-large lzma,0 --order tree",
    ]
    .into_iter()
    .enumerate()
    {
        let image = fixture.path(&format!("image{number}"));
        let form = form.split_whitespace();
        ferofs!("build").args(form).arg("--versions").args(sources()).arg(&image).success();
        ferofs!("check --deep", &image).success();
        let extracted = fixture.extract(&image, &format!("extracted{number}"));
        let compared = |root: &std::path::Path| {
            for (directory, name) in directories.iter().zip(["v1", "v2", "v3"]) {
                compare(directory, &root.join(name), &same()).unwrap().assert_same();
            }
        };
        compared(&extracted);
        fs::remove_dir_all(&extracted).unwrap();
        if need::kernel_erofs() {
            let mounted =
                Mount::kernel(&image, &fixture.directory(&format!("mounted{number}"))).unwrap();
            compared(mounted.path());
        }
    }
}

#[test]
fn versions_take_little_more_space_than_one() {
    let (fixture, directories) = versions();
    let size = |name: &str, sources: &[PathBuf]| {
        let image = fixture.path(name);
        let build = ferofs!("build --preset backup -z zstd,3 --versions");
        build.args(sources).arg(&image).success();
        fs::metadata(&image).unwrap().len()
    };
    let one = size("one", &directories[..1]);
    // Large files are encoded alone: their first version alone would be shared only if a pcluster
    // were equal.
    fs::remove_file(directories[1].join("large")).unwrap();
    fs::remove_file(directories[2].join("large")).unwrap();
    let three = size("three", &directories);
    assert!(three < one + one / 2, "three versions take {three} bytes, one {one}");
}

#[test]
fn wrong_versions_are_refused() {
    let (fixture, directories) = versions();
    let image = fixture.path("image");
    for (sources, reason, code) in [
        (vec![directories[0].clone(), directories[0].clone()], "two sources have the same name", 2),
        (vec!["=/".into(), directories[0].clone()], "a name is empty", 2),
        (vec![PathBuf::from("/")], "has no name", 1),
    ] {
        let failed = ferofs!("build --versions").args(sources).arg(&image).failure(code);
        failed.says(reason);
        assert!(!image.exists());
    }
}
