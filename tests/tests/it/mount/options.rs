//! Options of FUSE, messages about what is missing, and unmounting.
//!
//! The daemon without root: in a user namespace, for an ordinary user, and with access control
//! lists.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::Path;

use ferofs_tests::mount::is_mounted;
use ferofs_tests::{LoopDevice, Mount, Outcome, Run, acl, ferofs, ferofs_path, need, run, xattr};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::daemon::{mounted, small_image};
use crate::common::fixture::{Fixture, chmod};

/// The source and the type of the mount on `dir`.
fn source_and_type(dir: &Path) -> String {
    let output = run!("findmnt -n -o SOURCE,FSTYPE", dir).success();
    output.text().trim().to_owned()
}

/// Runs a script of sh(1) in mount and process namespaces of its own, with which its daemons end: a
/// daemon keeps its mount namespace, and so its mount. `$0` is ferofs, `$1` the image, `$2` a
/// directory.
fn script(text: &str, image: &Path, dir: &Path) -> Outcome {
    // The namespace has copies of the mounts of other tests, whose daemons would not end before it
    // does.
    let text = format!("umount -a -l -t fuse.ferofs,fuse.erofsfuse || true\n{text}");
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let run =
        Run::new("unshare").args(namespaces).args(["sh", "-eu", "-c", &text]).arg(ferofs_path());
    run.args([image, dir]).run()
}

fn possible() -> bool {
    need::root() && need::fuse() && need::tool("findmnt").is_some()
}

#[test]
fn the_mount_table_shows_the_program_and_the_image() {
    require!(possible());
    let (fixture, image) = Fixture::small_image();
    let comma = fixture.path("a, b");
    std::fs::copy(&image, &comma).unwrap();
    let links = fixture.links();
    let dir = fixture.directory("mount");
    let shown = |run: Run| {
        run.arg(&dir).success();
        let shown = source_and_type(&dir);
        ferofs!("umount", &dir).run();
        if is_mounted(&dir) {
            Mount::adopt(&dir).unmount().unwrap();
        }
        shown
    };
    let mount = || ferofs!("mount --fuse");
    assert_eq!(shown(mount().arg(&image)), format!("{} fuse.ferofs", image.display()));
    assert_eq!(shown(mount().arg(&comma)), format!("{} fuse.ferofs", comma.display()));
    let erofsfuse = || Run::new(links.join("erofsfuse"));
    assert_eq!(shown(erofsfuse().arg(&image)), format!("{} fuse.erofsfuse", image.display()));
    // As with erofsfuse of erofs-utils, a bit of the superblock that only its checksum covers does
    // not prevent a mount.
    let damaged = fixture.path("damaged");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[1024 + 64] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let refused = mount().args([&damaged, &dir]).failure(1);
    let mounted = erofsfuse().args([&damaged, &dir]).success();
    for stderr in [refused.stderr, mounted.stderr] {
        assert!(stderr.contains("superblock: checksum is"), "{stderr}");
    }
    Mount::adopt(&dir).unmount().unwrap();
    let options =
        "fsname=my name,subtype=other,clone_fd,max_threads=2,max_idle_threads=1,allow_root";
    assert_eq!(shown(erofsfuse().args(["-o", options]).arg(&image)), "my name fuse.other");
    // Options of libfuse that change nothing here, and the options that mount(8) gives.
    let options =
        "rw,dev,suid,subtype=other,kernel_cache,entry_timeout=5,negative_timeout=0,remember=9";
    let mounted = erofsfuse().args(["-o", options]).args([&image, &dir]).success();
    assert_eq!(mounted.stderr, "");
    ferofs!("umount", &dir).success();
    assert!(!is_mounted(&dir));
    // What mount.fuse(8) starts for `ferofs#image`, in the directory of the image.
    let helper = ferofs!("image mount -o ro").dir(fixture.path(""));
    helper.success();
    assert_eq!(source_and_type(&dir), format!("{} fuse.ferofs", image.display()));
    ferofs!("umount", &dir).success();
}

#[test]
fn a_second_mount_and_a_busy_one_say_what_to_do() {
    require!(need::root() && need::fuse());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    let mount = || ferofs!("mount --fuse");
    let umount = |options: &[&str]| ferofs!("umount").args(options).arg(&dir).run();
    let mounted = mount().args(["-o", "rw"]).args([&image, &dir]).success();
    mounted.says("rw has no effect: EROFS is read-only");
    mount()
        .args([&image, &dir])
        .failure(1)
        .says("is mounted there: `ferofs umount` it first, or use --over");
    mount().arg("--over").args([&image, &dir]).success();
    umount(&[]).success();
    assert!(is_mounted(&dir));
    let mut user =
        std::process::Command::new("sleep").arg("600").current_dir(&dir).spawn().unwrap();
    let busy = umount(&[]);
    let lazy = umount(&["--lazy"]);
    user.kill().unwrap();
    user.wait().unwrap();
    let named =
        format!("is busy: used by sleep ({}); `ferofs umount --lazy` removes it now", user.id());
    busy.fails(1, &named);
    lazy.success();
    assert!(!is_mounted(&dir));
}

