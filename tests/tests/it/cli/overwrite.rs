//! Outputs replace files of their own kind, and nothing else without --force.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;

use ferofs_tests::tar::{archive, file};
use ferofs_tests::{LoopDevice, ferofs, need, run};

use crate::common::fixture::{Fixture, chmod, names, set_len};

const THESIS: &[u8] = b"The thesis, of which there is no copy.\n";

/// Runs a command with `output`, which exists: as text, and then as what the command wrote.
#[track_caller]
fn assert_protected(fixture: &Fixture, line: &str, output: &Path) {
    fs::write(output, THESIS).unwrap();
    let refused = fixture.line(line).run();
    assert_ne!(refused.code, 0, "{line}");
    refused.says("--force");
    refused.says(output.to_str().unwrap());
    assert_eq!(fs::read(output).unwrap(), THESIS, "{line}");
    fixture.line(line).arg("--force").success();
    assert_ne!(fs::read(output).unwrap(), THESIS, "{line}");
    // What the command has written can be replaced.
    fixture.line(line).success();
    fs::write(output, b"").unwrap();
    fixture.line(line).success();
    assert_ne!(fs::read(output).unwrap(), b"", "{line}");
}

#[test]
fn manual_pages_replace_only_manual_pages() {
    let fixture = Fixture::empty();
    let (pages, thesis) = (fixture.directory("pages"), fixture.path("thesis"));
    fs::write(&thesis, THESIS).unwrap();
    symlink(&thesis, pages.join("ferofs-build.1")).unwrap();
    fixture.line("man @pages").failure(1).says("not a manual page");
    assert_eq!(fs::read(&thesis).unwrap(), THESIS);
    assert_eq!(names(&pages), ["ferofs-build.1"], "nothing else is written");
    fs::remove_file(pages.join("ferofs-build.1")).unwrap();
    // Nobody reads it, so that writing would wait for ever.
    run!("mkfifo", pages.join("ferofs.1")).success();
    fixture.line("man @pages").failure(1).says("not a regular file");
    fs::remove_file(pages.join("ferofs.1")).unwrap();
    fixture.line("man @pages").success();
    assert_protected(&fixture, "man @pages", &pages.join("ferofs.1"));
}

