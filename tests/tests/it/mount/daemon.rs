//! The FUSE daemon: messages, counters, and behaviour with damaged images and killed readers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ferofs_tests::mount::is_mounted;
use ferofs_tests::{Mount, Rng, Run, ferofs, ferofs_path, need, run, tree, xattr};
use rustix::fs::SeekFrom;

use crate::common::fixture::{Fixture, counter};

pub(crate) fn mounted(fixture: &Fixture, image: &Path) -> Mount {
    Mount::fuse(ferofs_path(), image, &fixture.directory("mount")).unwrap()
}

pub(crate) fn small_image(fixture: &Fixture) -> PathBuf {
    fixture.build("image", ["--compress", "lz4"])
}

/// Waits up to 10 s until `done` is true. For the effects of a process that is not a child of this
/// one.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    (0..1000).any(|_| {
        done() || {
            thread::sleep(Duration::from_millis(10));
            false
        }
    })
}

/// The regular files in `dir` that cannot be read.
fn unreadable(dir: &Path, found: &mut BTreeSet<u64>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            unreadable(&entry.path(), found);
        } else if kind.is_file()
            && let Err(error) = fs::read(entry.path())
        {
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::IO.raw_os_error()),
                "{entry:?}"
            );
            found.insert(entry.metadata().unwrap().ino());
        }
    }
}

/// Overwrites a part of the data of the image with bytes that are not valid LZ4.
fn damage(image: &Path) {
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&vec![0xff; 96 << 10], 32 << 10).unwrap();
}

#[test]
fn each_damaged_file_is_logged_once() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    damage(&image);
    let mut found = BTreeSet::new();
    for _ in 0..3 {
        unreadable(mount.path(), &mut found);
    }
    assert!(!found.is_empty());
    let (code, stderr) = mount.unmount().unwrap();
    assert_eq!(code, Some(0));
    let inode_of = |line: &str| {
        line.split_once(": inode ")
            .and_then(|(_, rest)| Some(rest.split_once(':')?.0.parse().unwrap()))
    };
    let logged: Vec<u64> = stderr.lines().filter_map(inode_of).collect();
    let unique: BTreeSet<u64> = logged.iter().copied().collect();
    assert_eq!(logged.len(), unique.len(), "{stderr}");
    assert!(unique.is_subset(&found) && unique.len() == found.len().min(32), "{found:?}\n{stderr}");
}

#[test]
fn a_truncated_image_gives_errors_until_it_is_restored() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    let whole = fs::read(&image).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(4096).unwrap();
    let error = fs::read(mount.path().join("files/text/4097")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    // After the image is restored, reads succeed again.
    fs::write(&image, whole).unwrap();
    fixture.assert_same_as_source(mount.path());
    assert_eq!(mount.unmount().unwrap().0, Some(0));
}

#[test]
fn a_mount_shows_the_old_image_after_it_is_replaced() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    fs::write(fixture.path("new"), "not an image").unwrap();
    fs::rename(fixture.path("new"), &image).unwrap();
    fixture.assert_same_as_source(mount.path());
}

#[test]
fn random_reads_and_strides_need_few_requests() {
    require!(need::fuse());
    const SIZE: usize = 6_000_000;
    let (fixture, image) =
        Fixture::with_image(&tree::Options { largest: SIZE, ..tree::Options::small() });
    let expected = fs::read(fixture.source().join("files/large/Mixed")).unwrap();
    let pages = expected.len() as u64 / 4096;
    // Every page once in random order; then each 16th page in order.
    let mut all: Vec<u64> = (0..pages).collect();
    let mut rng = Rng::new(5);
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let strides: Vec<u64> = (0..pages).step_by(16).collect();
    for (name, order, advice) in [
        ("all", all, rustix::fs::Advice::Random),
        ("strides", strides, rustix::fs::Advice::Sequential),
    ] {
        let mount = Mount::fuse(ferofs_path(), &image, &fixture.directory(name)).unwrap();
        let file = File::open(mount.path().join("files/large/Mixed")).unwrap();
        rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        let mut page = [0; 4096];
        for number in &order {
            file.read_exact_at(&mut page, number * 4096).unwrap();
            assert!(page == expected[*number as usize * 4096..][..4096], "{name}: page {number}");
        }
        let (requests, bytes) =
            (counter(mount.path(), "fuse reads"), counter(mount.path(), "fuse read bytes"));
        // For a stride, the daemon stores only the pages of its next steps, before it answers.
        // Around random reads it stores pages later, with a low priority, so that the number of
        // requests depends on the load of the machine.
        let max_requests =
            if name == "all" { order.len() as u64 * 9 / 10 } else { order.len() as u64 / 3 };
        let stored = counter(mount.path(), "fuse stored bytes");
        assert!(name == "all" || stored <= order.len() as u64 * 4096, "{name}: {stored} stored");
        assert!(requests <= max_requests, "{name}: {requests} requests for {} pages", order.len());
        assert!(
            bytes <= (order.len() as u64 + 8) * 4096,
            "{name}: {bytes} for {} pages",
            order.len()
        );
    }
}

