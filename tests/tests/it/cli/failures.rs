//! Commands for which a system call fails, waits or runs out of space.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferofs_tests::compare::{Field, compare};
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, ferofs, need, tree};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::erofs_utils::mkfs_command;
use crate::common::fixture::{Fixture, same};

/// A stack size larger than the address space: no thread can be started.
const NO_STACK: &str = "1152921504606846976";

#[test]
fn without_threads_commands_end_with_a_message() {
    let fixture = Fixture::new(&tree::Options::small());
    let image = fixture.path("image");
    ferofs().arg("build").args([fixture.source(), image.clone()]).run().success();
    let other = fixture.path("other");
    let commands: [(&[&str], Vec<_>); 7] = [
        (&["build", "-z", "lz4", "--verify"], vec![fixture.source(), other.clone()]),
        (&["build", "--chunk-size", "4096"], vec![fixture.source(), other.clone()]),
        (&["check", "--deep"], vec![image.clone()]),
        (&["extract"], vec![image.clone(), fixture.path("tree")]),
        (&["extract", "--tar"], vec![other.clone(), image.clone()]),
        (&["patch", "create", "-o"], vec![other.clone(), image.clone(), fixture.source()]),
        (&["patch", "add"], vec![image.clone(), fixture.source()]),
    ];
    for (words, paths) in commands {
        let output = Command::new(ferofs_path())
            .env("RUST_MIN_STACK", NO_STACK)
            .args(words)
            .args(paths)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(1 | 8)),
            "{words:?}: {}: {stderr}",
            output.status
        );
        assert!(stderr.contains("start a thread"), "{words:?}: {stderr}");
        assert!(!other.exists(), "{words:?} leaves a file");
    }
    ferofs().arg("check").arg(&image).run().success();
}

#[test]
fn on_a_full_disk_the_old_archive_stays() {
    require!(need::root("a full disk: a tmpfs"));
    let fixture = Fixture::new(&tree::Options { largest: 9_000_000, ..tree::Options::small() });
    let (image, disk) = (fixture.path("image"), fixture.directory("disk"));
    ferofs().arg("build").args([fixture.source(), image.clone()]).run().success();
    rustix::mount::mount("tmpfs", &disk, "tmpfs", rustix::mount::MountFlags::empty(), c"size=2m")
        .unwrap();
    fs::write(disk.join("archive"), "old").unwrap();
    let outcome = ferofs().args(["extract", "--tar"]).args([disk.join("archive"), image]).run();
    let (left, old) = (fs::read_dir(&disk).unwrap().count(), fs::read(disk.join("archive")));
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
    outcome.failure(1);
    assert_eq!((left, old.unwrap()), (1, b"old".to_vec()));
}

#[test]
fn extraction_to_a_full_or_read_only_disk_stops_at_the_first_file() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
    require!(need::root("a full disk: a tmpfs"));
    let fixture = Fixture::empty();
    for number in 0..50 {
        fs::write(fixture.source().join(format!("file{number}")), vec![b'x'; 200_000]).unwrap();
    }
    let (image, disk) = (fixture.build("image", [""; 0]), fixture.directory("disk"));
    let extract = || ferofs().arg("extract").args([&image, &disk]).run();
    mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), c"size=2m").unwrap();
    let full = extract();
    let made = fs::read_dir(&disk).unwrap().count();
    unmount(&disk, UnmountFlags::DETACH).unwrap();
    mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), c"size=2m").unwrap();
    mount_remount(&disk, MountFlags::RDONLY, c"").unwrap();
    let read_only = extract();
    unmount(&disk, UnmountFlags::DETACH).unwrap();
    for (outcome, reason) in [(full, "No space left"), (read_only, "Read-only file system")] {
        let stderr = outcome.failure(1).stderr;
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("file") && stderr.contains(reason), "{stderr}");
    }
    assert!(made < 20, "{made} files of 50");
}

