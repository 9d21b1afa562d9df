//! Patches of files with holes: the result is the new file, and holes are not read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ferofs_tests::{Content, Mount, Rng, compare, ferofs, need};

use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::{Fixture, copy, same};

fn patch(image: &Path, tree: &Path, patch: &Path) {
    super::create(image, tree, patch);
    super::apply(image, patch);
}

fn write(file: &Path, content: Content, len: usize, at: u64, seed: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(&content.bytes(len, &mut Rng::new(seed)), at).unwrap();
}

/// Writes data or zeroes into a file, and sometimes changes its length.
fn change(file: &Path, rng: &mut Rng) {
    for _ in 0..1 + rng.below(5) {
        let (len, at) = (1 + rng.below(200_000), rng.below(9 << 20));
        match rng.below(4) {
            0 => {
                let file = File::options().write(true).open(file).unwrap();
                file.write_all_at(&vec![0; len as usize], at).unwrap();
            }
            1 => {
                // A hole that begins and ends within blocks.
                let bytes = fs::read(file).unwrap();
                let (at, end) =
                    ((at as usize).min(bytes.len()), ((at + 9 * len) as usize).min(bytes.len()));
                let new = File::create(file).unwrap();
                new.set_len(bytes.len() as u64).unwrap();
                new.write_all_at(&bytes[..at], 0).unwrap();
                new.write_all_at(&bytes[end..], end as u64).unwrap();
            }
            _ => write(file, Content::Mixed, len as usize, at, rng.next_u64()),
        }
    }
    if rng.below(3) == 0 {
        File::options()
            .write(true)
            .open(file)
            .unwrap()
            .set_len((5 << 20) + rng.below(9 << 20))
            .unwrap();
    }
}

#[test]
fn holes_may_come_and_go() {
    require!(need::kernel_erofs());
    for (number, options) in
        ["-z none", "-z none -b 512", "-z none --chunk-size 16K", "-z lz4 -C 16K"]
            .iter()
            .enumerate()
    {
        let fixture = Fixture::empty();
        let mut rng = Rng::new(number as u64);
        let file = fixture.source().join("file");
        File::create(&file).unwrap().set_len(10 << 20).unwrap();
        (0..4).for_each(|_| change(&file, &mut rng));
        let (image, next, mounted) = (
            fixture.build("image", options.split(' ')),
            fixture.path("next"),
            fixture.directory("mounted"),
        );
        copy(&fixture.source(), &next);
        for _ in 0..3 {
            change(&next.join("file"), &mut rng);
            patch(&image, &next, &fixture.path("patch"));
            assert_valid(&image);
            let mount = Mount::kernel(&image, &mounted).unwrap();
            compare(&next, mount.path(), &same()).unwrap().assert_same();
            mount.unmount().unwrap();
            let extracted = fixture.extract(&image, "extracted");
            compare(&next, &extracted, &same()).unwrap().assert_same();
            fs::remove_dir_all(extracted).unwrap();
        }
    }
}

/// Files that moved and hold only zeroes differ in nothing but their sizes.
#[test]
fn files_of_zeroes_are_told_apart() {
    for options in ["-z none", "-z lz4"] {
        let fixture = Fixture::empty();
        let next = fixture.directory("next");
        for (dir, moved) in [(fixture.source(), "before"), (next.clone(), "after")] {
            for len in [0, 1, 100, 4096, 4097, 200_000, (4 << 20) + 1, 5 << 20] {
                File::create(dir.join(format!("{moved}-hole-{len}")))
                    .unwrap()
                    .set_len(len)
                    .unwrap();
                fs::write(dir.join(format!("{moved}-zeroes-{len}")), vec![0; len as usize])
                    .unwrap();
            }
        }
        let image = fixture.build("image", options.split(' '));
        patch(&image, &next, &fixture.path("patch"));
        assert_valid(&image);
        let extracted = fixture.extract(&image, "extracted");
        compare(&next, &extracted, &same()).unwrap().assert_same();
    }
}

/// Reading the holes of these files would take hours.
#[test]
fn long_runs_fit_into_the_pieces_of_a_patch() {
    let fixture = Fixture::empty();
    fixture.write("file", "old");
    let old = fixture.build("image", ["-z", "lz4"]);
    let next = fixture.directory("next");
    // A cluster of 1 MiB could hold all of it.
    fs::write(next.join("run"), [vec![7; 11 << 20], b"end".to_vec()].concat()).unwrap();
    for method in ["zstd,3", "lzma"] {
        let (image, update) = (fixture.path(method), fixture.path("update"));
        fs::copy(&old, &image).unwrap();
        let create = ferofs!("patch create -z", method, "-C", "1M", "--force");
        create.args([&image, &next]).arg("-o").arg(&update).success();
        super::apply(&image, &update);
        assert_valid(&image);
        let extracted = fixture.extract(&image, &format!("extracted by {method}"));
        compare(&next, &extracted, &same()).unwrap().assert_same();
    }
}

#[test]
fn terabytes_of_holes_are_not_read() {
    const SIZE: u64 = 12 << 40;
    require!(need::kernel_erofs());
    let data = [(0, 1), (5 << 40, 2), ((7 << 40) + 12_345, 3)];
    for options in ["-z none", "-z lz4"] {
        let fixture = Fixture::empty();
        let next = fixture.directory("next");
        for (dir, moved) in [(fixture.source(), "before"), (next.clone(), "after")] {
            for name in ["file", moved] {
                File::create(dir.join(name)).unwrap().set_len(SIZE).unwrap();
                for (at, seed) in data {
                    write(
                        &dir.join(name),
                        Content::Noise,
                        300_000,
                        at + seed * u64::from(name == "file"),
                        seed,
                    );
                }
            }
        }
        write(&next.join("file"), Content::Text, 10_000, 9 << 40, 4);
        let image = fixture.build("image", options.split(' '));
        patch(&image, &next, &fixture.path("patch"));
        // fsck.erofs would write the holes.
        ferofs!("check", &image).success();
        assert!(fs::metadata(fixture.path("patch")).unwrap().len() < 100_000, "{options}");
        let mount = Mount::kernel(&image, &fixture.directory("mounted")).unwrap();
        for name in ["file", "after"] {
            let (source, shown) = (next.join(name), mount.path().join(name));
            let (source, shown) = (File::open(source).unwrap(), File::open(shown).unwrap());
            for at in data.iter().map(|(at, _)| *at).chain([9 << 40, SIZE - 350_000]) {
                let at = at.saturating_sub(50_000);
                let (mut expected, mut found) = (vec![0; 400_000], vec![0; 400_000]);
                source.read_exact_at(&mut expected, at).unwrap();
                shown.read_exact_at(&mut found, at).unwrap();
                assert!(found == expected, "{options}: {name} at {at}");
            }
        }
        mount.unmount().unwrap();
    }
}