#[test]
fn stats_shows_the_counters() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    fs::read(mount.path().join("files/text/4097")).unwrap();
    let json = ferofs!("stats", mount.path(), "--json").success().text();
    assert!(json.contains("\"fuse_reads\":") && json.contains("\"decoded_bytes\":"), "{json}");
    // The attribute is not listed, so that copies of the tree do not get it.
    let listed = xattr::all(rustix::fs::CWD, mount.path().as_os_str().as_encoded_bytes()).unwrap();
    assert!(listed.keys().all(|name| !name.starts_with(b"user.ferofs")), "{listed:?}");
    ferofs!("stats", fixture.source()).failure(1);
}

#[test]
fn the_daemon_writes_a_log_file_and_a_pid_file() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let (pid, log) = (fixture.path("pid"), fixture.path("log"));
    let dir = fixture.directory("mount");
    ferofs!("mount --fuse --pid-file", &pid, "--log-file", &log, &image, &dir).success();
    let mount = Mount::adopt(&dir);
    let number = fs::read_to_string(&pid).unwrap();
    let command = fs::read_to_string(Path::new("/proc").join(number.trim()).join("comm")).unwrap();
    assert_eq!(command.trim(), "ferofs");
    damage(&image);
    unreadable(mount.path(), &mut BTreeSet::new());
    assert!(fs::read_to_string(&log).unwrap().starts_with("ferofs: "));
    mount.unmount().unwrap();
    assert!(eventually(|| !pid.exists()));
}

#[test]
fn lseek_finds_holes_and_data() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let file = File::create(fixture.source().join("sparse")).unwrap();
    file.write_all_at(&[1; 64 << 10], 1 << 20).unwrap();
    file.set_len(5 << 20).unwrap();
    let image = fixture.build("image", ["--compress", "none"]);
    let mount = mounted(&fixture, &image);
    let shown = File::open(mount.path().join("sparse")).unwrap();
    assert_eq!(rustix::fs::seek(&shown, SeekFrom::Data(0)).unwrap(), 1 << 20);
    assert_eq!(rustix::fs::seek(&shown, SeekFrom::Hole(1 << 20)).unwrap(), (1 << 20) + (64 << 10));
    assert_eq!(rustix::fs::seek(&shown, SeekFrom::Hole(5)).unwrap(), 5);
    assert!(rustix::fs::seek(&shown, SeekFrom::Data(2 << 20)).is_err());
}

#[test]
fn the_calls_of_mount_8_and_mount_fuse_mount_through_fuse() {
    require!(need::root() && need::fuse());
    let (fixture, image) = Fixture::small_image();
    let links = fixture.links();
    let kind = |dir: &Path| {
        let output = run!("findmnt -n -o FSTYPE", dir).run();
        output.text().trim().to_owned()
    };
    // The call of mount(8) for a line of fstab with type erofs.ferofs.
    let dir = fixture.directory("helper");
    let helper = Run::new(links.join("mount.erofs")).args([&image, &dir]);
    helper
        .args(["-n", "-o", "rw,noatime,nofail,x-systemd.automount", "-t", "erofs.ferofs"])
        .success();
    let mount = Mount::adopt(&dir);
    assert!(kind(&dir).starts_with("fuse"), "{}", kind(&dir));
    fixture.assert_same_as_source(mount.path());
    // mount.fuse(8) calls the program that the source names.
    if let Some(program) = need::tool("mount.fuse3") {
        let dir = fixture.directory("named");
        let source = format!("{}#{}", links.join("erofsfuse").display(), image.display());
        Run::new(program).arg(source).arg(&dir).args(["-o", "ro,nodev,allow_other"]).success();
        let mount = Mount::adopt(&dir);
        assert!(kind(&dir).starts_with("fuse"), "{}", kind(&dir));
        fixture.assert_same_as_source(mount.path());
    }
}

/// A real project with a Makefile: the sources of LZ4 in the crate lz4-sys.
fn project() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home)?;
    let registries = fs::read_dir(cargo.join("registry/src")).ok()?.flatten();
    let crates =
        registries.filter_map(|registry| fs::read_dir(registry.path()).ok()).flatten().flatten();
    crates
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("lz4-sys-"))
        .map(|entry| entry.path().join("liblz4"))
        .find(|dir| dir.join("lib/Makefile").exists())
}