/// A file system without attributes: each lost one is told once, and a lost capability is a failure.
#[test]
fn attributes_that_the_target_cannot_have_are_told_once() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    require!(need::root("a file system without attributes: ramfs"));
    let fixture = Fixture::on_disk(&tree::Options { deep: 0, wide: 0, ..tree::Options::small() });
    fs::remove_dir_all(fixture.source()).unwrap();
    fs::create_dir(fixture.source()).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| {
        let path = fixture.source().join(name);
        fs::write(&path, name).unwrap();
        rustix::fs::lsetxattr(&path, key, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    for name in ["a", "b", "c"] {
        set(name, "security.x", b"1");
    }
    set("d", "trusted.y", b"2");
    let plain = fixture.build("plain", [""; 0]);
    // cap_net_raw, permitted and effective: capabilities(7), struct vfs_cap_data.
    let mut capability = 0x0200_0001u32.to_le_bytes().to_vec();
    capability.extend([0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    set("e", "security.capability", &capability);
    let capable = fixture.build("capable", [""; 0]);

    let disk = fixture.directory("disk");
    let extract = |image: &std::path::Path, options: &[&str]| {
        mount("ramfs", &disk, "ramfs", MountFlags::empty(), None).unwrap();
        let outcome =
            ferofs().arg("extract").args(options).arg("--workers=1").args([image, &disk]).run();
        let names = fs::read_dir(&disk).unwrap().count();
        unmount(&disk, UnmountFlags::DETACH).unwrap();
        (outcome, names)
    };
    let (outcome, names) = extract(&plain, &[]);
    let stderr = outcome.success().stderr;
    assert_eq!((stderr.lines().count(), names), (2, 4), "{stderr}");
    assert!(stderr.contains("a and 2 more files: attribute security.x is lost: "), "{stderr}");
    assert!(stderr.contains("d: attribute trusted.y is lost: "), "{stderr}");
    let (outcome, names) = extract(&capable, &[]);
    let stderr = outcome.failure(1).stderr;
    assert_eq!((stderr.lines().count(), names), (3, 5), "{stderr}");
    assert!(stderr.contains("e: attribute security.capability is lost: "), "{stderr}");
    assert_eq!(extract(&capable, &["--no-xattrs"]).0.success().stderr, "");
}

/// A mount namespace without `/proc`, as in some chroots and initramfs.
#[test]
fn without_proc_only_special_files_lose_attributes() {
    require!(need::root("a mount namespace without /proc"));
    let Some(unshare) = need::tool("unshare", "a namespace without /proc") else { return };
    let fixture = Fixture::on_disk(&tree::Options { deep: 0, ..tree::Options::small() });
    let (image, target) = (fixture.path("image"), fixture.path("target"));
    let script = "mount -t tmpfs none /proc && \"$0\" build -q -z lz4 \"$1\" \"$2\" && \"$0\" extract -q \"$2\" \"$3\"";
    let line = Run::new(unshare).args(["--mount", "sh", "-c", script]);
    let outcome =
        line.arg(ferofs_path()).args([&fixture.source(), &image, &target]).run().success();
    ferofs().arg("diff").args([&fixture.source(), &image]).run().success();
    let report = compare(&fixture.source(), &target, &same()).unwrap();
    assert!(report.count > 0, "the tree has no attributes of special files");
    for difference in &report.differences {
        assert!(matches!(difference.field, Field::Xattr(_)), "{difference}");
        let file = fs::symlink_metadata(fixture.source().join(&difference.path)).unwrap();
        assert!(!file.is_file() && !file.is_dir(), "{difference}");
    }
    assert!(outcome.stderr.contains(" is lost: "), "{}", outcome.stderr);
}

#[test]
fn with_few_descriptors_commands_work_or_say_what_to_raise() {
    let fixture = Fixture::new(&tree::Options { deep: 0, ..tree::Options::small() });
    let image = fixture.build("image", [""; 0]);
    let mut refused = 0;
    for limit in [8, 256] {
        let (other, target) =
            (fixture.path(&format!("other{limit}")), fixture.path(&format!("target{limit}")));
        for (words, paths) in [
            (&["build", "-q", "-z", "lz4"][..], [&fixture.source(), &other].as_slice()),
            (&["check", "-q", "--deep"], &[&image]),
            (&["extract", "-q"], &[&image, &target]),
        ] {
            let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\" --workers 8");
            let line = Run::new("sh").args(["-c", &script]).arg(ferofs_path());
            let outcome = line.args(words).args(paths).run();
            if limit == 8 && outcome.code != 0 {
                assert!(outcome.stderr.contains("ulimit -n"), "{words:?}: {}", outcome.stderr);
                assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
                refused += 1;
            } else {
                outcome.success();
            }
        }
    }
    fixture.assert_same_as_source(&fixture.path("target256"));
    assert!(refused < 3, "no command works");
}

#[test]
fn an_output_replaces_a_file_but_is_written_into_a_device() {
    let fixture = Fixture::new(&tree::Options::small());
    let (image, page) = (fixture.path("image"), fixture.path("page"));
    ferofs().arg("build").args([fixture.source(), image.clone()]).run().success();
    fs::write(&page, "<!DOCTYPE html>").unwrap();
    let inode = fs::metadata(&page).unwrap().ino();
    ferofs().args(["inspect", "--html"]).args([page.clone(), image.clone()]).run().success();
    // A new inode: a program that still reads the old file sees the old data.
    assert_ne!(fs::metadata(&page).unwrap().ino(), inode);
    ferofs()
        .args(["extract", "--tar", "/dev/null", "--metadata", "/dev/null"])
        .arg(&image)
        .run()
        .success();
}

#[test]
fn an_archive_of_zeroes_is_built_with_a_warning() {
    let fixture = Fixture::empty();
    let zeroes = fixture.path("zeroes");
    fs::write(&zeroes, [0; 10_240]).unwrap();
    let outcome = ferofs().arg("build").args([zeroes, fixture.path("image")]).run().success();
    assert!(outcome.stderr.contains("without members"), "{}", outcome.stderr);
}

/// Commands that wait for a FIFO without a writer, or for a pipe without data.
#[test]
fn a_signal_ends_a_command_that_waits_for_a_pipe() {
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let (image, fifo, other) =
        (fixture.build("image", [""; 0]), fixture.path("fifo"), fixture.path("other"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let paths =
        |words: &[&str]| -> Vec<_> { words.iter().map(|word| fixture.path(word)).collect() };
    let commands: [(&[&str], Vec<_>); 4] = [
        (&["build"], paths(&["fifo", "other"])),
        (&["build", "-"], paths(&["other"])),
        (&["patch", "create", "-o"], paths(&["other", "image", "fifo"])),
        (&["extract", "--tar"], paths(&["fifo", "image"])),
    ];
    for (words, paths) in commands {
        let mut child = Command::new(ferofs_path())
            .args(words)
            .args(&paths)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "{words:?} does not wait");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{words:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!child.wait().unwrap().success() && !other.exists(), "{words:?}");
    }
    ferofs().arg("check").arg(&image).run().success();
}

#[test]
fn an_output_that_is_also_an_input_is_refused() {
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let (image, archive) = (fixture.build("image", [""; 0]), fixture.path("archive.tar"));
    ferofs().args(["extract", "--tar"]).args([&archive, &image]).run().success();
    let (source, link) = (fixture.source(), fixture.path("link"));
    fs::hard_link(&image, &link).unwrap();
    let before = [fs::read(&image).unwrap(), fs::read(&archive).unwrap()];
    for (words, paths) in [
        (&["patch", "create", "-o"][..], [&link, &image, &source].as_slice()),
        (&["extract", "--tar"], &[&link, &image]),
        (&["build"], &[&archive, &archive]),
    ] {
        let outcome = ferofs().args(words).args(paths).run().failure(1);
        assert!(outcome.stderr.contains("the output file is also an input"), "{}", outcome.stderr);
    }
    let outcome = mkfs_command(&fixture).arg("--tar=f").args([&archive, &archive]).run().failure(1);
    assert!(outcome.stderr.contains("the output file is also an input"), "{}", outcome.stderr);
    assert!(before == [fs::read(&image).unwrap(), fs::read(&archive).unwrap()]);
    // An image may replace its source: it is read completely before.
    ferofs().arg("build").args([&image, &image]).run().success();
    ferofs().arg("diff").args([&image, &link]).run().success();
}

#[test]
fn a_full_standard_output_has_its_own_exit_code() {
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(ferofs_path())
        .args(["build", "-q"])
        .arg(fixture.source())
        .arg("-")
        .stdout(full())
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn outputs_that_cannot_be_written_are_named() {
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let build = || ferofs().arg("build").arg(fixture.source());
    let outcome = build().arg("-").env("TMPDIR", "/missing").run().failure(1);
    assert!(
        outcome.stderr.contains("/missing: make a temporary file in: No such file"),
        "{}",
        outcome.stderr
    );
    let outcome = build().arg(fixture.directory("existing")).run().failure(1);
    assert!(
        outcome.stderr.contains("existing: is a directory: the image comes last"),
        "{}",
        outcome.stderr
    );
}
