//! Images of 2^32 blocks or more, which need addresses of 48 bits. Blocks of 512 bytes reach them
//! with 2 TiB, which are reserved for the members of an archive and never written.
//!
//! The memory of a build for each name of the source, and sources that are not in the page cache.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use ferofs_tests::tar::Header;
use ferofs_tests::{Mount, Run, ferofs, ferofs_path, need};
use rustix::fs::{Advice, fadvise};

use crate::common::fixture::Fixture;

/// Bytes of each large member: three of them are more than 2^32 blocks of 512 bytes.
const LARGE: u64 = 800 << 30;

/// An archive that is mostly holes: large members, a small file after them with two names, and a
/// directory that has blocks of its own.
fn archive(dir: &Path) -> PathBuf {
    let path = dir.join("archive");
    let mut archive = File::create(&path).unwrap();
    let mut add = |header: Header, skipped: u64| {
        archive.write_all(&header.bytes()).unwrap();
        archive.seek(SeekFrom::Current(skipped as i64)).unwrap();
    };
    for name in ["large-1", "large-2", "large-3"] {
        // Sizes from 8 GiB on are binary.
        let size = [&[0x80, 0, 0, 0], &LARGE.to_be_bytes()[..]].concat();
        add(Header::new(name, b'0', 0).with(124, &size), LARGE);
    }
    add(Header::new("small", b'0', 1000), 1024);
    add(Header::new("link", b'1', 0).to("small"), 0);
    add(Header::new("directory/", b'5', 0).with(100, b"0000755\0"), 0);
    for number in 0..100 {
        add(Header::new(&format!("directory/a-rather-long-name-{number}"), b'0', 0), 0);
    }
    archive.write_all(&[0; 1024]).unwrap();
    path
}

fn mkfs(fixture: &Fixture, archive: &Path, options: &str) -> Run {
    let run =
        fixture.tool("mkfs.erofs").args([options, "-b512", "--tar=f", "--clean=rvsp", "--quiet"]);
    run.arg(fixture.path("image")).arg(archive)
}

