//! Commands for which a system call fails, waits or runs out of space.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferofs_tests::compare::{Field, compare};
use ferofs_tests::{Mount, Run, ferofs, ferofs_path, need, run, tree};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::fixture::{Fixture, names, same};

/// A stack size larger than the address space: no thread can be started.
const NO_STACK: &str = "1152921504606846976";

#[test]
fn without_threads_commands_end_with_a_message() {
    let fixture = Fixture::small();
    fixture.line("build @source @image").success();
    for line in [
        "build -z lz4 --verify @source @other",
        "build --chunk-size 4096 @source @other",
        "check --deep @image",
        "extract @image @tree",
        "extract --tar @other @image",
        "patch create -o @other @image @source",
        "patch add @image @source",
    ] {
        let outcome = fixture.line(line).env("RUST_MIN_STACK", NO_STACK).run();
        assert!(matches!(outcome.code, 1 | 8), "{line}: {}", outcome.code);
        outcome.says("start a thread");
        assert!(!fixture.path("other").exists(), "{line} leaves a file");
    }
    fixture.line("check @image").success();
}

#[test]
fn extraction_to_a_full_or_read_only_disk_stops_early() {
    require!(need::root());
    let fixture = Fixture::empty();
    for number in 0..50 {
        fixture.write(format!("file{number}"), vec![b'x'; 200_000]);
    }
    fixture.build("image", [""; 0]);
    let disk = fixture.directory("disk");
    let extract = |options: &str| {
        let _mount = Mount::memory("tmpfs", options, &disk);
        (fixture.line("extract @image @disk").run(), names(&disk).len())
    };
    let ((full, made), (read_only, _)) = (extract("size=2m"), extract("size=2m,ro"));
    for (outcome, reason) in [(full, "No space left"), (read_only, "Read-only file system")] {
        let stderr = outcome.failure(1).stderr;
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("file") && stderr.contains(reason), "{stderr}");
    }
    assert!(made < 20, "{made} files of 50");
}

