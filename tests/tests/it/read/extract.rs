//! `ferofs extract` and `fsck.erofs --extract`: which files, over existing files, with which
//! attributes.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ferofs_tests::acl::{self, Entry};
use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::{Content, Rng, Run, ferofs, ferofs_path, need, tree, xattr};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::erofs_utils::programs;
use crate::common::fixture::{Fixture, chmod, same, tree_names};
use crate::common::image_editor::ImageEditor;

#[test]
fn patterns_select_names() {
    let fixture = Fixture::empty();
    for path in ["bin/tool", "lib/a.so", "lib/deep/b.so", "lib/deep/note", "share/doc/note"] {
        fixture.write(path, path);
    }
    fixture.build("image", ["-T0"]);
    for (number, (options, expected)) in [
        ("--include=*.so", "lib lib/a.so lib/deep lib/deep/b.so"),
        ("--include=/lib/*.so --include=bin", "bin bin/tool lib lib/a.so"),
        ("--exclude=lib --exclude=share/**/note", "bin bin/tool share share/doc"),
        ("--include=lib --exclude=deep", "lib lib/a.so"),
        ("--path=lib/deep --include=n*", "note"),
        ("--path=/lib/deep/note", "note"),
        ("--include=none", ""),
    ]
    .into_iter()
    .enumerate()
    {
        fixture.line(&format!("extract {options} @image @{number}")).success();
        assert_eq!(tree_names(&fixture.path(&number.to_string())).join(" "), expected, "{options}");
    }
    fixture.line("extract --include=[a @image @bad").failure(1).says("[a");
}

#[test]
fn a_name_that_exists_is_not_taken_as_a_pattern() {
    let fixture = Fixture::empty();
    let odd = [r"a\x2db", "a[1]", "b*", "!c", "{d}", "e ", r"f\ "];
    for name in odd.into_iter().chain(["ax2db", "a1", "bb", "d", "e", "f"]) {
        fixture.write(name, name);
    }
    let image = fixture.build("image", ["-T0"]);
    for (number, name) in odd.into_iter().enumerate() {
        let target = fixture.path(&number.to_string());
        ferofs!("extract", &image, &target, format!("/{name}")).success();
        assert_eq!(tree_names(&target), [name]);
        ferofs!("extract --overwrite", &image, &target, name).success();
        assert_eq!(tree_names(&target), [name]);
        assert_eq!(ferofs!("cat", &image, name).success().stdout, name.as_bytes());
        let without = fixture.path(&format!("without{number}"));
        ferofs!("extract", format!("--exclude={name}"), &image, &without).success();
        assert_eq!(tree_names(&without).len(), 12);
        assert!(!without.join(name).exists(), "{name}");
    }
}

/// File systems refuse some attributes, types of files and hard links.
#[test]
fn what_the_target_refuses_costs_nothing_else() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = Fixture::empty();
    let path = |name: &str| fixture.source().join(name);
    fs::write(path("file"), "content").unwrap();
    chmod(path("file"), 0o751);
    for name in ["second", "third"] {
        fs::hard_link(path("file"), path(name)).unwrap();
    }
    mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let source = fs::File::open(fixture.source()).unwrap();
    let attributes = [&b"user.a"[..], b"user.b"];
    if !attributes.iter().all(|name| xattr::set(&source, b"file", name, b"1").is_ok()) {
        need::lacks("a file system with them");
        return;
    }
    let image = fixture.build("image", ["--clamp-time", "1000000000"]);
    let extract = |name: &str, faults: &[&str]| {
        let target = fixture.path(name);
        let mut run = Run::new(&strace);
        run = run.args(["-f", "-qq", "-o", "/dev/null"]);
        for fault in faults {
            run = run.arg("-e").arg(format!("inject={fault}"));
        }
        (
            run.arg(ferofs_path()).args(["extract", "--workers=1"]).args([&image, &target]).run(),
            target,
        )
    };
    let (run, target) =
        extract("attributes", &["fsetxattr:error=ENOSPC:when=1", "fchmod:error=EIO:when=1"]);
    let told = run.failure(1).stderr;
    assert!(told.contains("file: set attribute user.a: No space left"), "{told}");
    assert!(told.contains("file: chmod: ") && told.contains("ferofs: /: chmod: "), "{told}");
    let listed = xattr::all(fs::File::open(&target).unwrap(), b"file").unwrap();
    assert_eq!(listed.len(), 1);
    // The file is not complete.
    let time = || fs::metadata(target.join("file")).unwrap().mtime();
    assert_ne!(time(), 1_000_000_000);
    ferofs!("extract --skip-existing", &image, &target).success();
    assert_eq!(xattr::all(fs::File::open(&target).unwrap(), b"file").unwrap().len(), 2);
    assert_eq!(time(), 1_000_000_000);

    let (run, target) = extract("types", &["mknodat,mknod:error=EIO"]);
    run.failure(1).says("fifo: create a link or special file: ");
    assert_eq!(tree_names(&target), ["file", "second", "third"]);

    let (run, target) = extract("links", &["linkat:error=EMLINK:when=1"]);
    let told = run.success().stderr;
    assert!(
        told.contains("second: copied instead of linked: ") && told.lines().count() == 1,
        "{told}"
    );
    let number = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
    assert!(number("file") != number("second") && number("second") == number("third"));
    let (run, target) = extract("copies", &["linkat:error=EPERM"]);
    run.success().says("second and 1 more file: copied instead");
    assert_eq!(fs::read(target.join("third")).unwrap(), b"content");
    assert_eq!(fs::metadata(target.join("third")).unwrap().mode() & 0o777, 0o751);
}