/// The position in the image of the first extent of `path`.
fn position(image: &Path, path: &str) -> u64 {
    let inspected = ferofs!("inspect --json --path", path, image).success();
    let report = inspected.text();
    let (_, position) = report.split_once("\"position\":").unwrap();
    position.split(|next: char| !next.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Fails unless the mount shows all files, and `content` in the small one.
fn assert_shows(mount: &Mount, content: &[u8]) {
    let root = mount.path();
    for name in ["small", "link"] {
        assert!(fs::read(root.join(name)).unwrap() == content, "{name}");
        assert_eq!(fs::metadata(root.join(name)).unwrap().nlink(), 2);
    }
    assert_eq!(fs::read_dir(root.join("directory")).unwrap().count(), 100);
    let large = File::open(root.join("large-3")).unwrap();
    assert_eq!(large.metadata().unwrap().len(), LARGE);
    let mut end = [1; 100];
    large.read_exact_at(&mut end, LARGE - 100).unwrap();
    assert_eq!(end, [0; 100]);
}

#[test]
fn images_of_more_blocks_than_32_bits_can_count() {
    require!(need::kernel_erofs() && need::fuse());
    let fixture = Fixture::empty();
    let archive = archive(&fixture.path(""));
    let refused = mkfs(&fixture, &archive, "-Enoinline_data").run();
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    refused.says("2^32 blocks or more need wide addresses");

    mkfs(&fixture, &archive, "-E48bit,noinline_data").success();
    let image = fixture.path("image");
    assert!(fs::metadata(&image).unwrap().len() > 512 << 32);
    let content: Vec<u8> = (0..1000).map(|number| number as u8 | 1).collect();
    let at = position(&image, "small");
    assert!(at > 512 << 32, "{at}");
    File::options().write(true).open(&image).unwrap().write_all_at(&content, at).unwrap();
    ferofs!("check", &image).success();

    let shown = |content: &[u8]| {
        let dir = fixture.path("mounted");
        fs::create_dir_all(&dir).unwrap();
        for by_kernel in [true, false] {
            let mount = match by_kernel {
                true => Mount::kernel(&image, &dir),
                false => Mount::fuse(ferofs_path(), &image, &dir),
            };
            let mount = mount.unwrap();
            assert_shows(&mount, content);
            mount.unmount().unwrap();
        }
    };
    shown(&content);
    let extract = ferofs!("extract", &image, fixture.path("extracted"));
    extract.args(["--path", "/small"]).success();
    assert!(fs::read(fixture.path("extracted/small")).unwrap() == content);

    // Patches, and back.
    let upper = fixture.directory("upper");
    fs::write(upper.join("added"), b"added").unwrap();
    fs::create_dir(upper.join("directory")).unwrap();
    fs::write(upper.join("directory/also"), vec![7; 3000]).unwrap();
    ferofs!("patch add", &image, &upper).success();
    ferofs!("check", &image).success();
    let mount = Mount::kernel(&image, &fixture.path("mounted")).unwrap();
    assert_eq!(fs::read(mount.path().join("added")).unwrap(), b"added");
    assert_eq!(fs::read(mount.path().join("directory/also")).unwrap(), [7; 3000]);
    assert_eq!(fs::read_dir(mount.path().join("directory")).unwrap().count(), 101);
    mount.unmount().unwrap();
    ferofs!("patch rollback", &image).success();
    shown(&content);
}

#[test]
fn an_index_of_an_archive_above_2_tib_has_wide_addresses() {
    let fixture = Fixture::empty();
    let (archive, image) = (archive(&fixture.path("")), fixture.path("index"));
    let content: Vec<u8> = (0..1000).map(|number| number as u8 | 1).collect();
    let file = File::options().read(true).write(true).open(&archive).unwrap();
    // The headers of the three large members, and that of the small one.
    file.write_all_at(&content, 3 * (512 + LARGE) + 512).unwrap();
    let index = fixture.tool("mkfs.erofs").args(["--tar=i", "--quiet"]).args([&image, &archive]);
    index.success();
    let json = ferofs!("build --index-only --json", &archive, &image).success();
    assert!(json.text().contains(r#""linux":"6.15""#));
    let read = |path: &str| ferofs!("cat --device", &archive, &image, path).success();
    assert!(read("small").stdout == content);
    ferofs!("check --device", &archive, &image).success();
    // A small archive gives an index for Linux 5.16.
    let small = fixture.path("small.tar");
    fs::write(&small, ferofs_tests::tar::archive(&[ferofs_tests::tar::file("small", b"small")]))
        .unwrap();
    let json = ferofs!("build --index-only --json", &small, &image).success();
    assert!(json.text().contains(r#""linux":"6.4""#));
}

/// Bytes of memory that a build may take for each name. It needs about 230 with names of ten bytes;
/// the rest is for the steps in which tables grow.
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

/// The largest resident set of a command, in bytes, as long as it was seen: the peak that the
/// kernel reports at the end can be that of this process.
fn peak(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes =
            line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
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
        assert!(
            per_name <= PER_NAME,
            "{options:?}: {per_name} bytes a name: {few} and {many} bytes"
        );
    }
}

#[test]
fn a_source_on_disk_gives_the_image_of_one_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    many_files(&source, 3000);
    fs::write(source.join("large"), (0..9_000_000_u32).map(|n| (n / 77) as u8).collect::<Vec<_>>())
        .unwrap();
    File::create(source.join("sparse")).unwrap().set_len(5_000_000).unwrap();
    rustix::fs::sync();
    let build = |name: &str, evicts: bool| {
        if evicts {
            let small =
                (0..3000).map(|number| source.join(format!("{:03}/name-{number}", number / 1000)));
            for file in small.chain([source.join("large")]) {
                // The file system may keep the pages: then both builds read from memory.
                fadvise(File::open(file).unwrap(), 0, None, Advice::DontNeed).unwrap();
            }
        }
        let image = dir.path().join(name);
        let options = [
            "build",
            "--quiet",
            "-z",
            "lz4",
            "-U",
            "f0000000-0000-4000-8000-000000000000",
            "-T",
            "1",
        ];
        ferofs().args(options).arg(&source).arg(&image).success();
        fs::read(image).unwrap()
    };
    assert!(build("cold", true) == build("warm", false));
}
