//! Builds an image and extracts it: the result is the source. `models` has the same for random
//! trees in all forms.

use std::fs;
use std::path::Path;

use ferofs_tests::compare::compare;
use ferofs_tests::tar::{archive, file};
use ferofs_tests::{Content, Mount, Rng, ferofs, need, tree};

use crate::common::fixture::{Fixture, full, same};

#[test]
fn tails_can_be_inline_in_a_metabox() {
    let fixture = Fixture::empty();
    let text = Content::Text.bytes(39_077, &mut Rng::new(3));
    fixture.write("text", text);
    let image = fixture.build("image", ["-z", "zstd,22", "-E", "ztailpacking", "-m", "65536"]);
    ferofs!("check --deep", &image).success();
    fixture.assert_same_as_source(&fixture.extract(&image, "extracted"));
}

#[test]
fn large_xattrs_are_preserved() {
    require!(need::root());
    let fixture = Fixture::empty();
    let disk = fixture.directory("disk");
    let _mount = Mount::memory("tmpfs", "rw", &disk);
    let source = fixture.directory("disk/source");
    if !tree::create_large_xattrs(&source, 1).unwrap() {
        need::lacks("user xattrs on tmpfs (Linux 6.6)");
        return;
    }
    let image = fixture.path("image");
    ferofs!("build --compress lz4", &source, &image).success();
    ferofs!("check --deep", &image).success();
    let extracted = fixture.extract(&image, "disk/extracted");
    compare(&source, &extracted, &same()).unwrap().assert_same();
}

#[test]
fn owners_beyond_the_range_are_refused() {
    let fixture = Fixture::empty();
    fixture.write("file", "file");
    let tar = fixture.path("tar");
    fs::write(&tar, archive(&[file("file", b"file")])).unwrap();
    for (option, id) in [
        ("--uid-offset=4294967296", "4294967296"),
        ("--gid-offset=-2147483648", "-2147483648"),
        ("--force-uid=4294967295", "4294967295"),
    ] {
        for source in [fixture.source(), tar.clone()] {
            let image = fixture.path("image");
            let failed = ferofs!("build", option, &source, &image).failure(1);
            let named = failed.stderr.contains(source.to_str().unwrap());
            assert!(
                named && failed.stderr.contains(&format!("the options make {id} its")),
                "{}",
                failed.stderr
            );
            assert!(!image.exists());
        }
    }
}

#[test]
fn all_of_usr_is_preserved() {
    if !full() {
        return;
    }
    let fixture = Fixture::empty();
    let image = fixture.path("usr");
    ferofs!("build --compress lz4 /usr", &image).success();
    ferofs!("check --deep", &image).success();
    let extracted = fixture.extract(&image, "extracted");
    compare(Path::new("/usr"), &extracted, &same()).unwrap().assert_same();
}
