//! A mount outlives its daemon: the keeper starts another one, and the kernel sends it the requests
//! that wait.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ferofs_test_server::Server;
use ferofs_tests::mount::is_mounted;
use ferofs_tests::{Mount, Rng, Run, ferofs, ferofs_path, need, run};
use rustix::fs::{Advice, AtFlags, CWD, StatxFlags, statx};
use rustix::process::{Pid, Signal, kill_process};

use super::daemon::{eventually, small_image};
use crate::common::fixture::Fixture;

/// A mount in the background.
struct Background {
    mount: Mount,
    pid_file: PathBuf,
    log: PathBuf,
    keeper: Pid,
}

impl Background {
    /// `None`, with a message, where daemons are not started again.
    fn start(fixture: &Fixture, image: &Path, options: &[&str]) -> Option<Self> {
        if !need::fuse() || !has_resend() {
            return None;
        }
        let (dir, pid_file, log) =
            (fixture.directory("mount"), fixture.path("pid"), fixture.path("log"));
        let run = ferofs!("mount --fuse").args(options).arg("--pid-file").arg(&pid_file);
        run.arg("--log-file").arg(&log).args([image, &dir]).success();
        let number = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        Some(Self {
            mount: Mount::adopt(&dir),
            pid_file,
            log,
            keeper: Pid::from_raw(number).unwrap(),
        })
    }

    /// The same of a sealed image of [`large_tree`] on a server.
    fn of_server(fixture: &Fixture) -> Option<(Self, Server)> {
        large_tree(fixture);
        let (image, root) = fixture.build_sealed("image", &[]);
        let server = Server::start().unwrap();
        server.put("/image", fs::read(&image).unwrap());
        let cache = fixture.path("cache");
        let options = ["--roothash", &root, "--cache-dir", cache.to_str().unwrap()];
        let mounted = Self::start(fixture, Path::new(&server.url("/image")), &options)?;
        Some((mounted, server))
    }

    /// The daemon, if there is one now.
    fn daemon(&self) -> Option<Pid> {
        children(self.keeper, "mount").pop()
    }

    fn signal(&self, process: Pid, signal: Signal) {
        kill_process(process, signal).unwrap();
        // A process that has ended keeps its number until its parent has looked at it.
        assert!(eventually(|| self.daemon() != Some(process)));
    }

    /// Kills all processes of the mount, so that nobody is left to unmount.
    fn kill_all(&self) {
        let processes = self.processes();
        for process in children(self.keeper, "unmount-helper").iter().chain(&processes) {
            // The helper is killed twice.
            let _ = kill_process(*process, Signal::KILL);
        }
        assert!(eventually(|| processes.iter().all(|process| !is_running(*process))));
        // The kernel may know the entries of the directory still.
        let ask = || statx(CWD, self.mount.path(), AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
        assert!(eventually(|| ask().is_err()));
    }

    /// The keeper and all processes below it.
    fn processes(&self) -> Vec<Pid> {
        let mut found = vec![self.keeper];
        let mut next = 0;
        while let Some(parent) = found.get(next) {
            found.extend(children(*parent, ""));
            next += 1;
        }
        found
    }
}

/// Whether Linux sends requests again (6.9).
fn has_resend() -> bool {
    need::is_linux_since(6, 9) || need::lacks(need::LINUX_6_9)
}

/// The processes that `parent` has started and that run, with this first argument; empty: with any.
fn children(parent: Pid, argument: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let read = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        let status = read("status");
        let is_child =
            status.lines().any(|line| line == format!("PPid:\t{}", parent.as_raw_nonzero()));
        let arguments = read("cmdline");
        let is_meant = argument.is_empty() || arguments.split('\0').nth(1) == Some(argument);
        if is_child && is_meant && !status.contains("State:\tZ") {
            found.extend(Pid::from_raw(number));
        }
    }
    found
}

