//! Images for updates grow little: `ferofs build --for-updates`.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::{Content, Rng, ferofs};

use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::Fixture;

/// The number of files.
const FILES: u64 = 1000;

/// Gives each file of `tree` its own time.
fn touch(tree: &Path, start: u64) {
    for (number, entry) in fs::read_dir(tree).unwrap().enumerate() {
        let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(start + 3 * number as u64)).unwrap();
    }
}

/// The bytes that `image` grows by until it shows the fixture's tree.
fn growth(fixture: &Fixture, image: &Path) -> u64 {
    let patch = fixture.path("patch");
    let before = fs::metadata(image).unwrap().len();
    super::create(image, &fixture.source(), &patch);
    super::apply(image, &patch);
    assert_valid(image);
    ferofs!("diff", image, fixture.source()).success();
    fs::metadata(image).unwrap().len() - before
}

/// Images whose metabox the patch continues: new inodes and small directories are compressed
/// together.
#[test]
fn with_new_times_a_metabox_grows_by_few_bytes_a_name() {
    for options in [
        "-z lz4 --for-updates -E 48bit -m 64K --compress-directories",
        "-z zstd,9 -C 64K --for-updates -E 48bit -m 64K --compress-directories",
        "--preset backup",
    ] {
        let fixture = Fixture::empty();
        // Directories as in a tree of sources.
        for number in 0..FILES {
            let dir = fixture.source().join(format!("directory{}", number / 20));
            fs::create_dir_all(&dir).unwrap();
            let bytes = Content::Text.bytes(300 + number as usize * 3, &mut Rng::new(number));
            fs::write(dir.join(format!("file{number}")), bytes).unwrap();
        }
        touch_all(&fixture.source(), 1_600_000_000);
        let image = fixture.build("image", options.split(' '));
        touch_all(&fixture.source(), 1_700_000_000);
        let grown = growth(&fixture, &image);
        assert!(grown <= 40 * FILES, "{options}: {grown} bytes");
        let patch = fs::metadata(fixture.path("patch")).unwrap().len();
        assert!(patch <= 8 * FILES, "{options}: a patch of {patch} bytes");
    }
}

/// Gives each file in the directories of `tree` its own time.
fn touch_all(tree: &Path, start: u64) {
    for (number, entry) in fs::read_dir(tree).unwrap().enumerate() {
        touch(&entry.unwrap().path(), start + 1_000_003 * number as u64);
    }
}

#[test]
fn with_new_times_an_image_for_updates_grows_by_metadata_only() {
    for (options, most) in [
        ("-z none", 130),
        ("-z lz4", 150),
        ("-z zstd -C 64K", 150),
        ("--preset fast -z zstd -C 64K", 150),
    ] {
        let fixture = Fixture::empty();
        for number in 0..FILES {
            let bytes = Content::Text.bytes(300 + number as usize * 3, &mut Rng::new(number));
            fixture.write(format!("file{number}"), bytes);
        }
        let build = |name: &str, more: &str| {
            touch(&fixture.source(), 1_600_000_000);
            let all = options.split(' ').chain(more.split(' ').filter(|option| !option.is_empty()));
            fixture.build(name, all)
        };
        let usual = build("usual", "");
        touch(&fixture.source(), 1_700_000_000);
        let usual = growth(&fixture, &usual);
        let image = build("image", "--for-updates");
        touch(&fixture.source(), 1_700_000_000);
        let grown = growth(&fixture, &image);
        assert!(grown < most * FILES, "{options}: {grown} bytes");
        assert!(3 * grown < usual, "{options}: {grown} and {usual}");
        // What -E says wins: the image is as without the option.
        let (given, same) = match options {
            "-z none" => ("inline_data", ""),
            "--preset balanced" => ("^fragments,ztailpacking", ""),
            _ => ("^fragments", ""),
        };
        let given = build(
            "given",
            &format!("-U 8e9a2c3b-4f4e-4a53-9c22-8b6ef2a7c001 --for-updates -E {given}"),
        );
        let same = build("same", &format!("-U 8e9a2c3b-4f4e-4a53-9c22-8b6ef2a7c001 {same}"));
        assert!(fs::read(&given).unwrap().len() == fs::read(&same).unwrap().len(), "{options}");
    }
}
