//! The memory of a build for each name of the source, and sources that are not in the page cache.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use ferofs_tests::ferofs;
use ferofs_tests::run::ferofs_path;
use rustix::fs::{Advice, fadvise};

/// Bytes of memory that a build may take for each name. It needs about 230 with names of ten bytes; the rest is for the steps in which tables
/// grow.
const PER_NAME: u64 = 300;
const FEW: usize = 30_000;
const MANY: usize = 130_000;

fn many_files(dir: &Path, count: usize) {
    for number in 0..count {
        let dir = dir.join(format!("{:03}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir_all(&dir).unwrap();
        }
        // Pairs of files are equal, and most are of a size that others have.
        fs::write(dir.join(format!("name-{number}")), format!("{}", number / 2)).unwrap();
    }
}

/// The largest resident set of a command, in bytes, as long as it was seen: the peak that the kernel reports at the end can be that of this
/// process.
fn peak(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return peak;
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_per_name_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let peak_of = |count: usize, options: &[&str]| {
        let source = dir.path().join(count.to_string());
        if !source.exists() {
            many_files(&source, count);
        }
        let image = dir.path().join("image");
        peak(
            Command::new(ferofs_path())
                .args(["build", "--quiet", "--workers", "2"])
                .args(options)
                .args([&source, &image]),
        )
    };
    for options in [&[][..], &["-z", "lz4", "-E", "all-fragments"]] {
        let (few, many) = (peak_of(FEW, options), peak_of(MANY, options));
        assert!(few > 0, "the memory is not known");
        let per_name = many.saturating_sub(few) / (MANY - FEW) as u64;
        assert!(per_name <= PER_NAME, "{options:?}: {per_name} bytes a name: {few} and {many} bytes");
    }
}

#[test]
fn a_source_on_disk_gives_the_image_of_one_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    many_files(&source, 3000);
    fs::write(source.join("large"), (0..9_000_000_u32).map(|n| (n / 77) as u8).collect::<Vec<_>>()).unwrap();
    File::create(source.join("sparse")).unwrap().set_len(5_000_000).unwrap();
    rustix::fs::sync();
    let build = |name: &str, evicts: bool| {
        if evicts {
            let small = (0..3000).map(|number| source.join(format!("{:03}/name-{number}", number / 1000)));
            for file in small.chain([source.join("large")]) {
                // The file system may keep the pages: then both builds read from memory.
                fadvise(File::open(file).unwrap(), 0, None, Advice::DontNeed).unwrap();
            }
        }
        let image = dir.path().join(name);
        let options =
            ["build", "--quiet", "-z", "lz4", "-U", "f0000000-0000-4000-8000-000000000000", "-T", "1"];
        ferofs().args(options).arg(&source).arg(&image).run().success();
        fs::read(image).unwrap()
    };
    assert!(build("cold", true) == build("warm", false));
}
