//! `ferofs build --estimate`: what it prints.

use std::fs;
use std::io::Write;

use ferofs_tests::{Rng, ferofs, need};

use crate::common::fixture::{Fixture, chmod};

/// The values of `field` in the JSON text.
fn values<'a>(json: &'a str, field: &str) -> Vec<&'a str> {
    let start = format!("\"{field}\":");
    json.split(&start)
        .skip(1)
        .map(|rest| rest.split([',', '}']).next().unwrap().trim_matches('"'))
        .collect()
}

/// Compares the estimates for the source with the images of all presets: sizes may be off by this
/// part, and two blocks.
fn assert_near_images(fixture: &Fixture, most: f64) {
    let estimate = ferofs!("build --estimate --json", fixture.source()).success();
    let json = estimate.text();
    let (sizes, linux) = (values(&json, "bytes_out"), values(&json, "linux"));
    for ((preset, size), linux) in values(&json, "name").into_iter().zip(sizes).zip(linux) {
        let image = fixture.path(preset);
        let build = ferofs!("build --json --preset", preset, fixture.source(), &image);
        let summary = build.success().text();
        assert_eq!(values(&summary, "linux"), [linux], "{preset}");
        let (estimated, built) =
            (size.parse::<f64>().unwrap(), fs::metadata(&image).unwrap().len() as f64);
        assert!(
            (estimated - built).abs() <= most * built + 8192.0,
            "{preset}: {estimated} and {built}"
        );
    }
}

#[test]
fn each_preset_and_the_given_options_are_estimated() {
    let fixture = Fixture::empty();
    for number in 0..50 {
        let words =
            format!("line {number} of a file that compresses well\n").repeat(400 + number * 20);
        fixture.write(format!("file{number}"), words);
    }
    let entries = || fs::read_dir(fixture.path("")).unwrap().count();
    let before = entries();
    let run = |args: &[&str]| {
        let estimate = ferofs!("build --estimate").args(args).arg(fixture.source());
        estimate.success().text()
    };
    let json = run(&["--json", "-z", "zstd,3"]);
    assert_eq!(values(&json, "files"), ["50"]);
    let names = ["default", "fast", "small", "smallest", "android", "backup", "as given"];
    assert_eq!(values(&json, "name"), names);
    let bytes_in: u64 = values(&json, "bytes_in")[0].parse().unwrap();
    let sizes: Vec<u64> =
        values(&json, "bytes_out").iter().map(|size| size.parse().unwrap()).collect();
    assert!(sizes.iter().all(|size| (4096..bytes_in).contains(size)), "{json}");
    let table = run(&[]);
    for word in ["preset", "small", "6.10", "Estimated in", "█"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!table.contains("as given"), "{table}");
    assert_eq!(entries(), before, "an estimate writes nothing");
    let chunks = ferofs!("build --estimate --chunk-size=64K", fixture.source()).run();
    assert_eq!(chunks.code, 2, "{}", chunks.stderr);
}

#[test]
fn a_small_tree_with_one_long_file_is_estimated_whole() {
    let fixture = Fixture::empty();
    // Half of it can be compressed.
    let mut long = vec![0; 600_000];
    Rng::new(7).fill(&mut long);
    long.extend_from_slice(&b"words that occur again and again\n".repeat(18_000));
    fixture.write("long", long);
    for number in 0..40 {
        let words = format!("line {number} of a short file\n").repeat(20 + number);
        fixture.write(format!("short{number}"), words);
    }
    assert_near_images(&fixture, 0.03);
}