/// Reads the file from the daemon, not from the page cache.
fn read_uncached(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Files of some megabytes, so that some reads are in flight whenever the daemon is killed.
fn large_tree(fixture: &Fixture) {
    let mut rng = Rng::new(1);
    for number in 0..4 {
        // Half of each word compresses.
        let words = std::iter::repeat_with(|| (rng.next_u64() >> 32).to_le_bytes());
        fixture.write(number.to_string(), words.take(500_000).flatten().collect::<Vec<_>>());
    }
}

/// Kills the daemon 50 times while programs read: each read gets the right bytes.
fn survives_kills(fixture: &Fixture, mounted: &Background) {
    let done = AtomicBool::new(false);
    let passes = AtomicUsize::new(0);
    let mut daemons = HashSet::new();
    thread::scope(|scope| {
        for reader in 0..3 {
            let (done, passes) = (&done, &passes);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let name = (reader + passes.fetch_add(1, Relaxed)) % 4;
                    let name = name.to_string();
                    let expected = fs::read(fixture.source().join(&name)).unwrap();
                    let read = read_uncached(&mounted.mount.path().join(&name)).unwrap();
                    assert!(read == expected, "{name} differs");
                }
            });
        }
        for _ in 0..50 {
            let before = passes.load(Relaxed);
            assert!(eventually(|| mounted.daemon().is_some()));
            let daemon = mounted.daemon().unwrap();
            daemons.insert(daemon);
            mounted.signal(daemon, Signal::KILL);
            if !eventually(|| passes.load(Relaxed) > before) {
                // Without them, reads fail.
                mounted
                    .processes()
                    .into_iter()
                    .for_each(|process| kill_process(process, Signal::KILL).unwrap());
                panic!("the readers wait for ever");
            }
        }
        done.store(true, Relaxed);
    });
    assert_eq!(daemons.len(), 50);
    assert!(is_mounted(mounted.mount.path()));
    let log = fs::read_to_string(&mounted.log).unwrap();
    assert_eq!(
        log.lines().filter(|line| line.contains("was killed; starting another one")).count(),
        50,
        "{log}"
    );
}

#[test]
fn readers_do_not_notice_that_daemons_are_killed() {
    let fixture = Fixture::empty();
    large_tree(&fixture);
    let image = small_image(&fixture);
    let Some(mounted) = Background::start(&fixture, &image, &[]) else { return };
    // The next daemons use the open file.
    fs::remove_file(&image).unwrap();
    survives_kills(&fixture, &mounted);
    let processes = mounted.processes();
    assert!(processes.len() == 3, "{processes:?}");
    mounted.mount.unmount().unwrap();
    assert!(eventually(|| processes.iter().all(|process| !is_running(*process))));
    assert!(!mounted.pid_file.exists());
}

/// Whether the process exists and has not ended.
fn is_running(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn readers_of_an_image_on_a_server_do_not_notice_either() {
    let fixture = Fixture::empty();
    let Some((mounted, _server)) = Background::of_server(&fixture) else { return };
    survives_kills(&fixture, &mounted);
    mounted.mount.unmount().unwrap();
}

#[test]
fn keeper_and_daemon_are_confined() {
    let (fixture, image) = Fixture::small_image();
    let Some(mounted) = Background::start(&fixture, &image, &[]) else {
        return;
    };
    let first = mounted.daemon().unwrap();
    let confined = |process: Pid| {
        let status =
            fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
        let user = if need::is_root() { "65533\t65533\t65533\t65533" } else { "" };
        for line in
            ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", &format!("Uid:\t{user}")]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
        // The number of filters: the daemon has more than the keeper.
        let filters =
            status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).unwrap();
        filters.trim().parse::<u32>().unwrap()
    };
    let filters = confined(first);
    assert!(filters > confined(mounted.keeper));
    mounted.signal(first, Signal::KILL);
    fixture.assert_same_as_source(mounted.mount.path());
    assert_eq!(confined(mounted.daemon().unwrap()), filters);
    mounted.mount.unmount().unwrap();
}

#[test]
fn a_daemon_that_crashes_again_and_again_leaves_no_mount() {
    let (fixture, image) = Fixture::small_image();
    let Some(mounted) = Background::start(&fixture, &image, &[]) else {
        return;
    };
    let mut crashes = 0;
    while is_mounted(mounted.mount.path()) {
        if let Some(daemon) = mounted.daemon() {
            // It may end by itself.
            let _ = kill_process(daemon, Signal::ABORT);
            eventually(|| mounted.daemon() != Some(daemon));
            crashes += 1;
        }
        assert!(crashes < 20);
    }
    let log = fs::read_to_string(&mounted.log).unwrap();
    assert!(log.contains("has crashed with signal 6 too often; giving up"), "{log}");
    assert!(eventually(|| !mounted.pid_file.exists()));
}

