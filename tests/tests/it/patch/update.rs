//! Patches that are refused, from pipes, and with options; a patch that fails does not change the
//! image. `models` has the trees that patched images show.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ferofs_tests::{Content, LoopDevice, Mount, Rng, ferofs, need};

use super::{apply, change, create, fixture};
use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::{Fixture, chmod};

#[test]
fn an_image_at_an_offset_is_not_patched_and_told() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let build = ferofs!("build -z none --offset 8K", fixture.source(), image.clone());
    build.success();
    let patch = fixture.path("patch");
    for words in [
        &["log"][..],
        &["rollback"],
        &["squash", "--in-place"],
        &["create", "-o", patch.to_str().unwrap()],
    ] {
        let mut command = ferofs!("patch").args(words).arg(&image);
        if words[0] == "create" {
            command = command.arg(fixture.source());
        }
        let told = command.failure(1).stderr;
        assert!(told.contains("starts at the first byte of its file"), "{words:?}: {told}");
    }
    ferofs!("patch add", image, fixture.source())
        .failure(1)
        .says("starts at the first byte of its file");
}

#[test]
fn a_patch_that_does_not_fit_is_refused() {
    let fixture = fixture();
    let image = fixture.build("image", ["-z", "lz4"]);
    change(&fixture, 9);
    let patch = fixture.path("patch");
    create(&image, &fixture.source(), &patch);
    let (base, bytes) = (fs::read(&image).unwrap(), fs::read(&patch).unwrap());
    let refused = |image: &Path, patch: &Path, message: &str| {
        let before = fs::read(image).unwrap();
        ferofs!("patch apply", image, patch).failure(1).says(message);
        assert!(fs::read(image).unwrap() == before);
    };
    let (odd, other) = (fixture.path("odd"), fixture.path("other"));
    // A damaged patch, a truncated one, and a file that is not a patch.
    for at in (0..bytes.len()).step_by(bytes.len() / 20) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&odd, damaged).unwrap();
        refused(&image, &odd, "odd: ");
    }
    fs::write(&odd, &bytes[..bytes.len() / 2]).unwrap();
    refused(&image, &odd, "the file should have");
    fs::write(&odd, b"something else").unwrap();
    refused(&image, &odd, "not a patch");
    // Another image, and the right image with one changed byte.
    let stranger = fixture.build("stranger", ["-z", "lz4"]);
    refused(&stranger, &patch, "for another image");
    for at in [0, 1023, 4096, base.len() / 2, base.len() - 1] {
        let mut changed = base.clone();
        changed[at] ^= 1;
        fs::write(&other, changed).unwrap();
        refused(&other, &patch, "changed");
    }
    // The right image, cut off.
    fs::write(&other, &base[..base.len() - 4096]).unwrap();
    refused(&other, &patch, "it was cut off, or is another image");
    // A patch makes a seal beside the image wrong.
    let seal = fixture.path("image.verity");
    fs::write(&seal, "").unwrap();
    let apply_with =
        |option: &[&str]| ferofs!("patch apply").args(option).args([&image, &patch]).run();
    apply_with(&["--strict"]).failure(1).says("image.verity: is a seal");
    assert!(fs::read(&image).unwrap() == base);
    fs::write(&other, &base).unwrap();
    assert!(apply_with(&["--quiet"]).success().stderr.contains("image.verity: is a seal"));
    fs::remove_file(&seal).unwrap();
    fs::rename(&other, &image).unwrap();
    // Applied twice, and applied after another patch.
    apply(&image, &patch);
    refused(&image, &patch, "applied already");
    change(&fixture, 10);
    fs::remove_file(&odd).unwrap();
    create(&image, &fixture.source(), &odd);
    apply(&image, &odd);
    refused(&image, &patch, "applied already");
    ferofs!("patch rollback --to 0", &image).success();
    refused(&image, &odd, "state");
    for args in [["patch", "rollback", "--to=77"], ["patch", "rollback", "--to=3"]] {
        ferofs().args(args).arg(&image).failure(1);
    }
    // Both were rolled back, so both are applied again, one after the other, and from one file.
    apply(&image, &patch);
    refused(&image, &patch, "applied already");
    ferofs!("patch rollback --to 0", &image).success();
    let both = fixture.path("both");
    fs::write(&both, [fs::read(&patch).unwrap(), fs::read(&odd).unwrap()].concat()).unwrap();
    let again = ferofs!("patch apply --json", &image, &both).success();
    assert!(again.text().contains("\"patches\":2"));
    let differences = ferofs!("diff", &image, fixture.source()).success();
    assert_eq!(differences.stdout, b"");
    ferofs!("patch rollback", &stranger).failure(1);
}