#[test]
fn the_root_hash_may_be_in_a_file() {
    let fixture = Fixture::small();
    let (image, root) = fixture.build_sealed("image", &[]);
    let (file, wrong) = (fixture.path("image.root"), fixture.path("wrong"));
    fs::write(&wrong, "0".repeat(64)).unwrap();
    let check = |option: &str, value: &Path| ferofs!("check", option, value, &image).run();
    check("--roothash-file", &file).success();
    assert_ne!(check("--roothash-file", &wrong).code, 0);
    fs::write(&wrong, "no root hash\n").unwrap();
    assert_eq!(check("--roothash-file", &wrong).code, 16);
    let both = ferofs!("check --roothash", &root, "--roothash-file", &file, &image).run();
    both.fails(16, "cannot be used with");
    require!(need::root() && need::fuse());
    let dir = fixture.directory("mount");
    ferofs!("mount --fuse --roothash-file", &file, &image, &dir).success();
    fixture.assert_same_as_source(&dir);
    ferofs!("umount", &dir).success();
}

#[test]
fn only_root_uses_what_root_mounts_for_itself() {
    require!(possible() && need::tool("setpriv").is_some());
    let (_fixture, image) = Fixture::small_image();
    // A directory that all users reach.
    let text =
        "mount -t tmpfs -o mode=755 tmpfs /mnt; mkdir /mnt/dir; \"$0\" mount --fuse -o $3 \"$1\" /mnt/dir
        ls /mnt/dir > /dev/null
        setpriv --reuid=65534 --regid=65534 --clear-groups ls /mnt/dir";
    let run = |options: &str| script(&text.replace("$3", options), &image, Path::new("/mnt"));
    run("allow_other").success();
    let refused = run("allow_root");
    assert!(
        refused.code != 0 && refused.stderr.contains("Permission denied"),
        "{}",
        refused.stderr
    );
}

