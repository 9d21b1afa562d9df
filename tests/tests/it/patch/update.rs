//! Patches: the patched image shows the new tree, through Linux, through FUSE, and with the patch applied in memory. A patch
//! that fails does not change the image.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, Run, compare, ferofs, need, tree, update};

use super::{apply, create};
use crate::common::erofs_utils::{assert_valid, mkfs_command};
use crate::common::fixture::{Fixture, full, same};

/// Encodings: a name, and options of `ferofs build`.
const SETTINGS: [(&str, &str); 13] = [
    ("none", "-z none"),
    ("lz4", "-z lz4"),
    ("lz4-64k", "-z lz4 -C 64K"),
    ("lzma", "-z lzma -C 64K"),
    ("zstd", "-z zstd -C 64K"),
    ("deflate", "-z deflate -C 64K"),
    ("fragments", "-z lz4 -C 16K -E fragments"),
    ("ztailpacking", "-z lz4 -E ztailpacking"),
    ("dedupe", "-z lz4 -E dedupe"),
    ("48bit", "-z zstd -C 64K -E 48bit"),
    // Patches continue the metabox of these.
    ("metabox", "-z lz4 --for-updates -E 48bit -m 64K --compress-directories"),
    ("metabox-inline", "-z lzma -C 64K -E 48bit -m 4K"),
    ("backup", "--preset backup"),
];

#[test]
fn an_image_at_an_offset_is_not_patched_and_told() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let build = ferofs()
        .args(["build", "-z", "none", "--offset", "8K"])
        .args([fixture.source(), image.clone()]);
    build.run().success();
    let patch = fixture.path("patch");
    for words in [
        &["log"][..],
        &["rollback"],
        &["squash", "--in-place"],
        &["create", "-o", patch.to_str().unwrap()],
    ] {
        let mut command = ferofs().arg("patch").args(words).arg(&image);
        if words[0] == "create" {
            command = command.arg(fixture.source());
        }
        let told = command.run().failure(1).stderr;
        assert!(told.contains("starts at the first byte of its file"), "{words:?}: {told}");
    }
    let told =
        ferofs().args(["patch", "add"]).args([image, fixture.source()]).run().failure(1).stderr;
    assert!(told.contains("starts at the first byte of its file"), "{told}");
}

/// A small tree with all kinds of inodes, a large file and a wide directory. Only the full tests have sparse files, because
/// each comparison reads all holes.
fn fixture() -> Fixture {
    let fixture = Fixture::new(&tree::Options {
        largest: 70_001,
        wide: 400,
        deep: 0,
        ..tree::Options::default()
    });
    for (content, len) in [(Content::Text, 900_000), (Content::Mixed, 300_000)] {
        let bytes = content.bytes(len, &mut Rng::new(3));
        fs::write(fixture.source().join(format!("{content:?}")), bytes).unwrap();
    }
    if !full() {
        fs::remove_dir_all(fixture.source().join("sparse")).unwrap();
    }
    fixture
}

/// Fails unless the image shows `tree`, through Linux and through FUSE.
pub(super) fn assert_shows(fixture: &Fixture, image: &Path, tree: &Path) {
    let dir = fixture.path("shown");
    fs::create_dir_all(&dir).unwrap();
    let mount = Mount::kernel(image, &dir).unwrap();
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
    let mount = Mount::fuse(ferofs_path(), image, &dir).unwrap();
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
}

#[test]
fn every_state_of_a_chain_of_updates_is_shown() {
    require!(
        need::kernel_erofs("patched images through the kernel")
            && need::fuse("patched images through FUSE")
    );
    for (name, options) in SETTINGS {
        let fixture = fixture();
        let steps = match (full(), name) {
            (true, _) => 20,
            (false, "lz4") => 4,
            (false, _) => 1,
        };
        chain(&fixture, options, steps);
    }
}

