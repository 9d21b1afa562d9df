//! Images that are in use while a command replaces them or writes to them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ferofs_tests::{
    LoopDevice, Mount, Outcome, Run, ferofs, ferofs_path, ferofs_with_fault, need, run,
};

use super::delta::{images, is_same};
use crate::common::fixture::{Fixture, chmod};
use crate::mount::daemon::eventually;

/// Linux before 6.12 mounts devices only.
const NOTBLK: i32 = rustix::io::Errno::NOTBLK.raw_os_error();

/// The images `old` and `new`, and `delta` from one to the other.
fn fixture() -> Fixture {
    let fixture = images("-z lz4");
    let [old, new, delta] = ["old", "new", "delta"].map(|name| fixture.path(name));
    ferofs!("delta create -o", &delta, &old, &new).success();
    fixture
}

fn delta_apply(fixture: &Fixture, out: &Path) -> Run {
    ferofs!("delta apply", fixture.path("old"), fixture.path("delta"), out)
}

#[test]
fn a_mounted_file_is_replaced_but_not_written() {
    require!(need::root() && need::fuse());
    let fixture = fixture();
    let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
    let dir = fixture.directory("mnt");
    let mut programs = vec![vec![ferofs_path().to_owned(), "delta".into(), "apply".into()]];
    if let Some(device) = need::device_program() {
        programs.push(vec![device, "delta".into()]);
    }
    type MountImage = fn(&Path, &Path) -> std::io::Result<Mount>;
    let mut ways: Vec<MountImage> = vec![|image, dir| Mount::fuse(ferofs_path(), image, dir)];
    if need::kernel_erofs() {
        ways.extend([Mount::kernel as MountImage, Mount::kernel_file]);
    }
    for (way, mount) in ways.into_iter().enumerate() {
        for program in &programs {
            fs::copy(&old, &out).unwrap();
            let mounted = match mount(&out, &dir) {
                Err(error) if way == 2 && error.raw_os_error() == Some(NOTBLK) => {
                    need::lacks(need::LINUX_6_12);
                    continue;
                }
                mounted => mounted.unwrap(),
            };
            // Commands that write in place say where the file is mounted, and change nothing.
            let by_descriptor = r#""$@" 3<>"$0""#;
            let written = run!("sh -c", by_descriptor, &out).args(program);
            for in_place in [
                ferofs!("verity format", &out),
                written.args([&old, &delta, Path::new("/dev/fd/3")]),
            ] {
                let Outcome { code, stderr: refused, .. } = in_place.run();
                let through = if way == 0 { " through FUSE" } else { "" };
                let place = format!("mounted{through} on {}", dir.display());
                assert!(code == 1 && refused.contains(&place), "{way}: {refused}");
                assert!(is_same(&out, &old));
            }
            Run::new(&program[0]).args(&program[1..]).args([&old, &delta, &out]).success();
            let before = ferofs!("cat", &old, Path::new("/file")).success().stdout;
            assert!(fs::read(mounted.path().join("file")).unwrap() == before, "{way}");
            assert!(!mounted.path().join("new").exists() && is_same(&out, &new), "{way}");
            mounted.unmount().unwrap();
        }
    }
}