#[test]
fn options_and_programs_that_are_missing_are_named() {
    require!(possible());
    let fixture = Fixture::small();
    let (image, dir) = (small_image(&fixture), fixture.directory("mount"));
    for (option, named) in [
        ("nosuch", "-o nosuch: FUSE has no such option"),
        ("max_read=x", "(-o max_read=x)"),
        ("max_threads=0", "-o max_threads=0: not a number of threads"),
    ] {
        let outcome = ferofs!("mount --fuse -o", option, &image, &dir).failure(1);
        outcome.says(named);
        assert!(!outcome.stderr.contains("MsFlags"));
    }
    for option in ["relatime", "sync", "nodiratime", "rprivate", "strictatime", "suid,exec"] {
        ferofs!("mount --fuse -o", option, &image, &dir).success();
        Mount::adopt(&dir).unmount().unwrap();
    }
    // The image can be in /dev/shm, which the script hides.
    let copied = "mount -t tmpfs tmpfs /mnt; cp \"$1\" /mnt/image; mkdir /mnt/dir /mnt/dev; mknod -m 666 /mnt/dev/null c 1 3";
    for (hide, command, named) in [
        ("mount --bind /mnt/dev /dev", "", "/dev/fuse: "),
        ("mount -t tmpfs tmpfs /proc", "", "/proc"),
        // Without the right to mount, only fusermount3 can.
        (
            "export FUSERMOUNT_PATH=/nonexistent/fusermount3",
            "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin",
            "fusermount3 is missing, and only root can mount without it; install the package fuse3",
        ),
    ] {
        let text = format!("{copied}\n{hide}\n{command} \"$0\" mount --fuse /mnt/image /mnt/dir");
        let outcome = script(&text, &image, &dir).failure(1);
        outcome.says(named);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn umount_leaves_other_file_systems_alone() {
    require!(possible());
    let fixture = Fixture::small();
    let (image, dir) = (small_image(&fixture), fixture.directory("mount"));
    let other = "mount -t tmpfs tmpfs \"$2\"; touch \"$2/kept\"";
    for before in ["", "\"$0\" mount --fuse \"$1\" \"$2\";"] {
        for command in ["umount \"$2\"", "umount \"$2/../mount\""] {
            let text = format!(
                "{before} {other}\nif \"$0\" {command}; then exit 3; fi; test -f \"$2/kept\""
            );
            let outcome = script(&text, &image, &dir).success();
            let message =
                "a mount of type tmpfs, which ferofs has not made; umount(8) can unmount it";
            outcome.says(message);
        }
    }
    ferofs!("umount", &dir).failure(1).says("not a mount point");
    // A mount that is in use stays, and is unmounted later.
    let text = "\"$0\" mount --fuse \"$1\" \"$2\"; exec 3< \"$2/files\"
        if \"$0\" umount \"$2\"; then exit 3; fi; exec 3<&-; \"$0\" umount \"$2\"; ! mountpoint -q \"$2\"";
    script(text, &image, &dir).success();
    if need::kernel_erofs() {
        let text =
            "\"$0\" mount --kernel \"$1\" \"$2\"; \"$0\" umount \"$2\"; ! mountpoint -q \"$2\"";
        script(text, &image, &dir).success();
    }
}

#[test]
fn files_that_a_mount_writes_replace_nothing() {
    let (fixture, image) = Fixture::small_image();
    let before = std::fs::read(&image).unwrap();
    let (dir, thesis) = (fixture.directory("mount"), fixture.path("thesis"));
    std::fs::write(&thesis, "The thesis.").unwrap();
    let hashes = fixture.path("hashes");
    ferofs!("verity format --hash-file", &hashes, &image).success();
    let root = "0".repeat(64);
    let log = ["mount", "--fuse", "--roothash", &root, "--hash-file"];
    let refused =
        ferofs().args(log).arg(&hashes).arg("--log-file").args([&hashes, &image, &dir]).failure(1);
    refused.says("also an input");
    assert!(!is_mounted(&dir));
    let cases = [
        ("--pid-file", &image, "also an input"),
        ("--record-profile", &image, "also an input"),
        ("--log-file", &image, "also an input"),
        ("--pid-file", &thesis, "no number of a process"),
        ("--record-profile", &thesis, "not an access profile"),
        ("--pid-file", &dir.join("pid"), "below the mount point"),
    ];
    for (option, file, message) in cases {
        let refused = ferofs!("mount --fuse", option, file, &image, &dir).failure(1);
        refused.says(message);
        assert!(!is_mounted(&dir));
    }
    assert!(std::fs::read(&image).unwrap() == before);
    assert_eq!(std::fs::read(&thesis).unwrap(), b"The thesis.");
}

/// Opening a FIFO waits for a program that reads it.
#[test]
fn a_mount_does_not_wait_for_a_reader_of_a_fifo() {
    require!(possible());
    let (fixture, image) = Fixture::small_image();
    let (dir, fifo) = (fixture.directory("mount"), fixture.path("fifo"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (option, message) in [
        ("--pid-file", "no number of a process"),
        ("--record-profile", "a FIFO that no program reads"),
        ("--log-file", "a FIFO that no program reads"),
    ] {
        let refused = ferofs!("mount --fuse", option, &fifo, &image, &dir).failure(1);
        refused.says(message);
        assert!(!is_mounted(&dir));
    }
}

#[test]
fn umount_follows_a_link_to_the_mount_point_as_mount_does() {
    require!(possible());
    let fixture = Fixture::small();
    let (image, dir, link) =
        (small_image(&fixture), fixture.directory("mount"), fixture.path("link"));
    std::os::unix::fs::symlink("mount", &link).unwrap();
    let text = "\"$0\" mount --fuse \"$1\" \"$2\"; \"$0\" umount \"$2\"; ! mountpoint -q \"$2\"";
    script(text, &image, &link).success();
    assert!(!is_mounted(&dir));
    // It does not keep the mount busy itself.
    ferofs!("mount --fuse", &image, &dir).success();
    ferofs().dir(&dir).arg("umount").arg(&dir).success();
    // With a slash at the end, and a link that leads nowhere.
    script(text, &image, &link.join("")).success();
    assert!(!is_mounted(&dir));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("link", &link).unwrap();
    ferofs!("umount", &link).failure(1);
}

#[test]
fn a_device_that_is_mounted_through_fuse_is_not_written_over() {
    require!(possible());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    let Some(device) = LoopDevice::attach(&image, &[]) else { return };
    let mount = Mount::fuse_with(ferofs_path(), &[], device.path(), &dir).unwrap();
    let refused = ferofs!("build --force", fixture.source(), &device).run();
    mount.unmount().unwrap();
    refused.fails(1, "is mounted through FUSE on");
}

#[test]
fn a_device_that_the_kernel_has_mounted_is_not_written_over() {
    require!(possible());
    let (fixture, image) = Fixture::small_image();
    let [dir, delta] = [fixture.directory("mount"), fixture.path("delta")];
    ferofs!("delta create --output", &delta, &image, &image).success();
    let Some(attached) = LoopDevice::attach(&image, &[]) else { return };
    let device = attached.path().display().to_string();
    let old = fixture.path("old");
    std::fs::copy(&image, &old).unwrap();
    let [old, delta, source] =
        [&old, &delta, &fixture.source()].map(|path| path.display().to_string());
    run!("mount -t erofs", &device, &dir).success();
    let mut refused = Vec::new();
    for words in [
        &["build", "--force", &source, &device][..],
        &["delta", "apply", "--force", &old, &delta, &device],
        &["delta", "create", "--force", "--output", &device, &old, &old],
        &["extract", "--force", "--tar", &device, &old],
    ] {
        refused.push((words[0].to_owned(), ferofs().args(words).run()));
    }
    if let Some(program) = need::device_program() {
        let run = Run::new(program).args(["delta", &old, &delta, &device]).run();
        refused.push(("ferofs-device".to_owned(), run));
    }
    run!("umount", &dir).success();
    drop(attached);
    for (what, run) in refused {
        let is_named =
            run.stderr.contains("is mounted on ") && run.stderr.contains("unmount it first");
        assert!(run.code == 1 && is_named, "{what}: {}", run.stderr);
    }
}

/// The user id of nobody, who has no permissions.
const NOBODY: u32 = 65534;

/// A command run as nobody.
fn as_nobody() -> Run {
    let ids = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    Run::new("setpriv").args(ids)
}

#[test]
fn the_daemon_works_in_a_user_namespace() {
    require!(need::fuse() && need::user_namespaces());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    // Without --fuse: the kernel refuses the mount there, so ferofs uses FUSE.
    let script = "\"$0\" mount \"$1\" \"$2\" && cmp \"$2/files/text/4097\" \"$3/files/text/4097\" && \"$0\" umount \"$2\"";
    run!(
        "unshare --user --map-root-user --mount sh -c",
        script,
        ferofs_path(),
        &image,
        &dir,
        fixture.source()
    )
    .success();
    assert!(!is_mounted(&dir));
}

#[test]
fn an_ordinary_user_can_mount_and_unmount() {
    require!(need::root() && need::tool("fusermount3").is_some());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let parent = image.parent().unwrap();
    chmod(parent, 0o755);
    // A copy: the checkout may be in a directory that nobody else may enter, like root's.
    let program = fixture.path("ferofs");
    fs::copy(ferofs_path(), &program).unwrap();
    // On some machines only root may open /dev/fuse. Here all users may, as with the rules of udev.
    let script = "set -e; mknod -m 666 \"$4/fuse\" c 10 229; mount --bind \"$4/fuse\" /dev/fuse
        user='setpriv --reuid=65534 --regid=65534 --clear-groups --'
        $user \"$0\" mount \"$1\" \"$2\"
        $user cat \"$2/files/text/4097\" | cmp - \"$3/files/text/4097\"
        $user \"$0\" umount \"$2\"
        ! $user \"$0\" mount --kernel \"$1\" \"$2\"";
    let unshare = run!("unshare --mount sh -c", script, program);
    unshare
        .args([&image, &dir, &fixture.source()])
        .arg(parent)
        .success()
        .says("only root mounts by the kernel's driver");
    assert!(!is_mounted(&dir));
}

#[test]
fn access_control_lists_are_enforced() {
    require!(need::root() && need::fuse());
    let fixture = Fixture::empty();
    for name in ["open", "closed"] {
        fixture.write(name, name);
        chmod(fixture.source().join(name), 0o644);
    }
    chmod(fixture.source(), 0o755);
    use acl::Entry::{Mask, Other, Owner, OwningGroup, User};
    let list = acl::encode(&[Owner(6), User(NOBODY, 0), OwningGroup(4), Mask(4), Other(4)]);
    let source = File::open(fixture.source()).unwrap();
    xattr::set(&source, b"closed", acl::ACCESS, &list).unwrap();
    let image = small_image(&fixture);
    let mount = mounted(&fixture, &image);
    chmod(image.parent().unwrap(), 0o755);
    let read = |name| as_nobody().arg("cat").arg(mount.path().join(name)).run();
    if read("open").code != 0 {
        need::lacks("a checkout that others may read");
        return;
    }
    assert!(read("closed").stderr.contains("Permission denied"));
    assert_eq!(fs::read(mount.path().join("closed")).unwrap(), b"closed");
}