#[test]
fn a_project_can_be_built_on_an_overlay_of_a_mount() {
    require!(
        need::root() && need::fuse() && need::tool("make").is_some() && need::tool("cc").is_some()
    );
    let Some(project) = project() else {
        need::lacks("the sources of lz4-sys");
        return;
    };
    let fixture = Fixture::empty();
    let plain = fixture.path("source/project");
    run!("cp -a", &project, &plain).success();
    let image = small_image(&fixture);
    let lower = mounted(&fixture, &image);
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| fixture.directory(name));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.path().display(),
        upper.display(),
        work.display()
    );
    run!("mount -t overlay overlay -o", &options, &merged).success();
    let overlay = Mount::adopt(&merged);
    let dirs = [plain, overlay.path().join("project")];
    let built = dirs.map(|dir| {
        run!("make -C", dir.join("lib"), "-j2", "liblz4.a").success();
        fs::read(dir.join("lib/liblz4.a")).unwrap()
    });
    assert!(built[0].len() > 50_000 && built[0] == built[1]);
}

#[test]
fn killed_readers_do_not_disturb_the_daemon() {
    require!(need::fuse());
    let (fixture, image) =
        Fixture::with_image(&tree::Options { largest: 6_000_000, ..tree::Options::small() });
    let mount = mounted(&fixture, &image);
    for round in 0..20 {
        let reader = Run::limited("sh", None, Duration::from_secs(60));
        let script = "tar -C \"$0\" -cf - . >/dev/null & sleep 0.0$1; kill -9 $!; wait";
        reader.args(["-c", script]).arg(mount.path()).arg((round % 10).to_string()).run();
    }
    fixture.assert_same_as_source(mount.path());
    assert_eq!(mount.unmount().unwrap(), (Some(0), String::new()));
}

#[test]
fn all_threads_of_the_daemon_are_confined() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    fs::read(mount.path().join("files/text/4097")).unwrap();
    let daemon = PathBuf::from(format!("/proc/{}/task", mount.daemon_id().unwrap()));
    let threads: Vec<_> =
        fs::read_dir(daemon).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(threads.len() > 2);
    for thread in threads {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(field("NoNewPrivs"), ["1"], "{status}");
        assert_eq!(field("Seccomp"), ["2"], "{status}");
        for set in ["CapEff", "CapPrm", "CapInh"] {
            assert_eq!(field(set), ["0000000000000000"], "{status}");
        }
        if need::is_root() {
            assert_eq!([field("Uid"), field("Gid")], [["65533"; 4], ["65533"; 4]], "{status}");
            assert_eq!(field("Groups"), [""; 0], "{status}");
        }
    }
}

#[test]
fn the_image_is_read_only_after_the_sandbox_is_active() {
    let Some(strace) = need::tool("strace") else { return };
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let patch = fixture.path("patch");
    fixture.write("new", "new");
    ferofs!("patch create", &image, fixture.source(), "-o", &patch).success();
    let dir = fixture.directory("mount");
    let profile = fixture.path("profile");
    let recorded = Mount::fuse_with(
        ferofs_path(),
        &["--record-profile".as_ref(), profile.as_os_str()],
        &image,
        &dir,
    );
    let recorded = recorded.unwrap();
    fs::read(recorded.path().join("files/text/4097")).unwrap();
    assert_eq!(recorded.unmount().unwrap().0, Some(0));

    let log = fixture.path("log");
    let mut traced = std::process::Command::new(strace)
        .args(["-f", "-y", "-qq", "-o"])
        .arg(&log)
        .args([
            "-e",
            "trace=read,pread64,preadv,preadv2,mmap,seccomp,landlock_restrict_self,setresuid,capset",
        ])
        .arg(ferofs_path())
        .args(["mount", "--fuse", "--patch"])
        .arg(&patch)
        .arg("--pin")
        .arg(&profile)
        .args([&image, &dir])
        .spawn()
        .unwrap();
    // The image is served as soon as the file of the patch exists.
    assert!(eventually(|| dir.join("new").exists()));
    let mount = Mount::adopt(&dir);
    assert_eq!(fs::read(mount.path().join("new")).unwrap(), b"new");
    mount.unmount().unwrap();
    traced.wait().unwrap();
    let log = fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().collect();
    let reads = |path: &Path| {
        let path = format!("<{}>", path.display());
        calls
            .iter()
            .position(|call| call.contains("read") && call.contains(&path))
            .unwrap_or_else(|| panic!("{path}: {log}"))
    };
    let last = |name: &str| calls.iter().rposition(|call| call.contains(name));
    let first_read = [&image, &patch, &profile].map(|path| reads(path)).into_iter().min().unwrap();
    for name in ["seccomp(", "landlock_restrict_self(", "setresuid(", "capset("] {
        // Only root changes its user; some kernels have no Landlock.
        let needed =
            name == "seccomp(" || name == "capset(" || name == "setresuid(" && need::is_root();
        assert!(last(name).map_or(!needed, |at| at < first_read), "{name}, {first_read}: {log}");
    }
}

