//! Commands for which a system call fails, waits or runs out of space.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferofs_tests::run::ferofs_path;
use ferofs_tests::{ferofs, need, tree};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::fixture::Fixture;
use crate::common::mkfs::mkfs_command;

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
        assert!(matches!(output.status.code(), Some(1 | 8)), "{words:?}: {}: {stderr}", output.status);
        assert!(stderr.contains("start a thread"), "{words:?}: {stderr}");
        assert!(!other.exists(), "{words:?} leaves a file");
    }
    ferofs().arg("check").arg(&image).run().success();
}

#[test]
fn on_a_full_disk_the_old_archive_stays() {
    if !need::root("a full disk: a tmpfs") {
        return;
    }
    let fixture = Fixture::new(&tree::Options { largest: 9_000_000, ..tree::Options::small() });
    let (image, disk) = (fixture.path("image"), fixture.directory("disk"));
    ferofs().arg("build").args([fixture.source(), image.clone()]).run().success();
    rustix::mount::mount("tmpfs", &disk, "tmpfs", rustix::mount::MountFlags::empty(), c"size=2m").unwrap();
    fs::write(disk.join("archive"), "old").unwrap();
    let outcome = ferofs().args(["extract", "--tar"]).args([disk.join("archive"), image]).run();
    let (left, old) = (fs::read_dir(&disk).unwrap().count(), fs::read(disk.join("archive")));
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
    outcome.failure(1);
    assert_eq!((left, old.unwrap()), (1, b"old".to_vec()));
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
    ferofs().args(["extract", "--tar", "/dev/null", "--metadata", "/dev/null"]).arg(&image).run().success();
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
    let (image, fifo, other) = (fixture.build("image", [""; 0]), fixture.path("fifo"), fixture.path("other"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let paths = |words: &[&str]| -> Vec<_> { words.iter().map(|word| fixture.path(word)).collect() };
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
    assert!(outcome.stderr.contains("existing: write: is a directory"), "{}", outcome.stderr);
}