/// A file system without attributes: each lost one is told once, and a lost capability is a
/// failure.
#[test]
fn attributes_that_the_target_cannot_have_are_told_once() {
    require!(need::root());
    let fixture = Fixture::on_disk(&tree::Options::small());
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
    fixture.build("plain", [""; 0]);
    // cap_net_raw, permitted and effective: capabilities(7), struct vfs_cap_data.
    let mut capability = 0x0200_0001u32.to_le_bytes().to_vec();
    capability.extend([0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    set("e", "security.capability", &capability);
    fixture.build("capable", [""; 0]);

    let disk = fixture.directory("disk");
    let extract = |line: &str| {
        let _mount = Mount::memory("ramfs", "rw", &disk);
        let outcome = fixture.line(&format!("extract --workers=1 {line} @disk")).run();
        (outcome, names(&disk).len())
    };
    let (outcome, made) = extract("@plain");
    let stderr = outcome.success().stderr;
    assert_eq!((stderr.lines().count(), made), (2, 4), "{stderr}");
    assert!(stderr.contains("a and 2 more files: attribute security.x is lost: "), "{stderr}");
    assert!(stderr.contains("d: attribute trusted.y is lost: "), "{stderr}");
    let (outcome, made) = extract("@capable");
    let stderr = outcome.failure(1).stderr;
    assert_eq!((stderr.lines().count(), made), (3, 5), "{stderr}");
    assert!(stderr.contains("e: attribute security.capability is lost: "), "{stderr}");
    assert_eq!(extract("--no-xattrs @capable").0.success().stderr, "");
}

/// A mount namespace without `/proc`, as in some chroots and initramfs.
#[test]
fn without_proc_only_special_files_lose_attributes() {
    require!(need::root());
    let Some(unshare) = need::tool("unshare") else { return };
    let fixture = Fixture::on_disk(&tree::Options::small());
    let (image, target) = (fixture.path("image"), fixture.path("target"));
    let script = "mount -t tmpfs none /proc && \"$0\" build -q -z lz4 \"$1\" \"$2\" && \"$0\" extract -q \"$2\" \"$3\"";
    let line = Run::new(unshare).args(["--mount", "sh", "-c", script]);
    let outcome = line.arg(ferofs_path()).args([&fixture.source(), &image, &target]).success();
    ferofs!("diff", fixture.source(), &image).success();
    let report = compare(&fixture.source(), &target, &same()).unwrap();
    assert!(report.count > 0, "the tree has no attributes of special files");
    for difference in &report.differences {
        assert!(matches!(difference.field, Field::Xattr(_)), "{difference}");
        let file = fs::symlink_metadata(fixture.source().join(&difference.path)).unwrap();
        assert!(!file.is_file() && !file.is_dir(), "{difference}");
    }
    outcome.says(" is lost: ");
}

#[test]
fn with_few_descriptors_commands_work_or_say_what_to_raise() {
    let fixture = Fixture::small();
    fixture.build("image", [""; 0]);
    let mut refused = 0;
    for limit in [8, 256] {
        for line in [
            &*format!("build -q -z lz4 @source @other{limit}"),
            "check -q --deep @image",
            &format!("extract -q @image @target{limit}"),
        ] {
            let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\" --workers 8");
            let outcome = run!("sh -c", &script, ferofs_path()).args(fixture.words(line)).run();
            if limit == 8 && outcome.code != 0 {
                outcome.says("ulimit -n");
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
    let fixture = Fixture::small();
    fixture.line("build @source @image").success();
    let page = fixture.path("page");
    fs::write(&page, "<!DOCTYPE html>").unwrap();
    let inode = fs::metadata(&page).unwrap().ino();
    fixture.line("inspect --html @page @image").success();
    // A new inode: a program that still reads the old file sees the old data.
    assert_ne!(fs::metadata(&page).unwrap().ino(), inode);
    fixture.line("extract --tar /dev/null --metadata /dev/null @image").success();
}

#[test]
fn an_archive_of_zeroes_is_built_with_a_warning() {
    let fixture = Fixture::empty();
    fs::write(fixture.path("zeroes"), [0; 10_240]).unwrap();
    fixture.line("build @zeroes @image").success().says("without members");
}

/// Commands that wait for a FIFO without a writer, or for a pipe without data.
#[test]
fn a_signal_ends_a_command_that_waits_for_a_pipe() {
    let fixture = Fixture::small();
    fixture.build("image", [""; 0]);
    run!("mkfifo", fixture.path("fifo")).success();
    for line in [
        "build @fifo @other",
        "build - @other",
        "patch create -o @other @image @fifo",
        "extract --tar @fifo @image",
    ] {
        let mut child = Command::new(ferofs_path())
            .args(fixture.words(line))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "{line} does not wait");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{line} does not end");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!child.wait().unwrap().success() && !fixture.path("other").exists(), "{line}");
    }
    fixture.line("check @image").success();
}

#[test]
fn an_output_that_is_also_an_input_is_refused() {
    let fixture = Fixture::small();
    let image = fixture.build("image", [""; 0]);
    fixture.line("extract --tar @archive.tar @image").success();
    fs::hard_link(&image, fixture.path("link")).unwrap();
    let both = || ["image", "archive.tar"].map(|name| fs::read(fixture.path(name)).unwrap());
    let before = both();
    for run in [
        fixture.line("patch create -o @link @image @source"),
        fixture.line("extract --tar @link @image"),
        fixture.line("build @archive.tar @archive.tar"),
        fixture.tool("mkfs.erofs --tar=f @archive.tar @archive.tar"),
    ] {
        run.failure(1).says("the output file is also an input");
    }
    assert!(before == both());
    // These are two files.
    let archive = fs::read(fixture.path("archive.tar")).unwrap();
    let built = fixture.line("build -q - -").piped(archive).success();
    fixture.line("build @archive.tar @of-archive").success();
    fs::write(fixture.path("built"), built.stdout).unwrap();
    fixture.line("diff @of-archive @built").success();
    // An image may replace its source: it is read completely before.
    fixture.line("build @image @image").success();
    fixture.line("diff @image @link").success();
}

#[test]
fn outputs_that_cannot_be_written_are_named() {
    let fixture = Fixture::small();
    let to_stdout = fixture.line("build -q @source -").env("TMPDIR", "/missing").failure(1);
    to_stdout.says("/missing: make a temporary file in: No such file");
    fixture.directory("existing");
    let message = "existing: is a directory: the image comes last";
    fixture.line("build @source @existing").failure(1).says(message);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut build = Command::new(ferofs_path());
    build.args(fixture.words("build -q @source -")).stdout(full);
    assert_eq!(build.status().unwrap().code(), Some(2));
}