#[test]
fn a_file_that_backs_a_mount_is_known_without_its_name() {
    require!(need::root() && need::fuse());
    let fixture = Fixture::small();
    let dir = fixture.directory("mnt");
    let [device, tree, root] = ["device", "tree", "root"].map(|name| fixture.path(name));
    let plain = fixture.build("plain", [""; 0]);
    let chunks = format!("--chunk-device={}", device.display());
    let split = fixture.build("split", ["--chunk-size", "4096", &chunks]);
    ferofs!("verity format --roothash-file", &root, "--hash-file", &tree, &plain).success();
    let refuses = |file: &Path, reason: &str| {
        let before = fs::read(file).unwrap();
        // The descriptor is of the command alone, and of the shell, too.
        for start in [r#""$@" 9<>"$0""#, r#"exec 9<>"$0"; "$@"; exit $?"#] {
            let run = run!("sh -c", start, file).arg(ferofs_path()).args(["build", "--force"]);
            run.arg(fixture.source()).arg("/dev/fd/9").failure(1).says(reason);
        }
        assert!(fs::read(file).unwrap() == before);
    };
    let option = |name: &str, file: &Path| OsString::from(format!("--{name}={}", file.display()));
    let own_name =
        [option("hash-file", &tree), option("roothash-file", &root), "-ofsname=foo".into()];
    let devices = [option("device", &device)];
    for (image, options, files) in
        [(&plain, &own_name[..], [&plain, &tree]), (&split, &devices, [&device; 2])]
    {
        let options: Vec<_> = options.iter().map(OsString::as_os_str).collect();
        let mounted = Mount::fuse_with(ferofs_path(), &options, image, &dir).unwrap();
        files.iter().for_each(|file| refuses(file, "which serves a mount through FUSE: unmount"));
        mounted.unmount().unwrap();
    }
    if let Some(device) = LoopDevice::attach(&plain, &[]) {
        let options = ["-ofsname=foo".as_ref()];
        let mounted = Mount::fuse_with(ferofs_path(), &options, device.path(), &dir).unwrap();
        refuses(device.path(), "which serves a mount through FUSE: unmount");
        mounted.unmount().unwrap();
    }
    // A program that only has the file open does not matter.
    let mut sleep = std::process::Command::new("sleep");
    let mut sleep = sleep.arg("100").stdin(fs::File::open(&plain).unwrap()).spawn().unwrap();
    let formatted = ferofs!("verity format", &plain).run();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    formatted.success();
}

#[test]
fn a_file_that_a_loop_device_shows_is_not_written() {
    let fixture = fixture();
    let old = fixture.path("old");
    let Some(device) = LoopDevice::attach(&old, &[]) else { return };
    // Another name of the file.
    let link = fixture.path("link");
    fs::hard_link(&old, &link).unwrap();
    let refused = ferofs!("verity format", &link).run();
    refused.failure(1).says(format!("`losetup -d {}` first", device.path().display()));
    if let Some(second) = LoopDevice::attach(device.path(), &[]) {
        let reason = format!("is shown by {}: `losetup -d", second.path().display());
        let build = ferofs!("build --force", fixture.source(), device.path());
        build.failure(1).says(reason);
    }
    // The name that Linux knows is gone.
    fs::remove_file(&old).unwrap();
    ferofs!("verity format", &link).failure(1).says("is in use by Linux");
    drop(device);
    ferofs!("verity format", &link).success();
}

/// A command that had locked the old file would change a file without a name.
#[test]
fn an_image_that_is_replaced_before_its_lock_is_not_changed() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = images("-z lz4");
    let [old, new] = ["old", "new"].map(|name| fixture.path(name));
    let repair = ferofs_with_fault(&strace, "flock", "delay_enter=5000000", 1);
    let repair = repair.args(["patch", "repair"]).arg(&old);
    let is_open = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let files = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
        let mut files = files.flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|open| open == old))
    };
    std::thread::scope(|scope| {
        let repaired = scope.spawn(|| repair.run());
        assert!(eventually(is_open));
        fs::rename(&new, &old).unwrap();
        repaired.join().unwrap().failure(1).says("another process is changing the image");
    });
}

#[test]
fn commands_that_write_in_place_exclude_each_other() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = images("-z lz4");
    let old = fixture.path("old");
    let len = fs::metadata(&old).unwrap().len();
    let sealed = ferofs_with_fault(&strace, "fsync", "delay_enter=5000000", 1);
    let sealed = sealed.args(["verity", "format"]).arg(&old);
    std::thread::scope(|scope| {
        let sealed = scope.spawn(|| sealed.run());
        assert!(eventually(|| fs::metadata(&old).unwrap().len() > len));
        for other in [["patch", "repair"], ["verity", "format"]] {
            ferofs().args(other).arg(&old).failure(1).says("another process is changing");
        }
        assert_eq!(sealed.join().unwrap().code, 0);
    });
    // As flock(1) and `udevadm lock` start a command.
    let file = fs::File::open(&old).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    ferofs!("patch repair", &old).success();
}