#[test]
fn versions_of_files_are_estimated_as_one() {
    let fixture = Fixture::empty();
    // Nothing repeats but in versions of a file, of which pclusters of backup hold more.
    for file in 0..60 {
        let mut bytes = vec![0; 40_000];
        Rng::new(file).fill(&mut bytes);
        bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
        for version in 0..6 {
            bytes[20_000] = version;
            let dir = fixture.source().join(format!("version{version}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file{file}")), &bytes).unwrap();
        }
    }
    let estimate = ferofs!("build --estimate --json", fixture.source()).success();
    let json = estimate.text();
    let sizes = values(&json, "bytes_out").into_iter().map(|size| size.parse::<u64>().unwrap());
    let of = |preset: &str| {
        let mut all = values(&json, "name").into_iter().zip(sizes.clone());
        all.find(|(name, _)| *name == preset).unwrap().1
    };
    assert!(of("backup") < of("small") && of("small") * 2 < of("default"), "{json}");
    let image = fixture.path("image");
    ferofs!("build --preset backup", fixture.source(), &image).success();
    let built = fs::metadata(&image).unwrap().len();
    assert!(of("backup").abs_diff(built) < built / 5, "{} and {built}", of("backup"));
}

#[test]
fn files_with_holes_or_small_differences_are_estimated() {
    let fixture = Fixture::empty();
    let mut rng = Rng::new(3);
    for number in 0..200 {
        let mut file = fs::File::create(fixture.source().join(format!("sparse{number}"))).unwrap();
        let mut data = vec![0; 9000];
        rng.fill(&mut data);
        file.set_len(64 << 10 << (number % 5)).unwrap();
        file.write_all(&data).unwrap();
    }
    // Snapshots of one file, and real copies of another one.
    let mut snapshot = vec![0; 3 << 20];
    rng.fill(&mut snapshot);
    for number in 0..6 {
        snapshot[1 << 20] = number;
        fixture.write(format!("snapshot{number}"), &snapshot);
        fixture.write(format!("copy{number}"), &snapshot[5..]);
    }
    let copy = fs::read(fixture.source().join("copy0")).unwrap();
    (1..6).for_each(|number| fixture.write(format!("copy{number}"), &copy));
    // Content of which 93 % are zeroes is hard to estimate, but most of the image are the
    // snapshots.
    assert_near_images(&fixture, 0.15);
}

#[test]
fn unreadable_files_end_an_estimate_as_they_end_a_build() {
    require!(need::root());
    let fixture = Fixture::empty();
    fixture.write("open", "words ".repeat(10_000));
    for number in 0..3 {
        let path = fixture.source().join(format!("closed{number}"));
        fs::write(&path, vec![number; 6 << 20]).unwrap();
        chmod(&path, 0o000);
    }
    for dir in [fixture.path(""), fixture.source()] {
        chmod(dir, 0o755);
    }
    let run = |options: &[&str]| {
        let estimate = fixture.as_user().args(["build", "--estimate", "--json"]);
        estimate.args(options).arg(fixture.source()).run()
    };
    let refused = run(&[]);
    refused.fails(1, "closed0: open: Permission denied");
    let left_out = run(&["--skip-unreadable"]).success();
    let json = left_out.text();
    assert_eq!(
        (values(&json, "bytes_in")[0], left_out.stderr.matches("left out: ").count()),
        ("60000", 3)
    );
    let seconds = values(&json, "processor_seconds");
    assert!(seconds.iter().all(|seconds| seconds.parse::<f64>().unwrap() < 2.0), "{json}");
}

#[test]
fn sources_that_cannot_be_read_give_an_error() {
    let fixture = Fixture::empty();
    let run = |source: &str| ferofs!("build --estimate", fixture.path(source)).run();
    let missing = run("missing");
    assert!(missing.code == 1 && missing.stderr.lines().count() == 1, "{}", missing.stderr);
    fs::write(fixture.path("cut.tar"), [b'x'; 700]).unwrap();
    let cut = run("cut.tar");
    assert!(cut.code == 1 && cut.stderr.lines().count() == 1, "{}", cut.stderr);
}

#[test]
fn files_with_large_holes_need_the_linux_version_of_chunks() {
    let fixture = Fixture::empty();
    let mut sparse = fs::File::create(fixture.source().join("sparse")).unwrap();
    sparse.write_all(&b"the start of a long file\n".repeat(2_000)).unwrap();
    sparse.set_len(1 << 30).unwrap();
    assert_near_images(&fixture, 1.0);
}
