//! Damaged images: truncated, zeroed, with flipped bits. Each command ends with a documented exit
//! code and, if that is not 0, with an error message; it never panics, hangs, or uses much memory.
//!
//! The images in tests/corrupt once showed a defect: every command now refuses them or reads them
//! safely.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use ferofs_tests::{Rng, ferofs, need, scratch_in_memory, tree};

use crate::common::fixture::{Fixture, full};
use crate::common::hostile::{assert_handled, command};
use crate::common::image_editor::ImageEditor;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut(usize),
    Zero(usize, usize),
    Ones(usize, usize),
    Flip(usize, u8),
}

impl Damage {
    fn apply(self, image: &[u8]) -> Vec<u8> {
        let mut image = image.to_vec();
        match self {
            Damage::Cut(len) => image.truncate(len),
            Damage::Zero(start, len) => image[start..][..len].fill(0),
            Damage::Ones(start, len) => image[start..][..len].fill(0xFF),
            Damage::Flip(at, bit) => image[at] ^= 1 << bit,
        }
        image
    }
}

/// Random damage of all kinds; most flipped bits are in the metadata.
fn damages(image: &[u8], bits: usize, seed: u64) -> Vec<Damage> {
    let mut rng = Rng::new(seed);
    let mut at = |bound: usize| rng.below(bound as u64) as usize;
    let blocks = image.len() / 4096;
    let mut damages = vec![
        Damage::Cut(0),
        Damage::Cut(1),
        Damage::Cut(1024),
        Damage::Cut(1151),
        Damage::Cut(1152),
    ];
    damages.extend((0..bits / 10).map(|_| Damage::Cut(at(image.len()))));
    damages.extend((0..bits / 10).map(|_| Damage::Zero(at(blocks) * 4096, 4096)));
    damages.extend((0..bits / 10).map(|_| Damage::Ones(at(image.len() - 8), 8)));
    damages.extend((1024..1152).map(|byte| Damage::Flip(byte, at(8) as u8)));
    damages.extend((0..bits).map(|n| {
        let bound = if n % 3 == 0 { image.len() } else { image.len().min(64 << 10) };
        Damage::Flip(at(bound), at(8) as u8)
    }));
    damages
}

#[test]
fn every_command_handles_damaged_images() {
    // Little data and much metadata, so that most damage affects metadata.
    let fixture = Fixture::new(&tree::Options {
        largest: 20_001,
        wide: 200,
        deep: 8,
        ..tree::Options::small()
    });
    fs::remove_dir_all(fixture.source().join("sparse")).unwrap();
    let bits = if full() { 3_000 } else { 200 };
    for (compression, checksum) in
        need::sample(&[("lz4", false), ("lz4", true), ("none", false), ("none", true)]).copied()
    {
        let image = fs::read(fixture.build("image", ["--compress", compression, "-T0"])).unwrap();
        let image = if checksum { image } else { without_checksum(image) };
        run_all_commands(&fixture, &image, &damages(&image, bits, checksum.into()));
    }
}

#[test]
fn check_finds_truncation_and_a_wrong_checksum() {
    let fixture = Fixture::small();
    let image = fs::read(fixture.build("image", ["--compress", "lz4"])).unwrap();
    let mut damages: Vec<_> =
        [1024, 1200, 2000, image.len() / 2, image.len() - 4096].map(Damage::Cut).to_vec();
    // The checksum covers the first block from byte 1024 on.
    damages.extend(
        [1024, 1028, 1036, 1060, 1100, 1150, 2000, 3000, 4095].map(|at| Damage::Flip(at, 3)),
    );
    for damage in damages {
        let damaged = fixture.path("damaged");
        fs::write(&damaged, damage.apply(&image)).unwrap();
        let outcome = command(&["check", "--deep"], &damaged, &[]);
        assert_ne!(outcome.code, 0, "{damage:?}: check finds nothing");
        assert_handled(&outcome, &format!("{damage:?}"));
    }
}

/// Removes the checksum feature, so that readers do not reject damage in the block of the
/// superblock at once.
fn without_checksum(mut image: Vec<u8>) -> Vec<u8> {
    image[1024 + 8] &= !1;
    image
}

fn run_all_commands(fixture: &Fixture, image: &[u8], damages: &[Damage]) {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let memory = scratch_in_memory();
    thread::scope(|scope| {
        for worker in 0..threads {
            let (next, memory) = (&next, &memory);
            scope.spawn(move || {
                let target = memory.path().join(format!("out-{worker}"));
                let damaged = fixture.path(&format!("damaged-{worker}"));
                while let Some(damage) = damages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    fs::write(&damaged, damage.apply(image)).unwrap();
                    let context =
                        |name: &str| format!("{name}, {damage:?} of {} bytes", image.len());
                    assert_handled(
                        &command(&["check", "--deep"], &damaged, &[]),
                        &context("check"),
                    );
                    assert_handled(&command(&["ls"], &damaged, &[]), &context("ls"));
                    assert_handled(
                        &command(&["cat"], &damaged, &["files/mixed/65537".as_ref()]),
                        &context("cat"),
                    );
                    assert_handled(
                        &command(&["extract"], &damaged, &[&target]),
                        &context("extract"),
                    );
                    if target.exists() {
                        fs::remove_dir_all(&target).unwrap();
                    }
                }
            });
        }
    });
}