#[test]
fn an_added_version_shares_the_content_of_inodes_in_the_metabox() {
    require!(
        need::kernel_erofs("a version that is added, through the kernel")
            && need::fuse("the same through FUSE")
    );
    for options in ["-z zstd -C 64K -E 48bit,all-fragments -m 4K", "-z zstd -C 64K -m 4K"] {
        let fixture = Fixture::new(&tree::Options::small());
        let (first, upper) = (fixture.source().join("first"), fixture.directory("upper"));
        fs::create_dir(&first).unwrap();
        for number in 0..10 {
            let bytes = Content::Noise.bytes(40_960 + number, &mut Rng::new(number as u64));
            fs::write(first.join(format!("{number}")), bytes).unwrap();
        }
        let image = fixture.build("image", options.split(' '));
        let after = fixture.path("after");
        update::copy(&fixture.source(), &after).unwrap();
        update::copy(&first, &upper.join("second")).unwrap();
        // With the attributes of its root, which replaces that of the image.
        Run::new("cp").arg("-a").arg(upper.join(".")).arg(&after).run().success();
        let before = fs::metadata(&image).unwrap().len();
        ferofs().args(["patch", "add", "--loose-parents"]).args([&image, &upper]).run().success();
        let growth = fs::metadata(&image).unwrap().len() - before;
        // As much as one file: the metadata of ten.
        assert!(growth < 40_000, "{options}: {growth}");
        assert_shows(&fixture, &image, &after);
    }
}

/// Files that moved keep their inodes, whose numbers in a metabox have 64 bits.
#[test]
fn a_directory_keeps_names_of_inodes_in_the_metabox() {
    require!(
        need::kernel_erofs("moved inodes of a metabox, through the kernel")
            && need::fuse("the same through FUSE")
    );
    for options in ["-z zstd -C 64K -m 4K", "--preset backup"] {
        let fixture = Fixture::empty();
        for number in 0..40 {
            let dir = fixture.source().join(format!("directory-{}", number % 4));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file-{number}")), format!("content {number}")).unwrap();
        }
        let image = fixture.build("image", options.split(' '));
        let (next, patch) = (fixture.path("next"), fixture.path("patch"));
        update::copy(&fixture.source(), &next).unwrap();
        fs::rename(next.join("directory-1/file-5"), next.join("directory-2/moved")).unwrap();
        fs::rename(next.join("directory-3"), next.join("directory-0/inside")).unwrap();
        create(&image, &next, &patch);
        apply(&image, &patch);
        assert_shows(&fixture, &image, &next);
    }
}

#[test]
fn an_added_tree_is_merged_over_the_old_one() {
    require!(
        need::kernel_erofs("images with additions through the kernel")
            && need::fuse("the same through FUSE")
    );
    for options in ["-z none", "-z lz4 -C 16K -E fragments", "-z zstd -C 64K -E 48bit"] {
        let fixture = Fixture::new(&tree::Options::small());
        let (upper, before, after) =
            (fixture.directory("upper"), fixture.path("before"), fixture.path("after"));
        let write = |root: &Path, name: &str, content: Content, len| {
            let path = root.join("over").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content.bytes(len, &mut Rng::new(len as u64))).unwrap();
        };
        for name in ["kept", "replaced", "file-to-dir", "dir-to-file/x", "dir/kept"] {
            write(&fixture.source(), name, Content::Text, 9_000);
        }
        for name in ["replaced", "file-to-dir/y", "dir-to-file", "dir/new", "one"] {
            write(&upper, name, Content::Mixed, 90_000);
        }
        fs::hard_link(upper.join("over/one"), upper.join("over/dir/two")).unwrap();
        let image = fixture.build("image", options.split(' '));
        update::copy(&fixture.source(), &before).unwrap();
        update::copy(&fixture.source(), &after).unwrap();
        fs::remove_dir_all(after.join("over/dir-to-file")).unwrap();
        fs::remove_file(after.join("over/file-to-dir")).unwrap();
        Run::new("cp").arg("-a").arg(upper.join(".")).arg(&after).run().success();
        let base = fixture.path("base");
        fs::copy(&image, &base).unwrap();

        ferofs().args(["patch", "add", "--verify"]).args([&image, &upper]).run().success();
        assert_valid(&image);
        assert_shows(&fixture, &image, &after);
        let again =
            ferofs().args(["patch", "add", "--json"]).args([&image, &upper]).run().success();
        assert_eq!(again.stdout, b"null\n");
        ferofs().args(["patch", "rollback"]).arg(&image).run().success();
        assert_shows(&fixture, &image, &before);

        // The same from an archive with mkfs.erofs. -x -1 applies only to the archive: old files keep their xattrs.
        let tar = fixture.path("tar");
        Run::new("tar")
            .args(["--format=posix", "--xattrs", "-cf"])
            .arg(&tar)
            .arg("-C")
            .args([&upper, Path::new(".")])
            .run()
            .success();
        mkfs_command(&fixture)
            .args(["--quiet", "--incremental=data", "--tar=f", "-x", "-1"])
            .args([&base, &tar])
            .run()
            .success();
        assert_valid(&base);
        assert_shows(&fixture, &base, &after);
    }
}

