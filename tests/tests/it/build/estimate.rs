//! `ferofs build --estimate`: what it prints.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, ferofs, need};

use crate::common::fixture::Fixture;

/// The values of `field` in the JSON text.
fn values<'a>(json: &'a str, field: &str) -> Vec<&'a str> {
    let start = format!("\"{field}\":");
    json.split(&start)
        .skip(1)
        .map(|rest| rest.split([',', '}']).next().unwrap().trim_matches('"'))
        .collect()
}

/// Compares the estimates for the source with the images of all presets: sizes may be off by this part, and two blocks.
fn assert_near_images(fixture: &Fixture, most: f64) {
    let estimate =
        ferofs().args(["build", "--estimate", "--json"]).arg(fixture.source()).run().success();
    let json = String::from_utf8(estimate.stdout).unwrap();
    let (sizes, linux) = (values(&json, "bytes_out"), values(&json, "linux"));
    for ((preset, size), linux) in values(&json, "name").into_iter().zip(sizes).zip(linux) {
        let image = fixture.path(preset);
        let build = ferofs()
            .args(["build", "--json", "--preset", preset])
            .arg(fixture.source())
            .arg(&image);
        let summary = String::from_utf8(build.run().success().stdout).unwrap();
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
        fs::write(fixture.source().join(format!("file{number}")), words).unwrap();
    }
    let entries = || fs::read_dir(fixture.path("")).unwrap().count();
    let before = entries();
    let run = |args: &[&str]| {
        let estimate = ferofs().args(["build", "--estimate"]).args(args).arg(fixture.source());
        String::from_utf8(estimate.run().success().stdout).unwrap()
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
    let chunks =
        ferofs().args(["build", "--estimate", "--chunk-size=64K"]).arg(fixture.source()).run();
    assert_eq!(chunks.code, 2, "{}", chunks.stderr);
}

#[test]
fn a_small_tree_with_one_long_file_is_estimated_whole() {
    let fixture = Fixture::empty();
    // Half of it can be compressed.
    let mut long = vec![0; 600_000];
    Rng::new(7).fill(&mut long);
    long.extend_from_slice(&b"words that occur again and again\n".repeat(18_000));
    fs::write(fixture.source().join("long"), long).unwrap();
    for number in 0..40 {
        let words = format!("line {number} of a short file\n").repeat(20 + number);
        fs::write(fixture.source().join(format!("short{number}")), words).unwrap();
    }
    assert_near_images(&fixture, 0.03);
}

#[test]
fn versions_of_files_are_estimated_as_one_with_the_preset_for_them() {
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
    let estimate =
        ferofs().args(["build", "--estimate", "--json"]).arg(fixture.source()).run().success();
    let json = String::from_utf8(estimate.stdout).unwrap();
    let sizes = values(&json, "bytes_out").into_iter().map(|size| size.parse::<u64>().unwrap());
    let of = |preset: &str| {
        let mut all = values(&json, "name").into_iter().zip(sizes.clone());
        all.find(|(name, _)| *name == preset).unwrap().1
    };
    assert!(of("backup") < of("small") && of("small") * 2 < of("default"), "{json}");
    let image = fixture.path("image");
    ferofs()
        .args(["build", "--preset", "backup"])
        .arg(fixture.source())
        .arg(&image)
        .run()
        .success();
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
        fs::write(fixture.source().join(format!("snapshot{number}")), &snapshot).unwrap();
        fs::write(fixture.source().join(format!("copy{number}")), &snapshot[5..]).unwrap();
    }
    let copy = fs::read(fixture.source().join("copy0")).unwrap();
    (1..6).for_each(|number| {
        fs::write(fixture.source().join(format!("copy{number}")), &copy).unwrap()
    });
    // Content of which 93 % are zeroes is hard to estimate, but most of the image are the snapshots.
    assert_near_images(&fixture, 0.15);
}

#[test]
fn unreadable_files_end_an_estimate_as_they_end_a_build() {
    require!(need::root("files that their reader may not read"));
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("open"), "words ".repeat(10_000)).unwrap();
    for number in 0..3 {
        let path = fixture.source().join(format!("closed{number}"));
        fs::write(&path, vec![number; 6 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    for dir in [fixture.path(""), fixture.source()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Others may not reach the program where it is.
    let program = fixture.path("ferofs");
    fs::copy(ferofs_path(), &program).unwrap();
    let run = |options: &[&str]| {
        let nobody =
            Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        let estimate = nobody.arg(&program).args(["build", "--estimate", "--json"]);
        estimate.args(options).arg(fixture.source()).run()
    };
    let refused = run(&[]);
    assert!(
        refused.code == 1 && refused.stderr.contains("closed0: open: Permission denied"),
        "{}",
        refused.stderr
    );
    let left_out = run(&["--skip-unreadable"]).success();
    let json = String::from_utf8(left_out.stdout).unwrap();
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
    let run = |source: &str| ferofs().args(["build", "--estimate"]).arg(fixture.path(source)).run();
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
