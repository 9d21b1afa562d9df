//! `ferofs extract` and `fsck.erofs --extract`: which files, over existing files, never outside the target.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::acl::{self, Entry};
use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, ferofs, need, tree, xattr};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::erofs_utils::programs;
use crate::common::fixture::{Fixture, same};
use crate::common::hostile::{assert_handled, command};
use crate::common::image_editor::{I_U, I_XATTR_ICOUNT, ImageEditor};

#[test]
fn patterns_select_names() {
    let fixture = Fixture::empty();
    for path in ["bin/tool", "lib/a.so", "lib/deep/b.so", "lib/deep/note", "share/doc/note"] {
        let path = fixture.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
    }
    let image = fixture.build("image", ["-T0"]);
    for (number, (options, expected)) in [
        (vec!["--include=*.so"], vec!["lib", "lib/a.so", "lib/deep", "lib/deep/b.so"]),
        (vec!["--include=/lib/*.so", "--include=bin"], vec!["bin", "bin/tool", "lib", "lib/a.so"]),
        (
            vec!["--exclude=lib", "--exclude=share/**/note"],
            vec!["bin", "bin/tool", "share", "share/doc"],
        ),
        (vec!["--include=lib", "--exclude=deep"], vec!["lib", "lib/a.so"]),
        (vec!["--path=lib/deep", "--include=n*"], vec!["note"]),
        (vec!["--path=/lib/deep/note"], vec!["note"]),
        (vec!["--include=none"], vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let target = fixture.path(&number.to_string());
        ferofs().arg("extract").args(&options).args([&image, &target]).run().success();
        assert_eq!(names(&target), expected, "{options:?}");
    }
    let bad = ferofs().args(["extract", "--include=[a"]).arg(&image).arg(fixture.path("bad")).run();
    assert!(bad.failure(1).stderr.contains("[a"));
}

#[test]
fn skip_existing_continues_an_interrupted_extraction() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    let target = fixture.extract(&image, "target");
    let again =
        |options: &[&str]| ferofs().arg("extract").args(options).arg(&image).arg(&target).run();
    let (kept, cut, lost) = (
        target.join("files/text/4097"),
        target.join("files/mixed/65537"),
        target.join("files/text/1"),
    );
    // While this file is open, no new file can get its inode number.
    let open = fs::File::open(&kept).unwrap();
    let number = open.metadata().unwrap().ino();
    // A file that was not completed: it has the size of the image's file, but another time.
    fs::File::options().write(true).open(&cut).unwrap().write_all_at(b"garbage", 0).unwrap();
    fs::remove_file(lost).unwrap();

    assert_eq!(again(&[]).code, 1, "existing files are an error without an option");
    again(&["--skip-existing"]).success();
    fixture.assert_same_as_source(&target);
    assert_eq!(fs::metadata(&kept).unwrap().ino(), number, "a complete file is kept");
    again(&["--overwrite"]).success();
    fixture.assert_same_as_source(&target);
    assert_ne!(fs::metadata(&kept).unwrap().ino(), number);
}

