//! Patches of images of erofs-utils; changes that are killed or that fail at each system call; and data behind an image.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, Run, compare, ferofs, need, update};

use crate::common::erofs_utils::newest;
use crate::common::fixture::{Fixture, same};

/// A tree whose image has more than 2 MiB: without `48BIT`, a new root inode cannot be in the appended bytes.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for (content, len) in
        [(Content::Text, 900_000), (Content::Noise, 2_700_000), (Content::Mixed, 70_001)]
    {
        let bytes = content.bytes(len, &mut Rng::new(3));
        fs::write(fixture.source().join(format!("{content:?}")), bytes).unwrap();
    }
    for number in 0..100 {
        let bytes = Content::Text.bytes(number * 97, &mut Rng::new(number as u64));
        fs::write(fixture.source().join(format!("file{number}")), bytes).unwrap();
    }
    fixture
}

/// Changes the source, and returns a copy of the old tree.
fn change(fixture: &Fixture) -> std::path::PathBuf {
    let old = fixture.path("old-tree");
    update::copy(&fixture.source(), &old).unwrap();
    let source = fixture.source();
    let mut text = fs::read(source.join("Text")).unwrap();
    text[400_000] ^= 1;
    text.extend_from_slice(b"more");
    fs::write(source.join("Text"), text).unwrap();
    fs::remove_file(source.join("file7")).unwrap();
    fs::rename(source.join("file8"), source.join("moved")).unwrap();
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("dir/new"), Content::Mixed.bytes(90_000, &mut Rng::new(8))).unwrap();
    old
}

/// Rounds the times of `dir` and of all files below it down to seconds.
fn whole_seconds(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            whole_seconds(&path);
        } else {
            without_nanoseconds(&path);
        }
    }
    without_nanoseconds(dir);
}

fn without_nanoseconds(path: &Path) {
    let file = fs::File::open(path).unwrap();
    let since = file.metadata().unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(since.as_secs())).unwrap();
}

fn assert_shows(fixture: &Fixture, image: &Path, tree: &Path) {
    let dir = fixture.path("shown");
    fs::create_dir_all(&dir).unwrap();
    let mount = Mount::kernel(image, &dir).unwrap();
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
}

#[test]
fn images_of_erofs_utils_are_patched() {
    require!(need::kernel_erofs("patched images of erofs-utils through the kernel"));
    let programs = [
        newest("mkfs.erofs"),
        need::tool("mkfs.erofs", "patching images of this system's mkfs.erofs"),
    ];
    for mkfs in programs.into_iter().flatten() {
        for options in ["-x1", "-zlz4", "-zlz4hc -C65536 -Efragments", "-zlz4 -Elegacy-compress"] {
            let fixture = fixture();
            let (image, patch) = (fixture.path("image"), fixture.path("patch"));
            // mkfs.erofs 1.9 does not store nanoseconds if all files have the same second.
            whole_seconds(&fixture.source());
            Run::new(&mkfs)
                .args(options.split(' '))
                .args([&image, &fixture.source()])
                .run()
                .success();
            let base = fs::read(&image).unwrap();
            let old = change(&fixture);
            whole_seconds(&fixture.source());
            super::create(&image, &fixture.source(), &patch);
            ferofs().args(["patch", "show"]).arg(&patch).run().success();
            super::apply(&image, &patch);
            ferofs().args(["check", "--deep"]).arg(&image).run().success();
            assert_shows(&fixture, &image, &fixture.source());
            ferofs().args(["patch", "rollback"]).arg(&image).run().success();
            assert_shows(&fixture, &image, &old);
            // In block 0, only the sector of the superblock may change.
            let after = fs::read(&image).unwrap();
            assert!(
                after[..1024] == base[..1024] && after[1536..4096] == base[1536..4096],
                "{options}"
            );
        }
    }
}

#[test]
fn after_an_interrupted_change_any_patch_can_be_applied() {
    require!(need::kernel_erofs("interrupted patches through the kernel"));
    let Some(strace) = need::tool("strace", "interrupted patches") else { return };
    let fixture = fixture();
    let image = fixture.build("image", ["-z", "none"]);
    // The bytes that the next patches append are beyond the 16 bits of the root nid, so the root goes into a free slot.
    fs::write(fixture.source().join("more"), Content::Noise.bytes(2_500_000, &mut Rng::new(9)))
        .unwrap();
    ferofs().args(["patch", "add"]).args([&image, &fixture.source()]).run().success();
    let old = change(&fixture);
    let third = fixture.directory("third");
    fs::write(third.join("alone"), "alone").unwrap();
    let (patch, other) = (fixture.path("patch"), fixture.path("other"));
    for (new, patch) in [(&fixture.source(), &patch), (&third, &other)] {
        super::create(&image, new, patch);
    }
    let base = fs::read(&image).unwrap();
    let changed = fixture.path("changed");
    let applied = |image: &[u8], patch: &Path| {
        fs::write(&changed, image).unwrap();
        super::apply(&changed, patch);
        fs::read(&changed).unwrap()
    };
    let (new, new_other) = (applied(&base, &patch), applied(&base, &other));
    let mut interrupted = 0;
    for call in ["pwrite64", "fdatasync", "fallocate", "ftruncate"] {
        for fault in ["signal=KILL", "error=EIO", "error=ENOSPC"] {
            for number in 1.. {
                fs::write(&changed, &base).unwrap();
                let outcome = Run::new(&strace)
                    .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")])
                    .args(["-e", &format!("inject={call}:{fault}:when={number}")])
                    .arg(ferofs_path())
                    .args(["patch", "apply"])
                    .args([&changed, &patch])
                    .run();
                if outcome.code == 0 {
                    break;
                }
                interrupted += 1;
                let after = fs::read(&changed).unwrap();
                let what = format!("{call} {fault} {number}: {}", outcome.stderr);
                if fault != "signal=KILL" {
                    assert!(
                        outcome.stderr.contains("the image is as before") && after == base,
                        "{what}"
                    );
                }
                if after == new {
                    continue;
                }
                assert_shows(&fixture, &changed, &old);
                assert!(applied(&after, &other) == new_other, "{what}");
                assert!(applied(&after, &patch) == new, "{what}");
            }
        }
    }
    assert!(interrupted >= 15, "{interrupted}");
}

#[test]
fn data_behind_an_image_is_only_overwritten_with_grow_over() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "before").unwrap();
    let image = fixture.build("image", ["-z", "none"]);
    let end = fs::metadata(&image).unwrap().len();
    let upper = fixture.directory("upper");
    fs::write(upper.join("file"), "after").unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes.extend_from_slice(&[0; 100]);
    bytes.extend_from_slice(b"footer");
    fs::write(&image, &bytes).unwrap();
    let refused = ferofs().args(["patch", "add"]).args([&image, &upper]).run().failure(1);
    let position = format!("from byte {} on", end + 100);
    assert!(
        refused.stderr.contains(&position) && refused.stderr.contains("--grow-over"),
        "{}",
        refused.stderr
    );
    assert!(fs::read(&image).unwrap() == bytes);
    ferofs().args(["patch", "add", "--grow-over"]).args([&image, &upper]).run().success();
    let shown = ferofs().arg("cat").arg(&image).arg("/file").run().success();
    assert_eq!(shown.stdout, b"after");
    // `repair` restores a lost superblock.
    let patched = fs::read(&image).unwrap();
    let mut lost = patched.clone();
    lost[1024..1536].fill(0);
    fs::write(&image, &lost).unwrap();
    ferofs().args(["patch", "repair"]).arg(&image).run().success();
    assert!(fs::read(&image).unwrap() == patched);
}