/// Without the feature bit LZ4_0PADDING, Linux expects the data at the first byte of a cluster.
#[test]
fn padding_without_its_feature_bit_is_found() {
    let fixture = Fixture::empty();
    fixture.write("file", "words and more words, ".repeat(9000));
    let image = fixture.build("image", ["-z", "lz4", "-C", "16384", "-E", "nosbcrc"]);
    ferofs!("check --deep", &image).success();
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024 + 0x50] &= !1;
    fs::write(&image, bytes).unwrap();
    let outcome = ferofs!("check --deep --json", &image).run();
    assert_eq!(outcome.code, 4);
    assert!(outcome.text().contains(r#""rule":"decode""#));
}

#[test]
fn regression_images_are_handled() {
    let fixture = Fixture::empty();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corrupt");
    let images: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let images: Vec<_> =
        images.into_iter().filter(|path| path.extension().is_some_and(|e| e == "erofs")).collect();
    assert!(!images.is_empty());
    for image in images {
        let name = image.file_stem().unwrap().to_string_lossy().into_owned();
        for args in [&["check"][..], &["ls"]] {
            assert_handled(&command(args, &image, &[]), &format!("{args:?} {name}"));
        }
        let target = fixture.path(&name);
        assert_handled(&command(&["extract"], &image, &[&target]), &format!("extract {name}"));
        assert_ne!(command(&["check"], &image, &[]).code, 0, "{name}: check finds nothing");
    }
}

#[test]
fn an_image_that_is_cut_off_gives_one_line() {
    let fixture = Fixture::empty();
    for number in 0..300 {
        let dir = fixture.source().join((number % 7).to_string());
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join(number.to_string()), format!("{number} ").repeat(3000)).unwrap();
    }
    for options in [&["-z", "none"][..], &["-z", "lz4"], &["--preset", "small"]] {
        let image = fixture.build("image", options);
        let len = fs::metadata(&image).unwrap().len();
        let file = fs::File::options().write(true).open(&image).unwrap();
        for have in [len - 1, len / 8 * 7, len / 2] {
            file.set_len(have).unwrap();
            let told = ferofs!("check --deep", &image).failure(4).stderr;
            let expected = format!("truncated: the file has {have} bytes, and should have {len}");
            assert!(told.contains(&expected) && told.lines().count() <= 2, "{options:?}: {told}");
        }
        drop(file);
        fs::remove_file(&image).unwrap();
    }
}

/// Programs would cut such a name, or take it for a path.
#[test]
fn names_that_no_file_can_have_are_errors() {
    let fixture = Fixture::empty();
    for dir in ["nul", "slash"] {
        fs::create_dir(fixture.source().join(dir)).unwrap();
        for file in ["aaa", "b-b", "ccc"] {
            fs::write(fixture.source().join(dir).join(file), file).unwrap();
        }
    }
    let mut image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "none"])).unwrap());
    for (name, wrong) in [("nul/b-b", 0), ("slash/b-b", b'/')] {
        let at = image.find(name).name.start + 1;
        image.bytes[at] = wrong;
    }
    let path = fixture.path("wrong");
    fs::write(&path, &image.bytes).unwrap();
    let target = fixture.path("target");
    let commands: [(&[&str], &[&Path]); 8] = [
        (&["ls"], &[Path::new("/nul"), Path::new("/slash")]),
        (&["ls", "-R"], &[]),
        (&["ls", "-l"], &[Path::new("/nul"), Path::new("/slash")]),
        (&["cat", "--sums"], &[]),
        (&["du", "-a"], &[]),
        (&["inspect"], &[]),
        (&["extract"], &[&target]),
        (&["check"], &[]),
    ];
    for (args, paths) in commands {
        let outcome = command(args, &path, paths);
        assert_eq!(outcome.code, if args == ["check"] { 4 } else { 1 }, "{args:?}");
        for dir in ["nul", "slash"] {
            let message = format!("{dir}: directory: invalid name (nid ");
            outcome.says(&message);
        }
        let listed = String::from_utf8_lossy(&outcome.stdout);
        match args {
            ["check"] | ["extract"] => {}
            _ => assert_eq!(listed.matches("ccc").count(), 2, "{args:?}: {listed}"),
        }
    }
    for dir in ["nul", "slash"] {
        assert_eq!(fs::read(target.join(dir).join("ccc")).unwrap(), b"ccc");
    }
    // A comparison must not skip the damaged directories because both images have them as the same
    // inodes.
    let outcome = ferofs().arg("diff").args([&path, &fixture.path("image")]).run();
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
}
