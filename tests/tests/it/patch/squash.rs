//! `ferofs patch squash`: a new image without history, beside the old one or in its place.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, Run, ferofs, need};

use super::{apply, create};
use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::Fixture;

/// An image with two patches, the second of which removed a file of the first.
fn patched(fixture: &Fixture) -> PathBuf {
    for number in 0..40 {
        let bytes = Content::Text.bytes(3000 + number * 97, &mut Rng::new(number as u64));
        fs::write(fixture.source().join(format!("file{number}")), bytes).unwrap();
    }
    let image = fixture.build("image", ["-z", "lz4"]);
    let (extra, patch) = (fixture.source().join("extra"), fixture.path("patch"));
    for step in 0..2 {
        match step {
            0 => fs::write(&extra, Content::Noise.bytes(400_000, &mut Rng::new(1))).unwrap(),
            _ => fs::remove_file(&extra).unwrap(),
        }
        create(&image, &fixture.source(), &patch);
        apply(&image, &patch);
    }
    image
}

fn states(image: &Path) -> usize {
    let log = ferofs().args(["patch", "log", "--json"]).arg(image).run().success();
    String::from_utf8(log.stdout).unwrap().matches("\"number\"").count()
}

/// The names in the directory of the fixture: an interrupted command leaves no new one.
fn names(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn in_place_the_new_image_has_the_attributes_of_the_old_one() {
    let fixture = Fixture::empty();
    let image = patched(&fixture);
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = need::root("the owner of a squashed image");
    if is_root {
        std::os::unix::fs::chown(&image, Some(1234), Some(567)).unwrap();
    }
    let link = fixture.path("link");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let (before, after_names) = (fs::metadata(&image).unwrap(), names(&fixture));
    // Through a symbolic link, which stays.
    ferofs().args(["patch", "squash", "--in-place"]).arg(&link).run().success();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let after = fs::metadata(&image).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert!(after.ino() != before.ino() && after.len() + 390_000 < before.len(), "{}", after.len());
    assert_eq!((states(&image), names(&fixture)), (1, after_names));
    assert_valid(&image);
    ferofs().arg("diff").args([&image, &fixture.source()]).run().success();
    // Either a new image, or in place.
    assert_eq!(ferofs().args(["patch", "squash"]).arg(&image).run().code, 2);
    let both = ferofs().args(["patch", "squash", "--in-place"]).args([&image, &link]).run();
    assert_eq!(both.code, 2);
    // The image itself is no new image, by any of its names.
    let again = fixture.path("again");
    fs::hard_link(&image, &again).unwrap();
    let before = fs::metadata(&image).unwrap();
    for name in [&image, &link, &again] {
        let refused =
            ferofs().args(["patch", "squash", "--force"]).args([&image, name]).run().failure(1);
        assert!(refused.stderr.contains("--in-place"), "{}", refused.stderr);
        assert_eq!(fs::metadata(&image).unwrap().ino(), before.ino());
    }
}

#[test]
fn in_place_the_old_image_stays_if_anything_fails() {
    let fixture = Fixture::empty();
    let image = patched(&fixture);
    // Other permissions than those of a new file, so that the new image has to get them.
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    let (bytes, before) = (fs::read(&image).unwrap(), names(&fixture));
    let assert_old = |what: &str| {
        assert!(fs::read(&image).unwrap() == bytes, "{what}");
        assert_eq!(names(&fixture), before, "{what}");
    };
    if let Some(strace) = need::tool("strace", "failures of squash --in-place") {
        let mut failures = 0;
        for (call, fault) in [
            ("fsync", "error=EIO"),
            ("fsync", "signal=KILL"),
            ("pwrite64", "error=ENOSPC"),
            ("fchmod", "error=EPERM"),
        ] {
            for number in 1..=3 {
                let outcome = Run::new(&strace)
                    .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")])
                    .args(["-e", &format!("inject={call}:{fault}:when={number}")])
                    .arg(ferofs_path())
                    .args(["patch", "squash", "--in-place"])
                    .arg(&image)
                    .run();
                if outcome.code == 0 || fs::read(&image).unwrap() != bytes {
                    // Syncing the directory is the last step, and the new image is complete then.
                    assert!(number > 1, "{call} {fault} {number}");
                    assert_eq!(states(&image), 1, "{call} {fault} {number}");
                    fs::write(&image, &bytes).unwrap();
                    break;
                }
                failures += 1;
                assert_old(&format!("{call} {fault} {number}: {}", outcome.stderr));
            }
        }
        assert!(failures >= 4, "{failures}");
    }
    // A footer would be lost.
    fs::write(&image, [&bytes[..], b"footer"].concat()).unwrap();
    let refused = ferofs().args(["patch", "squash", "--in-place"]).arg(&image).run().failure(1);
    assert!(refused.stderr.contains("holds other data"), "{}", refused.stderr);
    assert!(fs::read(&image).unwrap().ends_with(b"footer"));
    fs::write(&image, &bytes).unwrap();
    require!(need::root("squash --in-place on a full disk and on a device"));
    let disk = fixture.directory("disk");
    Run::new("mount").args(["-t", "tmpfs", "-o", "size=700k", "tmpfs"]).arg(&disk).run().success();
    let mount = Mount::adopt(&disk);
    let full = disk.join("image");
    fs::copy(&image, &full).unwrap();
    ferofs().args(["patch", "squash", "--in-place"]).arg(&full).run().failure(1);
    assert!(fs::read(&full).unwrap() == bytes && fs::read_dir(&disk).unwrap().count() == 1);
    mount.unmount().unwrap();
    let Ok(setup) = Run::new("losetup").args(["--find", "--show"]).arg(&image).try_run() else {
        return;
    };
    if setup.code != 0 {
        need::lacks("squash --in-place of a device", "loop devices");
        return;
    }
    let device = PathBuf::from(String::from_utf8(setup.stdout).unwrap().trim());
    let refused = ferofs().args(["patch", "squash", "--in-place"]).arg(&device).run();
    Run::new("losetup").arg("--detach").arg(&device).run().success();
    assert!(
        refused.code == 1 && refused.stderr.contains("not a regular file"),
        "{}",
        refused.stderr
    );
    assert!(fs::read(&image).unwrap() == bytes);
}
