//! `ferofs patch squash`: a new image without history, beside the old one or in its place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ferofs_tests::{Content, LoopDevice, Mount, Rng, ferofs, need};

use super::{apply, create};
use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::{Fixture, chmod};

/// An image with two patches, the second of which removed a file of the first.
fn patched(fixture: &Fixture) -> PathBuf {
    for number in 0..40 {
        let bytes = Content::Text.bytes(3000 + number * 97, &mut Rng::new(number as u64));
        fixture.write(format!("file{number}"), bytes);
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
    let log = ferofs!("patch log --json", image).success();
    log.text().matches("\"number\"").count()
}

#[test]
fn in_place_the_new_image_has_the_attributes_of_the_old_one() {
    let fixture = Fixture::empty();
    let image = patched(&fixture);
    chmod(&image, 0o640);
    let is_root = need::root();
    if is_root {
        std::os::unix::fs::chown(&image, Some(1234), Some(567)).unwrap();
    }
    let link = fixture.path("link");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let (before, after_names) = (fs::metadata(&image).unwrap(), fixture.names());
    // Through a symbolic link, which stays.
    ferofs!("patch squash --in-place", &link).success();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let after = fs::metadata(&image).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert!(after.ino() != before.ino() && after.len() + 390_000 < before.len(), "{}", after.len());
    assert_eq!((states(&image), fixture.names()), (1, after_names));
    assert_valid(&image);
    ferofs!("diff", &image, fixture.source()).success();
    // Either a new image, or in place.
    assert_eq!(ferofs!("patch squash", &image).run().code, 2);
    let both = ferofs!("patch squash --in-place", &image, &link).run();
    assert_eq!(both.code, 2);
    // The image itself is not a new image, by any of its names.
    let again = fixture.path("again");
    fs::hard_link(&image, &again).unwrap();
    let before = fs::metadata(&image).unwrap();
    for name in [&image, &link, &again] {
        ferofs!("patch squash --force", &image, name).failure(1).says("--in-place");
        assert_eq!(fs::metadata(&image).unwrap().ino(), before.ino());
    }
}

#[test]
fn in_place_an_image_that_cannot_be_replaced_stays() {
    let fixture = Fixture::empty();
    let image = patched(&fixture);
    let bytes = fs::read(&image).unwrap();
    // A footer would be lost.
    fs::write(&image, [&bytes[..], b"footer"].concat()).unwrap();
    ferofs!("patch squash --in-place", &image).failure(1).says("holds other data");
    assert!(fs::read(&image).unwrap().ends_with(b"footer"));
    fs::write(&image, &bytes).unwrap();
    require!(need::root());
    let disk = fixture.directory("disk");
    let mount = Mount::memory("tmpfs", "size=700k", &disk);
    let full = disk.join("image");
    fs::copy(&image, &full).unwrap();
    ferofs!("patch squash --in-place", &full).failure(1);
    assert!(fs::read(&full).unwrap() == bytes && fs::read_dir(&disk).unwrap().count() == 1);
    mount.unmount().unwrap();
    let Some(device) = LoopDevice::attach(&image, &[]) else {
        return;
    };
    let refused = ferofs!("patch squash --in-place", &device).run();
    drop(device);
    refused.fails(1, "not a regular file");
    assert!(fs::read(&image).unwrap() == bytes);
}
