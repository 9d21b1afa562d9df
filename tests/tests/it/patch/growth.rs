//! Additions to images with `48BIT`: the metabox and the packed inode grow, so that new inodes and
//! new fragments are compressed together.
//!
//! The memory for applying that `ferofs patch show` states, compared with what applying takes.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::{Content, Rng, Run, ferofs, ferofs_path, need};

use crate::common::fixture::{Fixture, copy};

/// Writes files of one version below `root`, most of them in small directories, and one directory
/// of several blocks.
fn write_version(root: &Path, version: u64) {
    let mut rng = Rng::new(version);
    for number in 0..120 {
        let dir = root.join(format!("version-{version}/directory-{}", number % 30));
        fs::create_dir_all(&dir).unwrap();
        let kind = if number % 10 == 0 { Content::Noise } else { Content::Text };
        // Content that no other version has, in one file of four.
        let seed = if number % 4 == 0 { rng.next_u64() } else { number };
        fs::write(dir.join(format!("file-{number}")), kind.bytes(3000, &mut Rng::new(seed)))
            .unwrap();
    }
    let wide = root.join(format!("version-{version}/wide"));
    fs::create_dir_all(&wide).unwrap();
    for number in 0..300 {
        fs::write(wide.join(format!("a-name-of-some-length-{number}")), "").unwrap();
    }
}

/// The metabox grows by clusters that are placed to the byte, which touch one block more. Linux
/// could not read them if the superblock did not say so.
#[test]
fn lz4_clusters_of_a_patched_image_fit_into_the_buffer_of_linux() {
    for options in ["--preset fast -m 4096", "--preset android -m 4096", "-z lz4 -C 16K -m 16K"] {
        let fixture = Fixture::empty();
        let times = |start: u64| {
            for number in 0..1000 {
                let dir = fixture.source().join(format!("directory-{}", number / 20));
                fs::create_dir_all(&dir).unwrap();
                let mut rng = Rng::new(number);
                let mut word = || {
                    let bits = rng.next_u64();
                    char::from(b'a' + (bits % 26) as u8)
                        .to_string()
                        .repeat((bits >> 8) as usize % 8 + 1)
                };
                let text = (0..40 + number / 5).map(|_| word()).collect::<Vec<_>>().join(" ");
                let path = dir.join(format!("file-{number}"));
                fs::write(&path, text).unwrap();
                let time = UNIX_EPOCH + Duration::from_secs(start + 3 * number);
                fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
            }
        };
        times(1_600_000_000);
        let image = fixture.build("image", options.split(' '));
        let (added, patch) = (fixture.path("added"), fixture.path("patch"));
        fs::copy(&image, &added).unwrap();
        times(1_700_000_000);
        super::create(&image, &fixture.source(), &patch);
        super::apply(&image, &patch);
        ferofs!("patch add", &added, fixture.source()).success();
        for image in [&image, &added] {
            ferofs!("check --deep", image).success();
            ferofs!("diff", image, fixture.source()).success();
        }
    }
}

#[test]
fn versions_that_are_added_need_little_metadata() {
    let fixture = Fixture::empty();
    write_version(&fixture.source(), 0);
    let image = fixture.build("image", ["--preset", "backup"]);
    for version in 1..4_u64 {
        // The content of the first version, so that only metadata is added.
        let upper = fixture.directory(&format!("upper-{version}"));
        copy(&fixture.source().join("version-0"), &upper.join(format!("version-{version}")));
        let before = fs::metadata(&image).unwrap().len();
        ferofs!("patch add --loose-parents", &image, &upper).success();
        let growth = fs::metadata(&image).unwrap().len() - before;
        // 452 inodes with their names take more than 30,000 bytes without compression.
        assert!(growth <= 20_480, "{growth}");
    }
}

/// The first number of this name in the JSON text.
pub(super) fn number(json: &str, name: &str) -> u64 {
    let rest =
        json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}: no {name}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn the_stated_memory_is_enough_for_applying() {
    let Some(time) = need::tool("time") else { return };
    for options in [
        "-z none",
        "-z lz4",
        "-z lz4hc,12 -C 64K",
        "-z deflate,12 -C 64K",
        "-z lzma,6 -C 64K",
        "-z zstd,19 -C 128K -E fragments",
        "-z zstd,9 -C 64K -E 48bit -m 64K",
        "--preset backup",
    ] {
        let fixture = Fixture::empty();
        let (source, next) = (fixture.source(), fixture.directory("next"));
        for name in 0..6u64 {
            let mut bytes = Content::Mixed.bytes(2_000_000, &mut Rng::new(name));
            fs::write(source.join(format!("file{name}")), &bytes).unwrap();
            for at in (0..bytes.len()).step_by(70_000) {
                bytes[at] ^= 0x55;
            }
            fs::write(next.join(format!("file{name}")), &bytes).unwrap();
        }
        fs::write(next.join("new"), Content::Text.bytes(3_000_000, &mut Rng::new(77))).unwrap();
        let (image, patch, memory) = (
            fixture.build("image", options.split(' ')),
            fixture.path("patch"),
            fixture.path("memory"),
        );
        super::create(&image, &next, &patch);
        let shown = ferofs!("patch show --json", &patch).success().text();
        Run::new(&time)
            .args(["--format", "%M", "--output"])
            .arg(&memory)
            .arg(ferofs_path())
            .args(["patch", "apply"])
            .args([&image, &patch])
            .success();
        let peak = fs::read_to_string(&memory).unwrap().trim().parse::<u64>().unwrap() << 10;
        let bound = number(&shown, "memory");
        assert!(peak <= bound, "{options}: {peak} bytes, but {bound} are stated");
        assert!(bound < 3 * peak, "{options}: {peak} bytes, and {bound} are stated");
        // LZMA, and the largest pclusters with a high level of Zstandard, take more.
        if !options.contains("lzma") && !options.contains("backup") {
            assert!(bound < 64_000_000, "{options}: {bound}");
        }
        let text = ferofs!("patch show", &patch).success().text();
        assert!(text.contains("applying       takes up to"), "{text}");
    }
}