#[test]
fn a_signal_to_the_keeper_unmounts() {
    let fixture = Fixture::empty();
    fixture.write("file", "content");
    let image = small_image(&fixture);
    let Some(mounted) = Background::start(&fixture, &image, &[]) else {
        return;
    };
    let daemon = mounted.daemon().unwrap();
    let shown = mounted.mount.path().join("file");
    let open = File::open(&shown).unwrap();
    kill_process(mounted.keeper, Signal::TERM).unwrap();
    assert!(eventually(|| !is_mounted(mounted.mount.path())));
    // The daemon answers until nobody uses the mount.
    let mut bytes = Vec::new();
    (&open).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, fs::read(fixture.source().join("file")).unwrap());
    assert!(is_running(mounted.keeper) && is_running(daemon));
    drop(open);
    assert!(eventually(|| !is_running(mounted.keeper) && !is_running(daemon)));
    assert!(eventually(|| !mounted.pid_file.exists()));
}

#[test]
fn a_mount_without_any_process_can_be_unmounted() {
    let (fixture, image) = Fixture::small_image();
    let Some(mounted) = Background::start(&fixture, &image, &[]) else {
        return;
    };
    let dir = mounted.mount.path();
    // Somebody uses it.
    let mut user = std::process::Command::new("sleep").arg("100").current_dir(dir).spawn().unwrap();
    mounted.kill_all();
    assert!(is_mounted(dir));
    let record = Path::new("/run/ferofs/mounts").join(mounted.keeper.as_raw_nonzero().to_string());
    assert!(record.exists() || !need::is_root());
    ferofs!("umount", dir).success();
    assert!(!record.exists());
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(!is_mounted(dir));
    // It is a directory like any other again.
    run!("find", dir).success();
}

#[test]
fn reattach_mounts_again_without_a_server() {
    let fixture = Fixture::empty();
    let Some((mounted, server)) = Background::of_server(&fixture) else {
        return;
    };
    let dir = mounted.mount.path();
    fixture.assert_same_as_source(dir);
    let link = fixture.path("mount.erofs");
    std::os::unix::fs::symlink(ferofs_path(), &link).unwrap();
    let reattach = || Run::new(&link).arg("--reattach").arg(dir).run();
    reattach().failure(1).says("no mount that has lost its daemon");
    mounted.kill_all();
    drop(server);
    reattach().success();
    fixture.assert_same_as_source(dir);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(
        table.lines().filter(|line| line.contains(dir.to_str().unwrap())).count(),
        1,
        "{table}"
    );
    // The new processes have the old options, and leave nothing after.
    let keeper = fs::read_to_string(&mounted.pid_file).unwrap();
    assert_ne!(keeper.trim(), mounted.keeper.as_raw_nonzero().to_string());
    mounted.mount.unmount().unwrap();
    assert!(eventually(|| !mounted.pid_file.exists()));
}

#[test]
fn umount_returns_when_the_profile_is_complete() {
    let fixture = Fixture::empty();
    fixture.write("file", "content");
    let (image, profile) = (small_image(&fixture), fixture.path("profile"));
    let options = ["--record-profile", profile.to_str().unwrap()];
    let Some(mounted) = Background::start(&fixture, &image, &options) else {
        return;
    };
    let dir = mounted.mount.path();
    fs::read(dir.join("file")).unwrap();
    assert!(!profile.exists());
    // A daemon on a busy machine.
    let daemon = mounted.daemon().unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    let resume = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        kill_process(daemon, Signal::CONT).unwrap();
    });
    let unmounted = ferofs!("umount", dir).success();
    let text = fs::read_to_string(&profile).unwrap();
    assert!(
        text.starts_with("# ferofs access profile 1\n") && text.ends_with(" /file\n"),
        "{text}"
    );
    assert!(!mounted.pid_file.exists() && !is_running(mounted.keeper) && !is_running(daemon));
    assert_eq!(unmounted.stderr, "");
    resume.join().unwrap();
}

#[test]
fn umount_does_not_wait_for_the_daemon_of_another_mount() {
    let fixture = Fixture::empty();
    fixture.write("file", "content");
    let (image, profile) = (small_image(&fixture), fixture.path("profile"));
    let options = ["--record-profile", profile.to_str().unwrap()];
    if !need::root() {
        return;
    }
    let Some(mounted) = Background::start(&fixture, &image, &options) else { return };
    let (dir, other) = (mounted.mount.path(), fixture.directory("other"));
    run!("mount --bind", dir, &other).success();
    ferofs!("umount", dir).success().says("profile: not written yet: the image is in use");
    assert!(!is_mounted(dir) && is_running(mounted.keeper) && !profile.exists());
    fs::read(other.join("file")).unwrap();
    // The unmount helper does not know this directory.
    assert_eq!(ferofs!("umount", &other).success().stderr, "");
    assert!(eventually(|| profile.exists() && !is_running(mounted.keeper)));
}