#[test]
fn after_a_kill_the_file_is_as_before_and_resume_continues() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = fixture();
    let [old, new, delta, out, part] =
        ["old", "new", "delta", "out", ".out.part"].map(|name| fixture.path(name));
    fs::copy(&old, &out).unwrap();
    chmod(&out, 0o640);
    let killed = ferofs_with_fault(&strace, "pwrite64", "signal=KILL", 3);
    let killed = killed.args(["delta", "apply"]).args([&old, &delta, &out]).run();
    assert!(killed.code != 0 && is_same(&out, &old), "{}", killed.stderr);
    assert_eq!(fs::metadata(&part).unwrap().mode() & 0o777, 0o600);
    // A part file that another process writes, or that others can write to, is not continued.
    let lock = fs::File::open(&part).unwrap();
    lock.lock().unwrap();
    delta_apply(&fixture, &out)
        .arg("--resume")
        .failure(1)
        .says("another process makes the same image");
    drop(lock);
    // It stays if no descriptor is left for it.
    for limit in 4..9 {
        let limited = run!("sh -c", format!("ulimit -n {limit}; exec \"$@\""), "sh");
        let limited = limited.arg(ferofs_path()).args(["delta", "apply", "--resume"]);
        let outcome = limited.args([&old, &fixture.path("delta"), &out]).run();
        assert!(outcome.code != 0 && part.exists(), "{limit}: {}", outcome.stderr);
    }
    let link = fixture.path("link");
    fs::copy(&part, fixture.path("copy")).unwrap();
    let resumed = |how: &str| {
        let applied = delta_apply(&fixture, &out).args(["--resume", "--json"]).success();
        let text = applied.text();
        assert_eq!(!text.contains("\"resumed\":0"), how == "own", "{how}: {text}");
        assert!(is_same(&out, &new) && !part.exists(), "{how}");
        assert_eq!(fs::metadata(&out).unwrap().mode() & 0o7777, 0o640);
    };
    resumed("own");
    fs::copy(fixture.path("copy"), &link).unwrap();
    fs::hard_link(&link, &part).unwrap();
    resumed("of two names");
    std::os::unix::fs::symlink(&link, &part).unwrap();
    resumed("link");
    assert!(is_same(&link, &fixture.path("copy")), "the target of the link was written");
}

/// In a directory such as /tmp, a file of another user cannot be replaced.
#[test]
fn nothing_stays_beside_a_file_that_cannot_be_replaced() {
    require!(need::root() && need::tool("setpriv").is_some());
    let fixture = fixture();
    let dir = fixture.directory("sticky");
    // The longest name that most file systems take.
    let out = dir.join("n".repeat(255));
    delta_apply(&fixture, &out).success();
    assert!(is_same(&out, &fixture.path("new")));
    fixture.for_all_users(&dir);
    let applied = fixture.as_user().args(["delta", "apply"]);
    let applied = applied.args(["old", "delta"].map(|name| fixture.path(name))).arg(&out);
    applied.failure(1).says("rename: Operation not permitted");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn on_a_full_disk_the_file_is_as_before() {
    require!(need::root());
    let fixture = fixture();
    let disk = fixture.directory("disk");
    let mount = Mount::memory("tmpfs", "size=3m", &disk);
    let (out, mut old) = (disk.join("out"), fs::read(fixture.path("old")).unwrap());
    old.truncate(1 << 20);
    fs::write(&out, &old).unwrap();
    let outcome = delta_apply(&fixture, &out).run();
    let (left, after) = (fs::read_dir(&disk).unwrap().count(), fs::read(&out));
    mount.unmount().unwrap();
    let refused = outcome.failure(1).stderr;
    assert!(refused.contains("No space left") && refused.contains("NEW is as before"), "{refused}");
    assert!(left == 1 && after.unwrap() == old);
}