/// Root continues what another user has begun: the files get their owners and permissions.
#[test]
fn skip_existing_keeps_no_wrong_owners_or_permissions() {
    require!(need::root("owners"));
    let fixture = Fixture::empty();
    for (name, mode) in [("owned", 0o644), ("setuid", 0o4755), ("right", 0o644)] {
        let path = fixture.source().join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(7), Some(8)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("right", fixture.source().join("link")).unwrap();
    let image = fixture.build("image", ["-z", "none"]);
    let target = fixture.extract(&image, "target");
    let times = |name: &str| fs::metadata(fixture.source().join(name)).unwrap().modified().unwrap();
    chown(target.join("owned"), Some(1000), Some(1000)).unwrap();
    std::os::unix::fs::lchown(target.join("link"), Some(1000), Some(1000)).unwrap();
    // As extracted without the image's owners. A change of the mode changes no other time than that of the inode.
    fs::set_permissions(target.join("setuid"), fs::Permissions::from_mode(0o755)).unwrap();
    let right = fs::metadata(target.join("right")).unwrap().ino();
    assert_eq!(fs::metadata(target.join("owned")).unwrap().modified().unwrap(), times("owned"));

    ferofs().args(["extract", "--skip-existing"]).args([&image, &target]).run().success();
    fixture.assert_same_as_source(&target);
    assert_eq!(fs::metadata(target.join("right")).unwrap().ino(), right, "a right file is kept");
}

#[test]
fn holes_of_large_files_stay_holes() {
    let fixture = Fixture::empty();
    // Written in small parts: the peak memory of this process counts for the commands that it starts.
    let large = fs::File::create(fixture.source().join("large")).unwrap();
    large.set_len(21 << 20).unwrap();
    for (seed, place) in [(1, 0), (2, 4), (3, 7), (4, 11), (5, 17), (6, 18)] {
        let bytes = Content::Text.bytes(1 << 20, &mut Rng::new(seed));
        large.write_all_at(&bytes, (place << 20) + seed * 1000).unwrap();
    }
    fs::hard_link(fixture.source().join("large"), fixture.source().join("linked")).unwrap();
    // Only without compression: the index of a compressed file of 1 TiB is large.
    fs::File::create(fixture.source().join("hole")).unwrap().set_len(1 << 40).unwrap();
    for compression in ["none", "lz4"] {
        let image = fixture.build(compression, ["--compress", compression]);
        let target = fixture.extract(&image, &format!("{compression}-extracted"));
        assert!(
            fs::metadata(target.join("large")).unwrap().blocks() * 512 <= 7 << 20,
            "{compression}"
        );
        if compression == "none" {
            assert_eq!(fs::metadata(target.join("hole")).unwrap().blocks(), 0);
            fs::remove_file(target.join("hole")).unwrap();
            fs::remove_file(fixture.source().join("hole")).unwrap();
        }
        let options = compare::Options { ignore: vec![Field::Mtime], ..same() };
        compare(&fixture.source(), &target, &options).unwrap().assert_same();
        assert_eq!(fs::metadata(target.join("linked")).unwrap().nlink(), 2);
    }
}

#[test]
fn owners_permissions_and_xattrs_can_be_left_out() {
    let fixture = Fixture::new(&tree::Options::small());
    fs::write(fixture.source().join("tool"), "tool").unwrap();
    fs::set_permissions(fixture.source().join("tool"), fs::Permissions::from_mode(0o4777)).unwrap();
    let image = fixture.build("image", ["-T0"]);
    let target = fixture.path("target");
    let mut line = std::process::Command::new("sh");
    line.args([
        "-c",
        "umask 027; exec \"$0\" extract --no-preserve-perms --no-preserve-owner --no-xattrs \"$@\"",
    ]);
    assert!(line.arg(ferofs_path()).args([&image, &target]).status().unwrap().success());
    assert_eq!(fs::metadata(target.join("tool")).unwrap().mode() & 0o7777, 0o750);
    let report = compare(&fixture.source(), &target, &same()).unwrap();
    let left = [Field::Mode, Field::Uid, Field::Gid, Field::Xattr(String::new())];
    let ignore = left.to_vec();
    let options = compare::Options { ignore, ..compare::Options::default() };
    assert_ne!(report.count, 0);
    compare(&fixture.source(), &target, &options).unwrap().assert_same();
}

#[test]
fn fsck_erofs_extracts_as_its_callers_expect() {
    let fixture = Fixture::empty();
    fs::create_dir(fixture.source().join("dir")).unwrap();
    fs::write(fixture.source().join("dir/file"), "content").unwrap();
    let image = fixture.build("image", ["-T0"]);
    let nid = ImageEditor::new(fs::read(&image).unwrap()).find("dir").nid;
    let program = fixture.path("fsck.erofs");
    symlink(ferofs_path(), &program).unwrap();
    let run = |target: &str, options: &[&str]| {
        let extract = format!(
            "--extract={}",
            if target.is_empty() { String::new() } else { path(&fixture, target) }
        );
        Run::new(&program).arg(extract).args(options).arg(&image).run()
    };
    run("all", &[]).success();
    assert_eq!(names(&fixture.path("all")), ["dir", "dir/file"]);
    run("all", &[]).failure(1);
    run("all", &["--overwrite", "-p", "-a", "-y", "--force", "--preserve", "--no-preserve-owner"])
        .success();
    run("below", &["--path=/dir"]).success();
    assert_eq!(names(&fixture.path("below")), ["file"]);
    run("by number", &[&format!("--nid={nid}")]).success();
    assert_eq!(names(&fixture.path("by number")), ["file"]);
    run("file", &["--path=dir/file", "--xattrs"]).success();
    assert_eq!(
        fs::read(fixture.path("file")).unwrap(),
        b"content",
        "DIR is the name of an extracted file"
    );
    assert_ne!(run("", &[]).code, 0, "a directory is missing");
    Run::new(&program).arg("--extract=/").arg(&image).run().failure(1);
    Run::new(&program).arg("--extract").arg(&image).run().success();
}

/// An obstacle: its name, and the function that creates it, with the target and a directory outside the target.
type Obstacle = (&'static str, fn(&Path, &Path));
/// A hostile change of an image: its name, and the function that makes it.
type Forgery = (&'static str, Box<dyn Fn(&mut ImageEditor)>);

/// The target already has an entry of another type with the name of `dir`, `file` or `link`.
#[test]
fn existing_links_in_the_target_are_not_followed() {
    let fixture = Fixture::empty();
    fs::create_dir(fixture.source().join("dir")).unwrap();
    fs::write(fixture.source().join("dir/file"), "image").unwrap();
    fs::write(fixture.source().join("file"), "image").unwrap();
    fs::hard_link(fixture.source().join("file"), fixture.source().join("link")).unwrap();
    let image = fixture.build("image", ["-T0"]);
    let obstacles: [Obstacle; 6] = [
        ("a symlink to a directory", |target, outside| {
            symlink(outside, target.join("dir")).unwrap()
        }),
        ("a symlink within the target", |target, _| {
            fs::create_dir(target.join("other")).unwrap();
            symlink("other", target.join("dir")).unwrap();
        }),
        ("a symlink to a file", |target, outside| {
            symlink(outside.join("kept"), target.join("file")).unwrap()
        }),
        ("a hard link", |target, outside| {
            fs::hard_link(outside.join("kept"), target.join("file")).unwrap()
        }),
        ("a file instead of a directory", |target, _| fs::write(target.join("dir"), "").unwrap()),
        ("a directory instead of a file", |target, _| fs::create_dir(target.join("link")).unwrap()),
    ];
    for (name, create) in obstacles {
        for option in [None, Some("--overwrite"), Some("--skip-existing")] {
            let (target, outside) = (fixture.directory("target"), fixture.directory("outside"));
            fs::write(outside.join("kept"), "kept").unwrap();
            create(&target, &outside);
            let outcome = ferofs().arg("extract").args(option).arg(&image).arg(&target).run();
            let replaced =
                option.is_some() && (name == "a symlink to a file" || name == "a hard link");
            assert_eq!(
                outcome.code,
                i32::from(!replaced),
                "{name}, {option:?}: {}",
                outcome.stderr
            );
            assert_eq!(names(&outside), ["kept"], "{name}, {option:?}");
            assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept", "{name}, {option:?}");
            if target.join("other").exists() {
                assert_eq!(names(&target.join("other")), [""; 0]);
            }
            if replaced {
                assert_eq!(fs::read(target.join("file")).unwrap(), b"image");
                assert!(!target.join("file").is_symlink());
            }
            fs::remove_dir_all(target).unwrap();
            fs::remove_dir_all(outside).unwrap();
        }
    }
}

/// In each case a name or an inode of the image is changed, so that an extractor without checks writes to `outside`, a
/// directory beside the target.
#[test]
fn hostile_names_write_nothing_outside_the_target() {
    let fixture = Fixture::empty();
    let outside = fixture.directory("outside");
    fs::write(outside.join("kept"), "kept").unwrap();
    fs::create_dir(fixture.source().join("dirdir")).unwrap();
    fs::write(fixture.source().join("dirdir/file"), "image").unwrap();
    fs::write(fixture.source().join("12345678901234"), "image").unwrap();
    fs::write(fixture.source().join("xy"), "image").unwrap();
    symlink(&outside, fixture.source().join("linked")).unwrap();
    symlink("../outside", fixture.source().join("nearby")).unwrap();
    symlink("../outside/kept", fixture.source().join("tofile")).unwrap();
    fs::write(fixture.source().join("wanted"), "image").unwrap();
    let image = ImageEditor::new(fs::read(fixture.build("image", ["-T0"])).unwrap());
    let absolute = format!("{}/x", path(&fixture, "outside"));

    let forgeries: Vec<Forgery> = vec![
        ("..", Box::new(|f| rename(f, "xy", b".."))),
        (".", Box::new(|f| rename(f, "xy", b"./"))),
        ("../outside/x", Box::new(|f| rename(f, "12345678901234", b"../outside/xyz"))),
        ("/tmp/ferofs.esc", Box::new(|f| rename(f, "12345678901234", b"/tmp/ferofs.es"))),
        ("a directory of slashes", Box::new(|f| rename(f, "dirdir", b"../out"))),
        ("NUL", Box::new(|f| rename(f, "12345678901234", b"123\x0045678901234"[..14].as_ref()))),
        ("NUL in a directory", Box::new(|f| rename(f, "dirdir", b"../\x00ab"))),
        ("a directory with the name of a symlink", Box::new(|f| rename(f, "dirdir", b"linked"))),
        (
            "a directory with the name of a relative symlink",
            Box::new(|f| rename(f, "dirdir", b"nearby")),
        ),
        ("a file with the name of a symlink", Box::new(|f| rename(f, "wanted", b"tofile"))),
        ("a symlink with the name of a directory", Box::new(|f| rename(f, "linked", b"dirdir"))),
        (
            "a directory that is a symlink",
            Box::new(|f| {
                let (dir, link) = (f.find("dirdir"), f.find("linked").nid);
                f.put(dir.at, link, 8);
            }),
        ),
        (
            "a file with blocks outside the image",
            Box::new(|f| {
                let nid = f.find("wanted").nid;
                let inode = f.inode(nid);
                f.put(inode + I_U, 0x7FFF_FFFF, 4);
            }),
        ),
    ];
    let forged = fixture.path("forged");
    for (name, forge) in &forgeries {
        for option in [&[][..], &["--overwrite"], &["--skip-existing"]] {
            let mut editor = image.clone();
            forge(&mut editor);
            fs::write(&forged, &editor.bytes).unwrap();
            let target = fixture.path("target");
            let line: Vec<&str> = ["extract"].iter().chain(option).copied().collect();
            assert_handled(&command(&line, &forged, &[&target]), &format!("{name}, {option:?}"));
            assert_eq!(names(&outside), ["kept"], "{name}, {option:?}");
            assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept", "{name}, {option:?}");
            let mut beside: Vec<_> =
                fs::read_dir(fixture.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
            beside.sort();
            assert_eq!(
                beside,
                ["forged", "image", "outside", "source", "target"],
                "{name}, {option:?}"
            );
            assert!(
                !Path::new("/tmp/ferofs.es").exists() && !Path::new(&absolute).exists(),
                "{name}"
            );
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn a_damaged_file_does_not_stop_the_extraction_of_others() {
    let fixture = Fixture::empty();
    for name in ["before", "damaged", "later"] {
        fs::write(fixture.source().join(name), Content::Text.bytes(40_000, &mut Rng::new(3)))
            .unwrap();
    }
    let mut image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "lz4"])).unwrap());
    let nid = image.find("damaged").nid;
    let map = image.after(nid).next_multiple_of(8);
    image.bytes[map + 8..map + 24].fill(0xFF);
    fs::write(fixture.path("image"), &image.bytes).unwrap();
    let outcome = ferofs()
        .arg("extract")
        .args([fixture.path("image"), fixture.path("target")])
        .run()
        .failure(1);
    assert!(outcome.stderr.contains("damaged"), "{}", outcome.stderr);
    for name in ["before", "later"] {
        assert!(
            fs::read(fixture.path("target").join(name)).unwrap()
                == fs::read(fixture.source().join(name)).unwrap()
        );
    }
}

#[test]
fn fragments_of_erofs_utils_are_extracted() {
    let fixture = Fixture::new(&tree::Options { wide: 500, ..tree::Options::small() });
    // mkfs.erofs of Debian stable sorts these names wrongly.
    for dir in ["names", "meta/times"] {
        fs::remove_dir_all(fixture.source().join(dir)).unwrap();
    }
    // Large files, which are extracted in parts. Most of their fragments start in the middle of a cluster.
    for name in ["large", "larger", "the largest"] {
        fs::write(
            fixture.source().join(name),
            Content::Text.bytes(9 << 20, &mut Rng::new(name.len() as u64)),
        )
        .unwrap();
    }
    // mkfs.erofs drops the nanoseconds of files that are as old as the image.
    for name in [".", "large", "larger", "the largest", "meta"] {
        let file = fs::File::open(fixture.source().join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 7)).unwrap();
    }
    // Only the newest mkfs.erofs stores large files as fragments.
    for mkfs in programs("mkfs.erofs", "fragments") {
        for options in
            [&["-zlz4", "-C65536", "-Eall-fragments"][..], &["-zlz4hc", "-Efragments,ztailpacking"]]
        {
            let image = fixture.path("fragments");
            Run::new(&mkfs)
                .arg("--quiet")
                .args(options)
                .args([&image, &fixture.source()])
                .run()
                .success();
            let target = fixture.extract(&image, "extracted");
            fixture.assert_same_as_source(&target);
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn duplicate_names_change_nothing_outside() {
    require!(need::root("special files with any mode"));
    let fixture = Fixture::empty();
    let outside = fixture.path("outside");
    fs::write(&outside, "outside").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    const COUNT: usize = 128;
    for number in 0..COUNT {
        let fifo = fixture.source().join(format!("a{number:03}"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::set_permissions(&fifo, fs::Permissions::from_mode(0o6777)).unwrap();
        symlink(&outside, fixture.source().join(format!("b{number:03}"))).unwrap();
    }
    let image = fixture.build("image", ["-T0"]);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    for number in 0..COUNT {
        rename(&mut forged, &format!("b{number:03}"), format!("a{number:03}").as_bytes());
    }
    fs::write(&image, &forged.bytes).unwrap();
    ferofs().arg("check").arg(&image).run().failure(4);
    for option in ["--overwrite", "--skip-existing", "--quiet"] {
        let target = fixture.path("target");
        let outcome = ferofs().args(["extract", option]).args([&image, &target]).run().failure(1);
        assert!(outcome.stderr.contains("name"), "{}", outcome.stderr);
        assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o7777, 0o600, "{option}");
        assert_eq!(names(&target).len(), COUNT, "{option}");
        assert!(!target.join("a000").is_symlink(), "the first file with a name stays");
        fs::remove_dir_all(target).unwrap();
    }
    // An archive must not have a name twice either, because its reader would extract both.
    let tar = fixture.path("tar");
    ferofs().args(["extract", "--tar"]).args([&tar, &image]).run().failure(1);
    let listed = Run::new("tar").arg("-tf").arg(&tar).run().success();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), COUNT + 1);
}

#[test]
fn a_refused_file_gets_no_hard_links() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("first"), "image").unwrap();
    fs::hard_link(fixture.source().join("first"), fixture.source().join("second")).unwrap();
    symlink("first", fixture.source().join("third")).unwrap();
    Run::new("ln")
        .args([fixture.source().join("third"), fixture.source().join("fourth")])
        .run()
        .success();
    let image = fixture.build("image", ["-T0"]);
    let target = fixture.directory("target");
    fs::write(target.join("first"), "not of the image").unwrap();
    fs::write(target.join("fourth"), "not of the image").unwrap();
    ferofs().arg("extract").args([&image, &target]).run().failure(1);
    assert_eq!(names(&target), ["first", "fourth"]);
    assert_eq!(fs::metadata(target.join("first")).unwrap().nlink(), 1);
    // A replaced file and a complete file get their hard links.
    for option in ["--overwrite", "--skip-existing"] {
        ferofs().args(["extract", option]).args([&image, &target]).run().success();
        fixture.assert_same_as_source(&target);
    }
}

/// The largest ID means "do not change" to chown(2): the file would belong to who extracts it, with its setuid bit.
#[test]
fn a_setuid_file_without_an_owner_is_an_error() {
    require!(need::root("setuid files of others"));
    let fixture = Fixture::empty();
    let program = fixture.source().join("program");
    fs::write(&program, "program").unwrap();
    std::os::unix::fs::chown(&program, Some(0x5a4b_3c2d), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let image = fixture.build("image", ["-T0", "--inodes=extended", "-Enosbcrc"]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(4).position(|id| id == 0x5a4b_3c2d_u32.to_le_bytes()).unwrap();
    bytes[at..at + 4].fill(0xff);
    fs::write(&image, bytes).unwrap();
    let out = fixture.path("out");
    let extracted = ferofs().arg("extract").args([&image, &out]).run().failure(1);
    assert!(extracted.stderr.contains("program: chown"), "{}", extracted.stderr);
    assert_eq!(fs::metadata(out.join("program")).unwrap().mode() & 0o6000, 0);
}

#[test]
fn without_owners_setuid_bits_and_capabilities_are_left_out() {
    require!(need::root("setuid files of others"));
    let fixture = Fixture::empty();
    for (name, mode) in [("file", 0o6755), ("dir", 0o3777), ("fifo", 0o6711)] {
        let path = fixture.source().join(name);
        match name {
            "dir" => fs::create_dir(&path).unwrap(),
            "fifo" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => fs::write(&path, name).unwrap(),
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let capabilities = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let source = fs::File::open(fixture.source()).unwrap();
    let has_capabilities =
        xattr::set(&source, b"file", b"security.capability", &capabilities).is_ok();
    let image = fixture.build("image", ["-T0"]);
    let kept = fixture.extract(&image, "kept");
    let mode = |path: PathBuf| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let modes = |dir: &Path| ["dir", "fifo", "file"].map(|name| mode(dir.join(name)));
    assert_eq!(modes(&kept), [0o3777, 0o6711, 0o6755]);
    let left = fixture.path("left");
    ferofs().args(["extract", "--no-preserve-owner"]).args([&image, &left]).run().success();
    assert_eq!(modes(&left), [0o1777, 0o711, 0o755]);
    let program = fixture.path("fsck.erofs");
    symlink(ferofs_path(), &program).unwrap();
    let fsck = fixture.path("fsck");
    let line = ["--no-preserve-owner", "--preserve-perms", "--xattrs"];
    Run::new(&program)
        .arg(format!("--extract={}", path(&fixture, "fsck")))
        .args(line)
        .arg(&image)
        .run()
        .success();
    assert_eq!(modes(&fsck), [0o1777, 0o711, 0o755]);
    for dir in [&left, &fsck] {
        let listed = xattr::all(fs::File::open(dir).unwrap(), b"file").unwrap();
        assert!(!has_capabilities || listed.is_empty(), "{listed:?}");
    }
}

#[test]
fn extracted_files_inherit_no_acl() {
    let fixture = Fixture::empty();
    let list = [
        Entry::Owner(7),
        Entry::User(1000, 4),
        Entry::OwningGroup(5),
        Entry::Mask(5),
        Entry::Other(0),
    ];
    let open = |path: &Path| fs::File::open(path).unwrap();
    fs::create_dir(fixture.source().join("dir")).unwrap();
    fs::write(fixture.source().join("dir/file"), "content").unwrap();
    if xattr::set(open(&fixture.source()), b"dir", acl::DEFAULT, &acl::encode(&list)).is_err() {
        need::lacks("ACLs that are not in the image", "ACLs");
        return;
    }
    let image = fixture.build("image", ["-T0"]);
    let out = fixture.path("out");
    for option in ["--workers=1", "--overwrite"] {
        ferofs().args(["extract", option]).args([&image, &out]).run().success();
        let dir = open(&out.join("dir"));
        assert_eq!(xattr::all(&dir, b"file").unwrap(), xattr::Xattrs::new(), "{option}");
    }
    let kept = xattr::all(open(&out), b"dir").unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), [acl::DEFAULT]);
}

#[test]
fn an_archive_has_no_hard_links_to_missing_members() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("first"), Content::Text.bytes(40_000, &mut Rng::new(3)))
        .unwrap();
    fs::hard_link(fixture.source().join("first"), fixture.source().join("second")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.source().join("socket")).unwrap();
    fs::hard_link(fixture.source().join("socket"), fixture.source().join("socket again")).unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    let nid = forged.find("first").nid;
    // Extended attributes beyond the end of the image: the file cannot be archived.
    let inode = forged.inode(nid);
    forged.put(inode + I_XATTR_ICOUNT, 0xffff, 2);
    fs::write(&image, &forged.bytes).unwrap();
    let tar = fixture.path("tar");
    ferofs().args(["extract", "--tar"]).args([&tar, &image]).run().failure(1);
    let listed = Run::new("tar").arg("-tf").arg(&tar).run().success();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "./\n");
}

/// Replaces a name in the root by another one of the same length.
fn rename(f: &mut ImageEditor, from: &str, to: &[u8]) {
    let name = f.find(from).name;
    assert_eq!(name.len(), to.len(), "{from}");
    f.bytes[name].copy_from_slice(to);
}

fn path(fixture: &Fixture, name: &str) -> String {
    fixture.path(name).into_os_string().into_string().unwrap()
}

/// All names below a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        for entry in fs::read_dir(dir.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                pending.push(path.clone());
            }
            names.push(path.into_os_string().into_string().unwrap());
        }
    }
    names.sort();
    names
}

/// Linux drops a setgid bit of a group that the process does not have, and gives no error.
#[test]
fn a_bit_that_the_system_drops_costs_no_other_attribute() {
    require!(
        need::root("files of another group") && need::tool("setpriv", "fewer rights").is_some()
    );
    let fixture = Fixture::empty();
    let file = fixture.source().join("file");
    fs::write(&file, "content").unwrap();
    chown(&file, Some(0), Some(1234)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2755)).unwrap();
    let image = fixture.build("image", ["--clamp-time", "1000000000"]);
    let target = fixture.path("target");
    let rights = ["--bounding-set=-fsetid", "--inh-caps=-fsetid"];
    let run = Run::new("setpriv")
        .args(rights)
        .arg(ferofs_path())
        .arg("extract")
        .args([&image, &target])
        .run();
    let told = run.failure(1).stderr;
    assert!(told.contains("file: chmod: the system leaves out"), "{told}");
    let extracted = fs::metadata(target.join("file")).unwrap();
    assert_eq!(
        (extracted.gid(), extracted.mode() & 0o7777, extracted.mtime()),
        (1234, 0o755, 1_000_000_000)
    );
}
