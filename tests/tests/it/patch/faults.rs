//! Patches of images of erofs-utils, and data after an image. The campaign `faults` lets each
//! system call of a change fail.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::{Mount, Run, compare, ferofs, ferofs_path, need, run};

use super::{change, copied, fixture};
use crate::common::erofs_utils::newest;
use crate::common::fixture::{Fixture, same};

/// A size or a digest that cannot be read must not become a wrong one.
#[test]
fn with_few_descriptors_an_image_is_changed_or_as_before() {
    let fixture = fixture();
    let old = fixture.build("old", ["-zlz4", "-T0"]);
    change(&fixture, 7);
    fixture.build("new", ["-zlz4", "-T0"]);
    fs::write(fixture.directory("more").join("file"), "more").unwrap();
    fs::copy(&old, fixture.path("patched")).unwrap();
    for command in [
        "patch create @old @new -o @patch",
        "delta create @old @new -o @delta",
        "patch apply @patched @patch",
    ] {
        fixture.line(command).success();
    }
    let image = fixture.path("image");
    for (command, before) in [
        ("patch apply @image @patch", "old"),
        ("patch rollback @image", "patched"),
        ("patch add @image @more", "old"),
        ("delta apply @old @delta @image", "old"),
    ] {
        let before = fs::read(fixture.path(before)).unwrap();
        for limit in (6..24).chain([64]) {
            fs::write(&image, &before).unwrap();
            let script = format!("ulimit -n {limit}; exec \"$@\"");
            let run = run!("sh -c", script, "sh", ferofs_path());
            let outcome = run.args(fixture.words(command)).run();
            if outcome.code == 0 {
                continue;
            }
            let is_clear = outcome.code == 1 && outcome.stderr.contains("raise the limit: ulimit");
            let is_same = fs::read(&image).unwrap() == before;
            assert!(limit < 24 && is_clear && is_same, "{command}, {limit}: {outcome:?}");
        }
    }
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
    require!(need::kernel_erofs());
    let programs = [newest("mkfs.erofs"), need::tool("mkfs.erofs")];
    for mkfs in programs.into_iter().flatten() {
        for options in ["-x1", "-zlz4", "-zlz4hc -C65536 -Efragments", "-zlz4 -Elegacy-compress"] {
            let fixture = fixture();
            let (image, patch) = (fixture.path("image"), fixture.path("patch"));
            // mkfs.erofs 1.9 does not store nanoseconds if all files have the same second.
            whole_seconds(&fixture.source());
            Run::new(&mkfs).args(options.split(' ')).args([&image, &fixture.source()]).success();
            let base = fs::read(&image).unwrap();
            let old = copied(&fixture, "old-tree");
            change(&fixture, 7);
            whole_seconds(&fixture.source());
            super::create(&image, &fixture.source(), &patch);
            ferofs!("patch show", &patch).success();
            super::apply(&image, &patch);
            ferofs!("check --deep", &image).success();
            assert_shows(&fixture, &image, &fixture.source());
            ferofs!("patch rollback", &image).success();
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
fn data_after_an_image_is_only_overwritten_with_grow_over() {
    let fixture = Fixture::empty();
    fixture.write("file", "before");
    let image = fixture.build("image", ["-z", "none"]);
    let end = fs::metadata(&image).unwrap().len();
    let upper = fixture.directory("upper");
    fs::write(upper.join("file"), "after").unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes.extend_from_slice(&[0; 100]);
    bytes.extend_from_slice(b"footer");
    fs::write(&image, &bytes).unwrap();
    let refused = ferofs!("patch add", &image, &upper).failure(1);
    let position = format!("from byte {} on", end + 100);
    assert!(
        refused.stderr.contains(&position) && refused.stderr.contains("--grow-over"),
        "{}",
        refused.stderr
    );
    assert!(fs::read(&image).unwrap() == bytes);
    ferofs!("patch add --grow-over", &image, &upper).success();
    let shown = ferofs!("cat", &image, "/file").success();
    assert_eq!(shown.stdout, b"after");
    // `repair` restores a lost superblock.
    let patched = fs::read(&image).unwrap();
    let mut lost = patched.clone();
    lost[1024..1536].fill(0);
    fs::write(&image, &lost).unwrap();
    ferofs!("patch repair", &image).success();
    assert!(fs::read(&image).unwrap() == patched);
}