#[test]
fn no_output_replaces_another_kind_of_file() {
    let fixture = Fixture::empty();
    fixture.write("file", "file");
    fixture.build("old", ["-T", "1"]);
    fixture.write("new", "new");
    for line in [
        "build @source @output",
        "build --verity=@output @source @image",
        "build --verity --roothash-file=@output @source @image",
        "patch create --output=@output @old @source",
        "patch squash @old @output",
        "extract --tar=@output @old",
        "extract --metadata=@output @old",
        "inspect --html=@output @old",
        "verity format --hash-file=@output @old",
        "verity format --roothash-file=@output @old",
    ] {
        assert_protected(&fixture, line, &fixture.path("output"));
    }
    // Data of chunks looks like any other data.
    let chunks = "build --chunk-size=4096 --chunk-device=@output @source @image";
    fixture.line(chunks).arg("--force").success();
    fixture.line(chunks).failure(1).says("--force");
    for name in ["fs_config", "file_contexts"] {
        fs::write(fixture.path(name), THESIS).unwrap();
        fixture.line(&format!("extract --metadata=@{name} @old")).failure(1).says("--force");
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
    let message = "b.tar: exists and is a tar archive, not an EROFS image";
    ferofs!("build", &a, &b).failure(1).says(message);
    assert_eq!(fs::read(&b).unwrap(), bytes);
    // As erofs-utils, which replaces whatever it is.
    fixture.tool("mkfs.erofs @b.tar @source").success();
    assert_ne!(fs::read(&b).unwrap(), bytes);
}

#[test]
fn an_image_after_other_data_leaves_that_alone() {
    let fixture = Fixture::empty();
    let output = fixture.path("output");
    fs::write(&output, [7; 4096]).unwrap();
    let build = || fixture.line("build --offset 4096 @source @output");
    build().success();
    assert_eq!(fs::read(&output).unwrap()[..4096], [7; 4096]);
    build().success();
    fs::write(&output, [7; 10_000]).unwrap();
    build().failure(1).says("--force");
}

#[test]
fn bytes_before_the_offset_that_cannot_be_read_are_not_lost() {
    require!(need::root() && need::tool("setpriv").is_some());
    let fixture = Fixture::empty();
    let (directory, output) = (fixture.directory("nobody"), fixture.path("nobody/output"));
    fs::write(&output, [7; 4096]).unwrap();
    for (path, mode) in [(&output, 0o200), (&directory, 0o755)] {
        chown(path, Some(65534), Some(65534)).unwrap();
        chmod(path, mode);
    }
    fixture.for_all_users(&fixture.directory("any"));
    for force in ["", "--force"] {
        let line = format!("build --offset 4096 {force} @source @nobody/output");
        fixture.as_user().args(fixture.words(&line)).failure(1).says("Permission denied");
        assert_eq!(fs::read(&output).unwrap(), [7; 4096], "{force:?}");
    }
}

#[test]
fn a_device_with_a_file_system_is_not_written() {
    require!(need::tool("mkfs.ext4").is_some());
    let fixture = Fixture::empty();
    let disk = fixture.path("disk");
    set_len(&disk, 64 << 20);
    let Some(device) = LoopDevice::attach(&disk, &[]) else { return };
    let build =
        |options: &str| fixture.line(&format!("build {options} @source")).arg(&device).run();
    let made = [
        // An empty device, and one with an image.
        build(""),
        build(""),
        run!("mkfs.ext4 -qF", &device).run(),
        build(""),
        build("--offset 1M"),
        build("--force"),
    ];
    let as_before = run!("mkfs.ext4 -qF", &device).run();
    let mkfs = fixture.tool("mkfs.erofs").arg(&device).arg(fixture.source()).run();
    drop(device);
    assert_eq!(made.each_ref().map(|outcome| outcome.code), [0, 0, 0, 1, 1, 0], "{made:?}");
    for refused in &made[3..5] {
        refused.says("has an ext2, ext3 or ext4 file system");
    }
    assert_eq!((as_before.code, mkfs.code), (0, 0), "{}", mkfs.stderr);
}

#[test]
fn two_outputs_are_not_one_file() {
    let fixture = Fixture::empty();
    fixture.write("file", [b'x'; 9000]);
    fixture.build("old", ["-T", "1"]);
    fixture.directory("target");
    let refused = |line: &str, message: &str| {
        let refused = fixture.line(line).run();
        assert!(refused.code != 0 && !fixture.path("new").exists(), "{line}");
        refused.says(message);
    };
    let another = "another output";
    refused("build --chunk-size=4096 --chunk-device=@new @source @new", another);
    refused("build --verity=@new @source @new", another);
    refused("extract --tar=@new --metadata=@new @old", another);
    refused("extract --metadata=@new --metadata=@new @old", another);
    let inside = "in the directory to extract to";
    refused("extract --metadata=@target/meta.json @old @target", inside);
    // Links lead to the file that is written, also one that does not exist yet.
    symlink("new", fixture.path("link")).unwrap();
    symlink("target/file", fixture.path("into")).unwrap();
    refused("extract --tar=@link --metadata=@new @old", another);
    refused("extract --metadata=@into @old @target", inside);
    for option in ["--blobdev", "--block-list-file", "--vmdk-desc"] {
        let line = format!("mkfs.erofs --chunksize=4096 {option}=@new @new @source");
        let refused = fixture.tool(&line).run();
        assert!(refused.code != 0 && !fixture.path("new").exists(), "{line}: {}", refused.stderr);
    }
}

#[test]
fn an_empty_expression_does_not_exclude_everything() {
    let fixture = Fixture::empty();
    fixture.line("build --exclude-regex= @source @new").fails(2, "matches every path");
}

/// A device is written in place, so that no source may be on it; an index needs its source,
/// wherever it is.
#[test]
fn a_source_is_not_written_over() {
    let fixture = Fixture::empty();
    fixture.write("file", [b'x'; 9000]);
    let old = fixture.build("old", ["-T", "1", "-z", "none"]);
    let before = fs::read(&old).unwrap();
    let mut refused = vec![
        fixture.line("build --index-only @old @old").run(),
        fixture.tool("mkfs.erofs @old @old @old").run(),
    ];
    if let Some(device) = LoopDevice::attach(&old, &[]) {
        refused.push(ferofs!("build", &device, &device).run());
        refused.push(ferofs!("patch squash", &device, &device).run());
        let source = fixture.source();
        refused.push(ferofs!("patch create --force -o", &device, &device, source).run());
        refused.push(fixture.tool("mkfs.erofs").args([&device, &device]).run());
    }
    for outcome in refused {
        outcome.failure(1).says("also an input");
    }
    assert!(fs::read(&old).unwrap() == before);
}

/// A private image stays private when it is built again, and a link to a file leads to it before
/// and after it exists.
#[test]
fn a_replaced_output_keeps_its_owner_permissions_and_links() {
    let fixture = Fixture::empty();
    fixture.write("file", "file");
    let image = fixture.path("private");
    let build = |output: &Path| {
        ferofs!("build -q", fixture.source(), output).success();
    };
    for (owner, permissions) in [(None, 0o600), (Some(1234), 0o640)] {
        build(&image);
        chmod(&image, permissions);
        let owner = owner.filter(|_| need::is_root());
        chown(&image, owner, owner).unwrap();
        let before = fs::metadata(&image).unwrap();
        build(&image);
        let after = fs::metadata(&image).unwrap();
        assert_ne!(before.ino(), after.ino());
        let kept = |file: &fs::Metadata| (file.uid(), file.gid(), file.mode());
        assert_eq!(kept(&after), kept(&before));
    }
    let (first, second) = (fixture.path("first"), fixture.path("second"));
    symlink("second", &first).unwrap();
    fixture.directory("dir");
    symlink("dir/image", &second).unwrap();
    for _ in 0..2 {
        build(&first);
        assert!(first.is_symlink() && second.is_symlink());
        assert!(fs::symlink_metadata(fixture.path("dir/image")).unwrap().is_file());
    }
}

#[test]
fn no_directory_or_pulled_image_is_named_like_standard_output() {
    let fixture = Fixture::empty();
    let image = fixture.build("image", ["-T", "1"]);
    let dir = fixture.directory("empty");
    ferofs!("extract", image, "-").dir(&dir).failure(2).says("--tar -");
    ferofs!("pull http://127.0.0.1:9/image -").dir(&dir).failure(1);
    assert_eq!(names(&dir), [""; 0]);
}