#[test]
fn skip_existing_continues_an_interrupted_extraction() {
    let (fixture, image) = Fixture::small_image();
    let target = fixture.extract(&image, "target");
    let again = |options: &[&str]| ferofs!("extract").args(options).arg(&image).arg(&target).run();
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
    require!(need::root());
    let fixture = Fixture::empty();
    for (name, mode) in [("owned", 0o644), ("setuid", 0o4755), ("right", 0o644)] {
        let path = fixture.source().join(name);
        fixture.write(name, name);
        chown(&path, Some(7), Some(8)).unwrap();
        chmod(&path, mode);
    }
    symlink("right", fixture.source().join("link")).unwrap();
    let image = fixture.build("image", ["-z", "none"]);
    let target = fixture.extract(&image, "target");
    let times = |name: &str| fs::metadata(fixture.source().join(name)).unwrap().modified().unwrap();
    chown(target.join("owned"), Some(1000), Some(1000)).unwrap();
    std::os::unix::fs::lchown(target.join("link"), Some(1000), Some(1000)).unwrap();
    // As extracted without the image's owners. A change of the mode changes no other time than that
    // of the inode.
    chmod(target.join("setuid"), 0o755);
    let right = fs::metadata(target.join("right")).unwrap().ino();
    assert_eq!(fs::metadata(target.join("owned")).unwrap().modified().unwrap(), times("owned"));

    ferofs!("extract --skip-existing", &image, &target).success();
    fixture.assert_same_as_source(&target);
    assert_eq!(fs::metadata(target.join("right")).unwrap().ino(), right, "a right file is kept");
}

#[test]
fn holes_of_large_files_stay_holes() {
    let fixture = Fixture::empty();
    // Written in small parts: the peak memory of this process counts for the commands that it
    // starts.
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
    let fixture = Fixture::small();
    fixture.write("tool", "tool");
    chmod(fixture.source().join("tool"), 0o4777);
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
    fixture.write("dir/file", "content");
    let image = fixture.build("image", ["-T0"]);
    let nid = ImageEditor::new(fs::read(&image).unwrap()).find("dir").nid;
    let fsck = |options: &str| fixture.tool(&format!("fsck.erofs {options} @image"));
    let extracted = |options: &str| {
        fsck(options).success();
        tree_names(&fixture.path("out"))
    };
    assert_eq!(extracted("--extract=@out"), ["dir", "dir/file"]);
    fsck("--extract=@out").failure(1);
    let more = "--overwrite -p -a -y --force --preserve --no-preserve-owner";
    extracted(&format!("--extract=@out {more}"));
    for part in ["--path=/dir", &format!("--nid={nid}")] {
        fs::remove_dir_all(fixture.path("out")).unwrap();
        assert_eq!(extracted(&format!("--extract=@out {part}")), ["file"]);
    }
    // DIR is the name of an extracted file.
    fsck("--extract=@file --path=dir/file --xattrs").success();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"content");
    assert_ne!(fsck("--extract=").run().code, 0, "a directory is missing");
    fsck("--extract=/").failure(1);
    fsck("--extract").success();
}

