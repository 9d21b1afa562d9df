//! `build --like`: images like earlier ones, with the kernel, with a seal, and with what does not go together.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use ferofs_tests::compare::compare;
use ferofs_tests::{Mount, ferofs, need, tree, update};

use crate::common::fixture::{Fixture, same};

const SETTINGS: &[&str] = &["-T", "1700000000", "-U", "clear"];

/// Blocks of `new` that `old` has nowhere, in percent.
fn new_blocks(old: &Path, new: &Path) -> usize {
    let (old, new) = (fs::read(old).unwrap(), fs::read(new).unwrap());
    let known: HashSet<&[u8]> = old.chunks(4096).collect();
    let blocks = new.chunks(4096);
    let count = blocks.len();
    blocks.filter(|block| !known.contains(block)).count() * 100 / count
}

#[test]
fn versions_of_a_tree_share_most_blocks() {
    for form in [
        "--preset default",
        "--preset android",
        "-z none",
        "-z zstd,3 -C 64K -E ^fragments",
        "-z deflate -C 32K -E 48bit,fragments",
        "--preset fast -z lzma,1 -E all-fragments",
    ] {
        let fixture = Fixture::new(&tree::Options::small());
        let options = || form.split(' ').chain(SETTINGS.iter().copied());
        let build = |name: &str, like: &[&str]| {
            let image = fixture.path(name);
            ferofs()
                .arg("build")
                .args(options())
                .args(like)
                .arg(fixture.source())
                .arg(&image)
                .run()
                .success();
            image
        };
        let mut old = build("image0", &[]);
        for version in 1..4 {
            update::update(&fixture.source(), version, 2).unwrap();
            let name = format!("image{version}");
            let like = ["--verify", "--like", old.to_str().unwrap()];
            let new = build(&name, &like);
            let again = build("again", &like);
            assert!(
                fs::read(&new).unwrap() == fs::read(again).unwrap(),
                "{form}: not the same bytes each time"
            );
            ferofs().args(["check", "--deep"]).arg(&new).run().success();
            let extracted = fixture.extract(&new, &format!("extracted{version}"));
            compare(&fixture.source(), &extracted, &same()).unwrap().assert_same();
            if need::kernel_erofs("images like earlier ones through the kernel") {
                let mounted =
                    Mount::kernel(&new, &fixture.directory(&format!("mounted{version}"))).unwrap();
                compare(&fixture.source(), mounted.path(), &same()).unwrap().assert_same();
            }
            let fresh = build("fresh", &[]);
            let size = |image: &Path| fs::metadata(image).unwrap().len();
            assert!(size(&new) <= size(&fresh) * 103 / 100 + 64 * 1024, "{form}: {}", size(&new));
            let (like, without) = (new_blocks(&old, &new), new_blocks(&old, &fresh));
            assert!(
                like <= without,
                "{form}, version {version}: {like} % of the blocks are new, {without} % without"
            );
            old = new;
        }
    }
}

#[test]
fn a_sealed_image_of_the_same_source_is_the_same() {
    let fixture = Fixture::new(&tree::Options::small());
    let build = |name: &str, like: &[&str]| {
        let options: Vec<&OsStr> =
            ["-z", "lz4"].iter().chain(SETTINGS).chain(like).map(OsStr::new).collect();
        fixture.build_sealed(name, &options)
    };
    let (old, root) = build("old", &[]);
    let like = ["--like", old.to_str().unwrap()];
    let (same, same_root) = build("same", &like);
    assert!(fs::read(&old).unwrap() == fs::read(&same).unwrap() && root == same_root);
    update::update(&fixture.source(), 1, 2).unwrap();
    let (new, root) = build("new", &like);
    ferofs().args(["check", "--deep", "--roothash", &root]).arg(&new).run().success();
}

#[test]
fn what_does_not_go_together_is_refused() {
    let fixture = Fixture::new(&tree::Options::small());
    let old = fixture.build("old", ["--compress", "lz4"]);
    let archive = fixture.path("no-image");
    let build = |options: &[&str], old: &Path, image: &Path| {
        ferofs()
            .arg("build")
            .args(options)
            .arg("--like")
            .arg(old)
            .arg(fixture.source())
            .arg(image)
            .run()
    };
    let new = fixture.path("new");
    let refused = |options: &[&str], message: &str| {
        let run = build(options, &old, &new);
        assert!(run.code != 0 && run.stderr.contains(message), "{options:?}: {}", run.stderr);
        assert!(!new.exists());
    };
    refused(&["-z", "none"], "the earlier image: is compressed (-z)");
    refused(&["-z", "zstd"], "the earlier image: has other algorithms");
    refused(&["-b", "16K"], "the earlier image: has another block size (-b)");
    refused(&["--chunk-size", "4096"], "cannot be used with");
    refused(&["--like-waste", "101"], "not a number of percent");
    let run = build(&["-z", "lz4"], &old, &old);
    assert!(run.failure(1).stderr.contains("is also an input"));
    fs::write(&archive, "no image").unwrap();
    let run = build(&["-z", "lz4"], &archive, &new);
    assert!(run.failure(1).stderr.contains("no-image: "));
}