/// The unmount helper starts before the mount, so it removes the mount at whatever time the daemon
/// dies.
#[test]
fn a_daemon_without_memory_leaves_no_mount() {
    require!(need::fuse());
    let fixture = Fixture::small();
    let (image, dir) = (small_image(&fixture), fixture.directory("mount"));
    let mut failed = 0;
    for mib in [14, 18, 22, 26, 30, 40, 48, 64, 80, 96, 112, 160] {
        let run = Run::limited(ferofs_path(), Some(mib << 20), Duration::from_secs(60));
        let outcome = run.args(["mount", "--fuse"]).args([&image, &dir]).run();
        failed += u32::from(outcome.code != 0);
        // The loader of programs prints nothing: 127 or SIGSEGV.
        let is_silent = matches!(outcome.code, 0 | 127 | 139);
        assert!(is_silent || !outcome.stderr.is_empty(), "{mib} MiB: {outcome:?}");
        assert_eq!(outcome.code == 0, is_mounted(&dir), "{mib} MiB: {}", outcome.stderr);
        let _ = ferofs!("umount", &dir).run();
        assert!(eventually(|| !is_mounted(&dir)), "{mib} MiB: {}", outcome.stderr);
    }
    assert!(failed > 0);
}

/// The daemon says that it has mounted before it starts the threads that answer.
#[test]
fn a_daemon_without_threads_is_no_success() {
    require!(need::fuse());
    let fixture = Fixture::small();
    let (image, dir) = (small_image(&fixture), fixture.directory("mount"));
    let mut failed = 0;
    for most in 2..20 {
        let run = run!("prlimit", format!("--nproc={most}"), ferofs_path(), "mount", "--fuse");
        let outcome = run.args([&image, &dir]).run();
        failed += u32::from(outcome.code == 8 && outcome.stderr.contains("start a thread: "));
        assert!(outcome.code == 0 || !outcome.stderr.is_empty(), "{most}: {outcome:?}");
        assert_eq!(outcome.code == 0, is_mounted(&dir), "{most}: {}", outcome.stderr);
        let _ = ferofs!("umount", &dir).run();
        assert!(eventually(|| !is_mounted(&dir)), "{most}: {}", outcome.stderr);
    }
    assert!(failed > 0);
}

/// Linux gives the number of a mount to the next one.
#[test]
fn the_unmount_helper_leaves_a_later_mount_of_another_daemon() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let first = mounted(&fixture, &image);
    let dir = first.path().to_owned();
    // It names another daemon than the parent of the helper.
    let pid_file = fixture.path("pid");
    fs::write(&pid_file, "1\n").unwrap();
    let mut helper = Command::new(ferofs_path())
        .args(["unmount-helper", "--pid-file"])
        .arg(&pid_file)
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let answer = |helper: &mut Child| helper.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    answer(&mut helper);
    helper.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    answer(&mut helper);
    drop(first);
    let second = Mount::fuse(ferofs_path(), &image, &dir).unwrap();
    drop(helper.stdin.take());
    assert!(helper.wait().unwrap().success());
    assert!(is_mounted(second.path()));
    assert!(fs::read_dir(second.path()).unwrap().count() > 0);
    assert!(pid_file.exists(), "the file of another daemon was removed");
}

#[test]
fn a_daemon_that_is_not_confined_leaves_what_others_mounted() {
    require!(need::fuse() && need::root());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    let mount = |arguments: &[&str]| Run::new("mount").args(arguments).arg(&dir).success();
    mount(&["-t", "tmpfs", "below"]);
    let fuse = Mount::fuse_with(ferofs_path(), &["--no-sandbox".as_ref()], &image, &dir).unwrap();
    let daemon = format!("/proc/{}/status", fuse.daemon_id().unwrap());
    run!("umount", &dir).success();
    // Its parent, this process, has not waited for it yet.
    let ended =
        eventually(|| fs::read_to_string(&daemon).is_ok_and(|status| status.contains("State:\tZ")));
    let is_below = is_mounted(&dir);
    drop(fuse);
    if is_mounted(&dir) {
        run!("umount", &dir).success();
    }
    assert!(ended, "the daemon is still there");
    assert!(is_below, "the daemon unmounted what was below its mount");
}

#[test]
fn an_image_that_cannot_be_opened_leaves_no_mount() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 64], 1024).unwrap();
    for options in [&["--fuse"][..], &["--fuse", "-f"], &[]] {
        ferofs!("mount").args(options).args([&image, &dir]).failure(1);
        assert!(!is_mounted(&dir));
    }
    assert_eq!(fs::read_dir(&dir).unwrap().map(io::Result::unwrap).count(), 0);
}
