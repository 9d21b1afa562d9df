//! The processes beside the daemon of a mount: what they keep, what they report, and when they end.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ferofs_test_server::{Fault, Rule, Server};
use ferofs_tests::{Mount, Outcome, need};
use rustix::process::{Pid, Signal, kill_process};

use super::{isolated, sealed, serve};
use crate::common::fixture::Fixture;

/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The processes of mounts of `location` in this role: `fetcher`, `supervisor`.
pub(super) fn processes(location: &str, role: &str) -> Vec<Pid> {
    let has = |path: PathBuf, text: &str| {
        std::fs::read(path)
            .is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|part| part == text.as_bytes()))
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let role = format!("FEROFS_MOUNT_FETCHER={role}");
    let is_in_role = |process: &PathBuf| {
        has(process.join("environ"), &role) && has(process.join("cmdline"), location)
    };
    let number = |process: PathBuf| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?);
    processes.filter(is_in_role).filter_map(number).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Mounts in the background, with names of files that start at `current`.
fn mount(fixture: &Fixture, current: &Path, location: &str, options: &[&str]) -> Outcome {
    let dir = fixture.path("dir");
    std::fs::create_dir_all(&dir).unwrap();
    isolated(fixture).dir(current).args(["mount", "--fuse", location]).arg(dir).args(options).run()
}

fn kill_fetcher(location: &str) {
    let [fetcher] = processes(location, "fetcher")[..] else {
        panic!("not one fetcher of {location}")
    };
    kill_process(fetcher, Signal::KILL).unwrap();
}

fn assert_no_processes(location: &str) {
    wait_until("processes stay", || {
        processes(location, "fetcher").is_empty() && processes(location, "supervisor").is_empty()
    });
}

#[test]
fn the_next_fetcher_needs_no_file_of_the_first_one() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let location = server.url("/image");
    let current = fixture.directory("current");
    std::fs::write(current.join("hash"), root).unwrap();
    mount(&fixture, &current, &location, &["--roothash-file", "hash", "--prefetch", "none"])
        .success();
    let mounted = Mount::adopt(&fixture.path("dir"));
    std::fs::remove_dir_all(current).unwrap();
    kill_fetcher(&location);
    let read = std::fs::read(mounted.path().join("data")).unwrap();
    assert!(read == std::fs::read(fixture.source().join("data")).unwrap(), "wrong bytes");
    drop(mounted);
    assert_no_processes(&location);
}

#[test]
fn the_reason_of_a_fetcher_that_cannot_start_is_printed() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = Server::start().unwrap();
    server.put("/image", std::fs::read(&image).unwrap());
    let location = server.url("/image");
    let fails = |options: &[&str], reason: &str| {
        for more in [&[][..], &["-f"]] {
            let options = [&["--roothash", &root], options, more].concat();
            let failed = mount(&fixture, &fixture.path("."), &location, &options).failure(1);
            failed.says(reason);
            assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
        }
        assert_no_processes(&location);
    };
    fails(&["--token-file", "no-token"], "no-token: ");
    server.add(Rule::new(Fault::Complete));
    fails(&[], "does not serve ranges");
}

#[test]
fn a_fetcher_that_cannot_start_again_says_why() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let location = server.url("/image");
    let (current, log) = (fixture.path("."), fixture.path("log"));
    std::fs::write(fixture.path("password"), "secret\n").unwrap();
    let options =
        ["--roothash", &root, "--user", "me", "--password-file", "password", "--log-file", "log"];
    mount(&fixture, &current, &location, &options).success();
    let mounted = Mount::adopt(&fixture.path("dir"));
    std::fs::remove_file(fixture.path("password")).unwrap();
    kill_fetcher(&location);
    wait_until("no word in the log", || {
        std::fs::read_to_string(&log).unwrap_or_default().contains("password: No such file")
    });
    drop(mounted);
    assert_no_processes(&location);
}
