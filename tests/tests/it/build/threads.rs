//! The same tree gives the same image, bit for bit, with any number of workers.

use std::fs;

use ferofs_tests::{Run, tree};

use crate::common::fixture::{COMPRESSIONS, Fixture};
use crate::common::mkfs::mkfs;

const FIXED: [&str; 4] = ["-T", "1700000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71"];

#[test]
fn the_image_does_not_depend_on_the_number_of_workers() {
    // The largest files have several segments.
    let fixture = Fixture::new(&tree::Options {
        largest: 20_000_003,
        wide: 2_000,
        deep: 50,
        ..tree::Options::default()
    });
    for compression in COMPRESSIONS {
        let build = |workers: &str| {
            let name = format!("{compression}-{workers}");
            let image =
                fixture.build(&name, ["--compress", compression, "--workers", workers].iter().chain(&FIXED));
            fs::read(image).unwrap()
        };
        let one = build("1");
        assert!(build("2") == one, "{compression}: two workers give another image than one");
        assert!(build("5") == one, "{compression}: five workers give another image than one");
    }
}

#[test]
fn the_image_does_not_depend_on_workers() {
    let fixture = Fixture::new(&tree::Options { wide: 3_000, deep: 50, ..tree::Options::default() });
    let metadata = ["-z", "lz4", "-m", "4096", "--compress-directories"];
    let settings: [&[&str]; 4] = [
        &["-z", "lz4"],
        &["-z", "zstd,9", "-C", "64K", "-E", "fragments"],
        &["-z", "lz4", "-E", "ztailpacking,dedupe"],
        &metadata,
    ];
    for (number, settings) in settings.into_iter().enumerate() {
        let build = |more: &[&str]| {
            let name = format!("workers-{number}-{}", more.len());
            fs::read(fixture.build(&name, settings.iter().chain(more).chain(&FIXED))).unwrap()
        };
        let image = build(&[]);
        assert!(
            build(&["--workers", "1", "--quiet"]) == image,
            "{settings:?}: another image with one worker"
        );
    }
}

#[test]
fn another_copy_of_the_tree_gives_the_same_image() {
    let options = tree::Options { wide: 500, ..tree::Options::small() };
    let build = |fixture: &Fixture| {
        fs::read(fixture.build("image", ["--compress", "lz4"].iter().chain(&FIXED))).unwrap()
    };
    let image = build(&Fixture::new(&options));
    assert!(build(&Fixture::new(&options)) == image);
    assert!(
        build(&Fixture::new(&tree::Options { seed: 2, ..options })) != image,
        "the test must be able to fail"
    );
}

#[test]
fn the_image_does_not_depend_on_date_directory_and_order() {
    let fixture = Fixture::new(&tree::Options { largest: 5_000_003, wide: 500, ..tree::Options::small() });
    // Holes are part of the source, and copies may have other holes.
    fs::remove_dir_all(fixture.source().join("sparse")).unwrap();
    let other = Fixture::empty();
    let mut names: Vec<_> =
        fs::read_dir(fixture.source()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    // The copy has other inode numbers, in another order, and other times.
    for path in names.iter().rev() {
        Run::new("cp").args(["-a", "--"]).arg(path).arg(other.source()).run().success();
    }
    let touch = "find . -depth -exec touch -h -d 2001-01-01 {} +";
    Run::new("sh").args(["-c", &format!("cd \"$0\" && {touch}")]).arg(other.source()).run().success();
    let owner = "chown --reference=\"$0\" \"$1\" && chmod --reference=\"$0\" \"$1\"";
    Run::new("sh").args(["-c", owner]).args([fixture.source(), other.source()]).run().success();
    for options in ["", "-zlz4", "-zlz4hc,9", "--chunksize=4096", "--xattr-inode-digest -x 1"] {
        let build = |fixture: &Fixture, workers: &str| {
            let fixed = "-T 1700000000 -U c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
            let image = fixture.path("image");
            mkfs(fixture, &format!("{fixed} --workers={workers} {options}"), &image).success();
            fs::read(image).unwrap()
        };
        assert!(build(&fixture, "1") == build(&other, "4"), "{options}");
    }
}