#[test]
fn fragments_of_erofs_utils_are_extracted() {
    let fixture = Fixture::new(&tree::Options { wide: 500, ..tree::Options::small() });
    // mkfs.erofs of Debian stable sorts these names wrongly.
    for dir in ["names", "meta/times"] {
        fs::remove_dir_all(fixture.source().join(dir)).unwrap();
    }
    // Large files, which are extracted in parts. Most of their fragments start in the middle of a
    // cluster.
    for name in ["large", "larger", "the largest"] {
        fixture.write(name, Content::Text.bytes(9 << 20, &mut Rng::new(name.len() as u64)));
    }
    // mkfs.erofs drops the nanoseconds of files that are as old as the image.
    for name in [".", "large", "larger", "the largest", "meta"] {
        let file = fs::File::open(fixture.source().join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 7)).unwrap();
    }
    // Only the newest mkfs.erofs stores large files as fragments.
    for mkfs in programs("mkfs.erofs") {
        for options in
            [&["-zlz4", "-C65536", "-Eall-fragments"][..], &["-zlz4hc", "-Efragments,ztailpacking"]]
        {
            let image = fixture.path("fragments");
            Run::new(&mkfs)
                .arg("--quiet")
                .args(options)
                .args([&image, &fixture.source()])
                .success();
            let target = fixture.extract(&image, "extracted");
            fixture.assert_same_as_source(&target);
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn without_owners_setuid_bits_and_capabilities_are_left_out() {
    require!(need::root());
    let fixture = Fixture::empty();
    for (name, mode) in [("file", 0o6755), ("dir", 0o3777), ("fifo", 0o6711)] {
        let path = fixture.source().join(name);
        match name {
            "dir" => fs::create_dir(&path).unwrap(),
            "fifo" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => fs::write(&path, name).unwrap(),
        }
        chmod(&path, mode);
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
    fixture.line("extract --no-preserve-owner @image @left").success();
    let fsck = "--no-preserve-owner --preserve-perms --xattrs @image";
    fixture.tool(&format!("fsck.erofs --extract=@fsck {fsck}")).success();
    for dir in ["left", "fsck"].map(|name| fixture.path(name)) {
        assert_eq!(modes(&dir), [0o1777, 0o711, 0o755]);
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
    fixture.write("dir/file", "content");
    if xattr::set(open(&fixture.source()), b"dir", acl::DEFAULT, &acl::encode(&list)).is_err() {
        need::lacks("ACLs");
        return;
    }
    let image = fixture.build("image", ["-T0"]);
    let out = fixture.path("out");
    for option in ["--workers=1", "--overwrite"] {
        ferofs!("extract", option, &image, &out).success();
        let dir = open(&out.join("dir"));
        assert_eq!(xattr::all(&dir, b"file").unwrap(), xattr::Xattrs::new(), "{option}");
    }
    let kept = xattr::all(open(&out), b"dir").unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), [acl::DEFAULT]);
}

/// A user needs the permission to write to a file to set its `user.*` attributes.
#[test]
fn a_user_extracts_the_attributes_of_files_without_permission_to_write() {
    require!(need::root() && need::tool("setpriv").is_some());
    let fixture = Fixture::empty();
    let source = fixture.source();
    fixture.write("file", "content");
    fs::create_dir(source.join("dir")).unwrap();
    for (name, mode) in [("file", 0o444), ("dir", 0o555)] {
        let open = fs::File::open(&source).unwrap();
        if xattr::set(open, name.as_bytes(), b"user.note", b"value").is_err() {
            need::lacks("a file system with attributes of read-only files");
            return;
        }
        chmod(source.join(name), mode);
    }
    fixture.build("image", ["-T0"]);
    fixture.for_all_users(&fixture.directory("work"));
    for existing in ["--overwrite", "--skip-existing"] {
        let line = format!("extract {existing} @image @work/tree");
        fixture.as_user().args(fixture.words(&line)).success();
        let options = compare::Options::unprivileged();
        compare(&source, &fixture.path("work/tree"), &options).unwrap().assert_same();
    }
}

/// Linux drops a setgid bit of a group that the process does not have, and gives no error.
#[test]
fn a_bit_that_the_system_drops_costs_no_other_attribute() {
    require!(need::root() && need::tool("setpriv").is_some());
    let fixture = Fixture::empty();
    let file = fixture.source().join("file");
    fs::write(&file, "content").unwrap();
    chown(&file, Some(0), Some(1234)).unwrap();
    chmod(&file, 0o2755);
    let image = fixture.build("image", ["--clamp-time", "1000000000"]);
    let target = fixture.path("target");
    let rights = ["--bounding-set=-fsetid", "--inh-caps=-fsetid"];
    let run = Run::new("setpriv")
        .args(rights)
        .arg(ferofs_path())
        .arg("extract")
        .args([&image, &target])
        .run();
    run.failure(1).says("file: chmod: the setuid or setgid bit is not set");
    let extracted = fs::metadata(target.join("file")).unwrap();
    assert_eq!(
        (extracted.gid(), extracted.mode() & 0o7777, extracted.mtime()),
        (1234, 0o755, 1_000_000_000)
    );
}
