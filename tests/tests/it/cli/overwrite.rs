//! Outputs replace files of their own kind, and nothing else without --force.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use ferofs_tests::run::ferofs_path;
use ferofs_tests::tar::{archive, file};
use ferofs_tests::{Run, ferofs, need};

use crate::common::erofs_utils::mkfs_command;
use crate::common::fixture::Fixture;

const THESIS: &[u8] = b"The thesis, of which there is no copy.\n";

/// Runs a command with `output`, which exists: as text, and then as what the command wrote.
#[track_caller]
fn assert_protected(args: &[OsString], output: &Path) {
    let shown = format!("{args:?}");
    fs::write(output, THESIS).unwrap();
    let refused = ferofs().args(args).run();
    assert!(refused.code != 0 && refused.stderr.contains("--force"), "{shown}: {}", refused.stderr);
    assert!(refused.stderr.contains(output.to_str().unwrap()), "{shown}: {}", refused.stderr);
    assert_eq!(fs::read(output).unwrap(), THESIS, "{shown}");
    ferofs().args(args).arg("--force").run().success();
    let written = fs::read(output).unwrap();
    assert_ne!(written, THESIS, "{shown}");
    // What the command has written can be replaced.
    ferofs().args(args).run().success();
    fs::write(output, b"").unwrap();
    ferofs().args(args).run().success();
    assert_ne!(fs::read(output).unwrap(), b"", "{shown}");
}

#[test]
fn manual_pages_replace_only_manual_pages() {
    let fixture = Fixture::empty();
    let pages = fixture.directory("pages");
    let thesis = fixture.path("thesis");
    fs::write(&thesis, THESIS).unwrap();
    let args: [OsString; 2] = ["man".into(), pages.clone().into()];
    symlink(&thesis, pages.join("ferofs-build.1")).unwrap();
    let refused = ferofs().args(&args).run().failure(1);
    assert!(refused.stderr.contains("not a manual page"), "{}", refused.stderr);
    assert_eq!(fs::read(&thesis).unwrap(), THESIS);
    assert_eq!(fs::read_dir(&pages).unwrap().count(), 1, "nothing else is written");
    fs::remove_file(pages.join("ferofs-build.1")).unwrap();
    // Nobody reads it, so that writing would wait for ever.
    Run::new("mkfifo").arg(pages.join("ferofs.1")).run().success();
    let refused = ferofs().args(&args).run().failure(1);
    assert!(refused.stderr.contains("not a regular file"), "{}", refused.stderr);
    fs::remove_file(pages.join("ferofs.1")).unwrap();
    ferofs().args(&args).run().success();
    assert_protected(&args, &pages.join("ferofs.1"));
}

#[test]
fn no_output_replaces_another_kind_of_file() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "file").unwrap();
    let old = fixture.build("old", ["-T", "1"]);
    fs::write(fixture.source().join("new"), "new").unwrap();
    let (output, source) = (fixture.path("output"), fixture.source());
    let option = |name: &str| {
        let mut option = OsString::from(format!("{name}="));
        option.push(&output);
        option
    };
    let image = || fixture.path("image").into_os_string();
    let (old, source) = (|| old.clone().into_os_string(), || source.clone().into_os_string());
    let commands: [Vec<OsString>; 11] = [
        vec!["build".into(), source(), output.clone().into()],
        vec!["build".into(), option("--verity"), source(), image()],
        vec!["build".into(), "--verity".into(), option("--roothash-file"), source(), image()],
        vec!["patch".into(), "create".into(), option("--output"), old(), source()],
        vec!["patch".into(), "squash".into(), old(), output.clone().into()],
        vec!["extract".into(), option("--tar"), old()],
        vec!["extract".into(), option("--metadata"), old()],
        vec!["inspect".into(), option("--html"), old()],
        vec!["verity".into(), "format".into(), option("--hash-file"), old()],
        vec!["verity".into(), "format".into(), option("--roothash-file"), old()],
        vec![
            "build".into(),
            "--chunk-size=4096".into(),
            option("--chunk-device"),
            "--force".into(),
            source(),
            image(),
        ],
    ];
    for command in &commands[..10] {
        assert_protected(command, &output);
    }
    // Data of chunks looks like any other data.
    let [.., chunks] = &commands;
    ferofs().args(chunks).run().success();
    let args = chunks.iter().filter(|arg| *arg != "--force");
    assert!(ferofs().args(args).run().failure(1).stderr.contains("--force"));
    for name in ["fs_config", "file_contexts"] {
        let table = fixture.path(name);
        fs::write(&table, THESIS).unwrap();
        let mut option = OsString::from("--metadata=");
        option.push(&table);
        assert!(
            ferofs()
                .arg("extract")
                .args([option, old()])
                .run()
                .failure(1)
                .stderr
                .contains("--force")
        );
    }
}