#[test]
fn a_patch_can_be_portable_and_come_from_a_pipe() {
    for (options, has_metabox) in [
        ("-z lz4 -C 16K", false),
        ("-z zstd -C 64K", false),
        ("-z lzma -C 64K", false),
        ("-z zstd -C 64K -E 48bit -m 64K", true),
    ] {
        let fixture = fixture();
        let image = fixture.build("image", options.split(' '));
        change(&fixture, 4);
        let [usual, portable, other] =
            ["usual", "portable", "other"].map(|name| fixture.path(name));
        fs::copy(&image, &other).unwrap();
        let create = |options: &[&str], patch: &Path| {
            let create = ferofs!("patch create -T 5").args(options);
            create.args([&image, &fixture.source()]).arg("-o").arg(patch).success();
        };
        create(&[], &usual);
        create(&["--portable"], &portable);
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(size(&usual) < size(&portable), "{options}");
        ferofs!("patch show", &portable).success();
        let pipe = fs::File::open(&usual).unwrap();
        ferofs!("patch apply", &image, "-").input(pipe).success();
        apply(&other, &portable);
        if has_metabox {
            // A portable patch does not continue the metabox, whose bytes it would have to carry.
            ferofs!("diff", &image, &other).success();
            assert!(size(&image) <= size(&other), "{options}");
        } else {
            assert!(fs::read(&image).unwrap() == fs::read(&other).unwrap(), "{options}");
        }
        // Nothing, or half of a patch, changes nothing.
        let base = fs::read(&image).unwrap();
        for len in [0, size(&usual) / 2] {
            let half = fixture.path("half");
            fs::write(&half, &fs::read(&usual).unwrap()[..len as usize]).unwrap();
            let pipe = fs::File::open(&half).unwrap();
            ferofs!("patch apply", &image, "-").input(pipe).failure(1).says("standard input");
        }
        assert!(fs::read(&image).unwrap() == base);
    }
}

#[test]
fn ignored_attributes_are_no_changes() {
    let fixture = fixture();
    let image = fixture.build("image", ["-z", "lz4"]);
    let patch = fixture.path("patch");
    let create = |options: &[&str]| {
        let create = ferofs!("patch create").args(options);
        create.args([&image, &fixture.source()]).arg("-o").arg(&patch).run()
    };
    let touched = create(&["--all-time=77"]).success();
    assert_eq!(touched.code, 0);
    create(&["--all-time=77", "--ignore", "times"]).failure(1).says("nothing to patch");
    create(&["--all-time=77", "--ignore=owner,xattrs"]).success();
    assert_eq!(create(&["--ignore=times", "--verify"]).code, 2);
}