fn chain(fixture: &Fixture, options: &str, steps: u64) {
    let image = fixture.build("image", options.split(' '));
    let base = fixture.path("base");
    fs::copy(&image, &base).unwrap();
    let mut patches: Vec<PathBuf> = Vec::new();
    let mut trees: Vec<PathBuf> = vec![fixture.path("tree-0")];
    update::copy(&fixture.source(), &trees[0]).unwrap();
    for step in 1..=steps {
        eprintln!("{options}: update {step}");
        update::update(&fixture.source(), step, 2).unwrap();
        let tree = fixture.path(&format!("tree-{step}"));
        update::copy(&fixture.source(), &tree).unwrap();
        let patch = fixture.path(&format!("patch-{step}"));
        create(&image, &fixture.source(), &patch);
        apply(&image, &patch);
        assert_valid(&image);
        assert_shows(fixture, &image, &tree);
        trees.push(tree);
        patches.push(patch);
    }
    // All patches, applied to the first image in memory.
    let (dir, before) = (fixture.path("shown"), fs::read(&base).unwrap());
    let over: Vec<&OsStr> =
        patches.iter().flat_map(|patch| [OsStr::new("--patch"), patch.as_os_str()]).collect();
    let mount = Mount::fuse_with(ferofs_path(), &over, &base, &dir).unwrap();
    compare(&fixture.source(), mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
    assert!(fs::read(&base).unwrap() == before);
    // Roll back to each state.
    for (state, tree) in trees.iter().enumerate().rev().skip(1) {
        ferofs()
            .args(["patch", "rollback", "--to", &state.to_string()])
            .arg(&image)
            .run()
            .success();
        ferofs().arg("check").arg(&image).run().success();
        let mount = Mount::kernel(&image, &dir).unwrap();
        compare(tree, mount.path(), &same()).unwrap().assert_same();
        mount.unmount().unwrap();
    }
}

#[test]
fn after_a_power_cut_linux_shows_the_old_or_the_new_tree() {
    require!(need::kernel_erofs("power cuts through the kernel"));
    let Some(strace) = need::tool("strace", "power cuts") else { return };
    let fixture = fixture();
    let image = fixture.build("image", ["-z", "lz4"]);
    let (old, new) = (fixture.path("old"), fixture.source());
    update::copy(&new, &old).unwrap();
    update::update(&new, 5, 2).unwrap();
    let patch = fixture.path("patch");
    create(&image, &new, &patch);
    let base = fs::read(&image).unwrap();
    // The writes of `patch apply`, in order.
    let trace = fixture.path("trace");
    let calls = "trace=pwrite64,write,pwritev,ftruncate,fallocate,fsync,fdatasync";
    Run::new(strace)
        .args(["-f", "-s", "0", "-e", calls, "-o"])
        .arg(&trace)
        .arg(ferofs_path())
        .args(["patch", "apply"])
        .args([&image, &patch])
        .run()
        .success();
    let result = fs::read(&image).unwrap();
    let trace = fs::read_to_string(trace).unwrap();
    let writes: Vec<(usize, usize)> = trace.lines().filter_map(write_of).collect();
    assert!(trace.matches("sync(").count() >= 2 && writes.len() >= 2, "{trace}");
    assert_eq!(writes.last(), Some(&(1024, 512)), "{trace}");
    let mut cut = base;
    let mut shown = [0, 0];
    let mut assert_old_or_new = |cut: &[u8]| {
        let path = fixture.path("cut");
        fs::write(&path, cut).unwrap();
        ferofs().arg("check").arg(&path).run().success();
        let dir = fixture.path("cut-mount");
        fs::create_dir_all(&dir).unwrap();
        let mount = Mount::kernel(&path, &dir).unwrap();
        let is_new = cut[1024..1536] == result[1024..1536];
        compare(if is_new { &new } else { &old }, mount.path(), &same()).unwrap().assert_same();
        mount.unmount().unwrap();
        shown[usize::from(is_new)] += 1;
    };
    for (pos, len) in writes {
        // Power is cut before the write, or after some of its sectors.
        let sectors = len.div_ceil(512);
        for part in [0, 1, sectors / 2, sectors.saturating_sub(1)] {
            let end = result.len().min(pos + (part * 512).min(len));
            if cut.len() < end {
                cut.resize(end, 0);
            }
            cut[pos..end].copy_from_slice(&result[pos..end]);
            assert_old_or_new(&cut);
        }
        let end = pos + len;
        cut.resize(cut.len().max(end), 0);
        cut[pos..end].copy_from_slice(&result[pos..end]);
    }
    assert_old_or_new(&cut);
    assert_eq!(cut, result);
    assert!(shown[0] >= 5 && shown[1] >= 1, "{shown:?}");
}

/// Position and length of a write in a line of strace.
fn write_of(line: &str) -> Option<(usize, usize)> {
    let call = line.split_once("pwrite64(")?.1;
    let mut last = call.split(')').next()?.rsplit(", ");
    let (pos, len) = (last.next()?, last.next()?);
    Some((pos.parse().ok()?, len.parse().ok()?))
}

#[test]
fn a_patch_that_does_not_fit_is_refused() {
    let fixture = fixture();
    let image = fixture.build("image", ["-z", "lz4"]);
    update::update(&fixture.source(), 9, 1).unwrap();
    let patch = fixture.path("patch");
    create(&image, &fixture.source(), &patch);
    let (base, bytes) = (fs::read(&image).unwrap(), fs::read(&patch).unwrap());
    let refused = |image: &Path, patch: &Path, message: &str| {
        let before = fs::read(image).unwrap();
        let outcome = ferofs().args(["patch", "apply"]).args([image, patch]).run().failure(1);
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
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
    let apply_with = |option: &[&str]| {
        ferofs().args(["patch", "apply"]).args(option).args([&image, &patch]).run()
    };
    assert!(apply_with(&["--strict"]).failure(1).stderr.contains("image.verity: is a seal"));
    assert!(fs::read(&image).unwrap() == base);
    fs::write(&other, &base).unwrap();
    assert!(apply_with(&["--quiet"]).success().stderr.contains("image.verity: is a seal"));
    fs::remove_file(&seal).unwrap();
    fs::rename(&other, &image).unwrap();
    // Applied twice, and applied after another patch.
    apply(&image, &patch);
    refused(&image, &patch, "applied already");
    update::update(&fixture.source(), 10, 1).unwrap();
    fs::remove_file(&odd).unwrap();
    create(&image, &fixture.source(), &odd);
    apply(&image, &odd);
    refused(&image, &patch, "applied already");
    ferofs().args(["patch", "rollback", "--to", "0"]).arg(&image).run().success();
    refused(&image, &odd, "state");
    for args in [["patch", "rollback", "--to=77"], ["patch", "rollback", "--to=3"]] {
        ferofs().args(args).arg(&image).run().failure(1);
    }
    // Both were rolled back, so both are applied again, one after the other, and from one file.
    apply(&image, &patch);
    refused(&image, &patch, "applied already");
    ferofs().args(["patch", "rollback", "--to", "0"]).arg(&image).run().success();
    let both = fixture.path("both");
    fs::write(&both, [fs::read(&patch).unwrap(), fs::read(&odd).unwrap()].concat()).unwrap();
    let again = ferofs().args(["patch", "apply", "--json"]).args([&image, &both]).run().success();
    assert!(String::from_utf8_lossy(&again.stdout).contains("\"patches\":2"));
    let differences = ferofs().arg("diff").args([&image, &fixture.source()]).run().success();
    assert_eq!(differences.stdout, b"");
    ferofs().args(["patch", "rollback"]).arg(&stranger).run().failure(1);
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
        update::update(&fixture.source(), 4, 3).unwrap();
        let [usual, portable, other] =
            ["usual", "portable", "other"].map(|name| fixture.path(name));
        fs::copy(&image, &other).unwrap();
        let create = |options: &[&str], patch: &Path| {
            let create = ferofs().args(["patch", "create", "-T", "5"]).args(options);
            create.args([&image, &fixture.source()]).arg("-o").arg(patch).run().success();
        };
        create(&[], &usual);
        create(&["--portable"], &portable);
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(size(&usual) < size(&portable), "{options}");
        ferofs().args(["patch", "show"]).arg(&portable).run().success();
        let pipe = fs::File::open(&usual).unwrap();
        ferofs().args(["patch", "apply"]).arg(&image).arg("-").input(pipe).run().success();
        apply(&other, &portable);
        if has_metabox {
            // A portable patch does not continue the metabox, whose bytes it would have to carry.
            ferofs().arg("diff").args([&image, &other]).run().success();
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
            let refused =
                ferofs().args(["patch", "apply"]).arg(&image).arg("-").input(pipe).run().failure(1);
            assert!(refused.stderr.contains("standard input"), "{}", refused.stderr);
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
        let create = ferofs().args(["patch", "create"]).args(options);
        create.args([&image, &fixture.source()]).arg("-o").arg(&patch).run()
    };
    let touched = create(&["--all-time=77"]).success();
    assert_eq!(touched.code, 0);
    let same = create(&["--all-time=77", "--ignore", "times"]).failure(1);
    assert!(same.stderr.contains("nothing to patch"), "{}", same.stderr);
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
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    write(&fixture.source(), "removed", "", 0o4777);
    write(&fixture.source(), "program", "payload", 0o4755);
    write(&fixture.source(), "emptied", "content", 0o600);
    write(&fixture.source(), "same", "stays", 0o644);
    write(&next, "emptied", "", 0o600);
    write(&next, "data", "payload", 0o644);
    write(&next, "same", "stays", 0o600);
    let (image, patch) = (fixture.build("image", ["-z", "none"]), fixture.path("patch"));
    let create = ferofs().args(["patch", "create", "--ignore=times,mode,owner,xattrs"]);
    create.args([&image, &next]).arg("-o").arg(&patch).run().success();
    apply(&image, &patch);
    let extracted = fixture.extract(&image, "extracted");
    for (name, mode) in [("emptied", 0o600), ("data", 0o644), ("same", 0o644)] {
        let found = fs::metadata(extracted.join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
}

#[test]
fn on_a_full_disk_or_device_the_image_stays_unchanged() {
    require!(need::root("full disks"));
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), Content::Noise.bytes(500_000, &mut Rng::new(1)))
        .unwrap();
    let image = fixture.build("image", ["-z", "none"]);
    fs::write(fixture.source().join("more"), Content::Noise.bytes(3_000_000, &mut Rng::new(2)))
        .unwrap();
    let patch = fixture.path("patch");
    create(&image, &fixture.source(), &patch);
    let disk = fixture.directory("disk");
    let tmpfs = Run::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&disk).run();
    tmpfs.success();
    let mount = Mount::adopt(&disk);
    let full = disk.join("image");
    fs::copy(&image, &full).unwrap();
    let refused = ferofs().args(["patch", "apply"]).args([&full, &patch]).run().failure(1);
    assert!(refused.stderr.contains("no space"), "{}", refused.stderr);
    assert!(fs::read(&full).unwrap() == fs::read(&image).unwrap());
    mount.unmount().unwrap();
    // On a device that is too small, and on one that is large enough.
    for (name, size, fits) in [("small", 2 << 20, false), ("large", 8 << 20, true)] {
        let backing = fixture.path(name);
        fs::copy(&image, &backing).unwrap();
        fs::File::options().write(true).open(&backing).unwrap().set_len(size).unwrap();
        let Ok(setup) = Run::new("losetup").args(["--find", "--show"]).arg(&backing).try_run()
        else {
            return;
        };
        if setup.code != 0 {
            need::lacks("patching a device", "loop devices");
            return;
        }
        let device = PathBuf::from(String::from_utf8(setup.stdout).unwrap().trim());
        let outcome = ferofs().args(["patch", "apply"]).args([&device, &patch]).run();
        let checked = ferofs().arg("check").arg(&device).run();
        let shown = ferofs().args(["cat"]).arg(&device).arg("/more").run();
        Run::new("losetup").arg("--detach").arg(&device).run().success();
        assert_eq!(
            (outcome.code, checked.code, shown.code == 0),
            (i32::from(!fits), 0, fits),
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
    let inspected = ferofs().arg("inspect").args(["--path", "file"]).arg(&image).run().success();
    let shown = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(shown.contains("3 extents, 8401 bytes"), "{shown}");
}

fn rng_block(rng: &mut Rng) -> Vec<u8> {
    let mut block = vec![0; 4096];
    rng.fill(&mut block);
    block
}

#[test]
fn a_squashed_image_has_no_history() {
    let fixture = fixture();
    for (name, options) in SETTINGS.into_iter().filter(|(name, _)| full() || *name == "fragments") {
        let image = fixture.build(name, options.split(' '));
        update::update(&fixture.source(), 21, 1).unwrap();
        let (patch, out) = (fixture.path("patch"), fixture.path("squashed"));
        create(&image, &fixture.source(), &patch);
        apply(&image, &patch);
        ferofs().args(["patch", "squash"]).args([&image, &out]).run().success();
        assert_valid(&out);
        let states = ferofs().args(["patch", "log", "--json"]).arg(&out).run().success();
        assert_eq!(String::from_utf8(states.stdout).unwrap().matches("number").count(), 1);
        ferofs().arg("diff").args([&out, &fixture.source()]).run().success();
        fs::remove_file(&out).unwrap();
    }
}