#[test]
fn the_last_archive_is_not_replaced_by_an_image() {
    let fixture = Fixture::empty();
    let (a, b) = (fixture.path("a.tar"), fixture.path("b.tar"));
    let bytes = archive(&[file("file", b"content")]);
    for path in [&a, &b] {
        fs::write(path, &bytes).unwrap();
    }
    let refused = ferofs().arg("build").args([&a, &b]).run().failure(1);
    assert!(
        refused.stderr.contains("b.tar: exists and is a tar archive, not an EROFS image"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read(&b).unwrap(), bytes);
    // As erofs-utils, which replaces whatever it is.
    mkfs_command(&fixture).args([&b, &fixture.source()]).run().success();
    assert_ne!(fs::read(&b).unwrap(), bytes);
}

#[test]
fn an_image_behind_other_data_leaves_that_alone() {
    let fixture = Fixture::empty();
    let output = fixture.path("output");
    fs::write(&output, [7; 4096]).unwrap();
    let build = || {
        ferofs().args(["build", "--offset", "4096"]).args([fixture.source(), output.clone()]).run()
    };
    build().success();
    assert_eq!(fs::read(&output).unwrap()[..4096], [7; 4096]);
    build().success();
    fs::write(&output, [7; 10_000]).unwrap();
    assert!(build().failure(1).stderr.contains("--force"));
}

#[test]
fn bytes_before_the_offset_that_cannot_be_read_are_not_lost() {
    require!(
        need::root("becoming an ordinary user")
            && need::tool("setpriv", "an ordinary user").is_some()
    );
    let fixture = Fixture::empty();
    let directory = fixture.directory("of nobody");
    let output = directory.join("output");
    fs::write(&output, [7; 4096]).unwrap();
    let nobody = |path: &Path, mode| {
        chown(path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    nobody(&output, 0o200);
    nobody(&directory, 0o755);
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = fixture.path("ferofs");
    fs::copy(ferofs_path(), &program).unwrap();
    for force in [&[][..], &["--force"]] {
        let nobody =
            Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        let build = nobody.arg(&program).args(["build", "--offset", "4096"]).args(force);
        let failed = build.args([fixture.source(), output.clone()]).run().failure(1);
        assert!(failed.stderr.contains("Permission denied"), "{}", failed.stderr);
        assert_eq!(fs::read(&output).unwrap(), [7; 4096], "{force:?}");
    }
}

#[test]
fn a_device_with_a_file_system_is_not_written() {
    let tools =
        ["losetup", "mkfs.ext4"].map(|tool| need::tool(tool, "a device with a file system"));
    if !need::root("a loop device") || tools.contains(&None) {
        return;
    }
    let fixture = Fixture::empty();
    let disk = fixture.path("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let attached = Run::new("losetup").args(["--find", "--show"]).arg(&disk).run().success();
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let build = |options: &[&str]| {
        ferofs().arg("build").args(options).arg(fixture.source()).arg(&device).run()
    };
    let made = [
        // An empty device, and one with an image.
        build(&[]),
        build(&[]),
        Run::new("mkfs.ext4").args(["-qF", &device]).run(),
        build(&[]),
        build(&["--offset", "1M"]),
        build(&["--force"]),
    ];
    let as_before = Run::new("mkfs.ext4").args(["-qF", &device]).run();
    let mkfs = mkfs_command(&fixture).arg(&device).arg(fixture.source()).run();
    Run::new("losetup").args(["-d", &device]).run().success();
    assert_eq!(made.each_ref().map(|outcome| outcome.code), [0, 0, 0, 1, 1, 0], "{made:?}");
    for refused in &made[3..5] {
        assert!(
            refused.stderr.contains("has an ext2, ext3 or ext4 file system"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!((as_before.code, mkfs.code), (0, 0), "{}", mkfs.stderr);
}

#[test]
fn two_outputs_are_not_one_file() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), [b'x'; 9000]).unwrap();
    let old = fixture.build("old", ["-T", "1"]);
    let (new, source) = (fixture.path("new"), fixture.source());
    let with = |option: &str, path: &Path| {
        let mut option = OsString::from(format!("{option}="));
        option.push(path);
        option
    };
    let commands: [Vec<OsString>; 4] = [
        vec![
            "build".into(),
            "--chunk-size=4096".into(),
            with("--chunk-device", &new),
            source.clone().into(),
            new.clone().into(),
        ],
        vec!["build".into(), with("--verity", &new), source.clone().into(), new.clone().into()],
        vec!["extract".into(), with("--tar", &new), with("--metadata", &new), old.clone().into()],
        vec![
            "extract".into(),
            with("--metadata", &new),
            with("--metadata", &new),
            old.clone().into(),
        ],
    ];
    for command in commands {
        let refused = ferofs().args(&command).run();
        assert!(refused.stderr.contains("another output"), "{command:?}: {}", refused.stderr);
        assert!(refused.code != 0 && !new.exists(), "{command:?}");
    }
    let target = fixture.directory("target");
    let inside = with("--metadata", &target.join("meta.json"));
    let refused = ferofs().arg("extract").arg(inside).args([&old, &target]).run().failure(1);
    assert!(refused.stderr.contains("in the directory to extract to"), "{}", refused.stderr);
    // Links lead to the file that is written, also one that does not exist yet.
    let (link, into) = (fixture.path("link"), fixture.path("into"));
    symlink("new", &link).unwrap();
    symlink("target/file", &into).unwrap();
    let twice = [with("--tar", &link), with("--metadata", &new)];
    let refused = ferofs().arg("extract").args(twice).arg(&old).run().failure(1);
    assert!(refused.stderr.contains("another output") && !new.exists(), "{}", refused.stderr);
    let refused = ferofs()
        .arg("extract")
        .arg(with("--metadata", &into))
        .args([&old, &target])
        .run()
        .failure(1);
    assert!(refused.stderr.contains("in the directory to extract to"), "{}", refused.stderr);
    for option in ["--blobdev", "--block-list-file", "--vmdk-desc"] {
        let words = [
            OsString::from("--chunksize=4096"),
            with(option, &new),
            new.clone().into(),
            source.clone().into(),
        ];
        let refused = mkfs_command(&fixture).args(words).run();
        assert!(refused.code != 0 && !new.exists(), "{option}: {}", refused.stderr);
    }
}

#[test]
fn an_empty_expression_does_not_exclude_everything() {
    let fixture = Fixture::empty();
    let refused = ferofs()
        .args(["build", "--exclude-regex", ""])
        .args([fixture.source(), fixture.path("new")])
        .run();
    assert!(
        refused.code == 2 && refused.stderr.contains("matches every path"),
        "{}",
        refused.stderr
    );
}

/// A device is written in place, so that no source may be on it; an index needs its source, wherever it is.
#[test]
fn a_source_is_not_written_over() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), [b'x'; 9000]).unwrap();
    let old = fixture.build("old", ["-T", "1", "-z", "none"]);
    let before = fs::read(&old).unwrap();
    let mut refused = vec![ferofs().args(["build", "--index-only"]).args([&old, &old]).run()];
    refused.push(mkfs_command(&fixture).args([&old, &old, &old]).run());
    if need::root("a loop device") && need::tool("losetup", "a loop device").is_some() {
        let attached = Run::new("losetup").args(["--find", "--show"]).arg(&old).run().success();
        let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
        refused.push(ferofs().arg("build").args([&device, &device]).run());
        refused.push(ferofs().args(["patch", "squash", &device, &device]).run());
        let source = fixture.source();
        refused.push(
            ferofs().args(["patch", "create", "--force", "-o", &device, &device]).arg(source).run(),
        );
        refused.push(mkfs_command(&fixture).args([&device, &device]).run());
        Run::new("losetup").args(["-d", &device]).run().success();
    }
    for outcome in refused {
        assert!(
            outcome.code == 1 && outcome.stderr.contains("also an input"),
            "{}",
            outcome.stderr
        );
    }
    assert!(fs::read(&old).unwrap() == before);
}

/// A private image stays private when it is built again, and a link to a file leads to it before and after it exists.
#[test]
fn a_replaced_output_keeps_its_owner_permissions_and_links() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "file").unwrap();
    let image = fixture.path("private");
    let build = |output: &Path| {
        ferofs().args(["build", "-q"]).args([&fixture.source(), output]).run().success();
    };
    for (owner, permissions) in [(None, 0o600), (Some(1234), 0o640)] {
        build(&image);
        fs::set_permissions(&image, fs::Permissions::from_mode(permissions)).unwrap();
        let owner = owner.filter(|_| rustix::process::geteuid().is_root());
        chown(&image, owner, owner).unwrap();
        let before = fs::metadata(&image).unwrap();
        build(&image);
        let after = fs::metadata(&image).unwrap();
        assert_ne!(before.ino(), after.ino());
        assert_eq!(
            (after.uid(), after.gid(), after.mode()),
            (before.uid(), before.gid(), before.mode())
        );
    }
    let (first, second) = (fixture.path("first"), fixture.path("second"));
    symlink("second", &first).unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    symlink("dir/image", &second).unwrap();
    for _ in 0..2 {
        build(&first);
        assert!(
            [&first, &second].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink())
        );
        assert!(fs::symlink_metadata(fixture.path("dir/image")).unwrap().is_file());
    }
}

#[test]
fn no_directory_or_pulled_image_is_named_like_standard_output() {
    let fixture = Fixture::empty();
    let image = fixture.build("image", ["-T", "1"]);
    let dir = fixture.directory("empty");
    let refused = ferofs().arg("extract").arg(image).arg("-").dir(&dir).run().failure(1);
    assert!(refused.stderr.contains("--tar -"), "{}", refused.stderr);
    ferofs().args(["pull", "http://127.0.0.1:9/image", "-"]).dir(&dir).run().failure(1);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}