/// A new file must not get the mode of an old one with another path.
#[test]
fn attributes_are_ignored_only_at_the_same_path() {
    let fixture = Fixture::empty();
    let next = fixture.directory("next");
    let write = |dir: &Path, name: &str, content: &str, mode: u32| {
        fs::write(dir.join(name), content).unwrap();
        chmod(dir.join(name), mode);
    };
    write(&fixture.source(), "removed", "", 0o4777);
    write(&fixture.source(), "program", "payload", 0o4755);
    write(&fixture.source(), "emptied", "content", 0o600);
    write(&fixture.source(), "same", "stays", 0o644);
    write(&next, "emptied", "", 0o600);
    write(&next, "data", "payload", 0o644);
    write(&next, "same", "stays", 0o600);
    let (image, patch) = (fixture.build("image", ["-z", "none"]), fixture.path("patch"));
    let create = ferofs!("patch create --ignore=times,mode,owner,xattrs");
    create.args([&image, &next]).arg("-o").arg(&patch).success();
    apply(&image, &patch);
    let extracted = fixture.extract(&image, "extracted");
    for (name, mode) in [("emptied", 0o600), ("data", 0o644), ("same", 0o644)] {
        let found = fs::metadata(extracted.join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
}

#[test]
fn on_a_full_disk_or_device_the_image_stays_unchanged() {
    require!(need::root());
    let fixture = Fixture::empty();
    fixture.write("file", Content::Noise.bytes(500_000, &mut Rng::new(1)));
    let image = fixture.build("image", ["-z", "none"]);
    fixture.write("more", Content::Noise.bytes(3_000_000, &mut Rng::new(2)));
    let patch = fixture.path("patch");
    create(&image, &fixture.source(), &patch);
    let disk = fixture.directory("disk");
    let mount = Mount::memory("tmpfs", "size=2m", &disk);
    let full = disk.join("image");
    fs::copy(&image, &full).unwrap();
    ferofs!("patch apply", &full, &patch).failure(1).says("the file system cannot extend the file");
    assert!(fs::read(&full).unwrap() == fs::read(&image).unwrap());
    mount.unmount().unwrap();
    // On a device that is too small, and on one that is large enough.
    for (name, size, fits) in [("small", 2 << 20, false), ("large", 8 << 20, true)] {
        let backing = fixture.path(name);
        fs::copy(&image, &backing).unwrap();
        fs::File::options().write(true).open(&backing).unwrap().set_len(size).unwrap();
        let Some(device) = LoopDevice::attach(&backing, &[]) else { return };
        let outcome = ferofs!("patch apply", &device, &patch).run();
        let checked = ferofs!("check", &device).run();
        let shown = ferofs!("cat", &device, "/more").run();
        assert_eq!(
            (outcome.code, checked.code, shown.code == 0),
            (i32::from(!fits), 0, fits),
            "{}",
            outcome.stderr
        );
        assert!(
            fits || outcome.stderr.contains("bytes, the device has 2097152"),
            "{}",
            outcome.stderr
        );
    }
}

/// The tail of the new file equals the start of an old block; zeroes follow in both.
#[test]
fn a_tail_can_reuse_an_old_block() {
    let fixture = Fixture::empty();
    let mut rng = Rng::new(8);
    let (mut first, second, third) = (vec![0; 4096], rng_block(&mut rng), rng_block(&mut rng));
    rng.fill(&mut first[..200]);
    let (source, next) = (fixture.source(), fixture.directory("next"));
    fs::write(source.join("file"), [&first[..], &second].concat()).unwrap();
    fs::write(next.join("file"), [&first[..], &third, &first[..209]].concat()).unwrap();
    let (image, patch) = (fixture.build("image", ["-E", "dot-omitted"]), fixture.path("patch"));
    create(&image, &next, &patch);
    apply(&image, &patch);
    assert_valid(&image);
    let extracted = fixture.extract(&image, "extracted");
    assert!(fs::read(extracted.join("file")).unwrap() == fs::read(next.join("file")).unwrap());
    let inspected = ferofs!("inspect --path file", &image).success();
    let shown = inspected.text();
    assert!(shown.contains("3 extents, 8401 bytes"), "{shown}");
}

fn rng_block(rng: &mut Rng) -> Vec<u8> {
    let mut block = vec![0; 4096];
    rng.fill(&mut block);
    block
}
