//! A FUSE daemon with failing system calls: each read returns the right bytes or an error, nothing
//! waits forever, and no mount is left behind.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferofs_tests::mount::is_mounted;
use ferofs_tests::{Content, Rng, ferofs, ferofs_path, need};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::syscalls::Fault;
use super::tracer::{Injection, Traced, trace};
use super::{TIMEOUT, Total, injections};

/// A reader that waits longer hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

struct DaemonFixture {
    dir: TempDir,
    files: Vec<(&'static str, Vec<u8>)>,
}

/// The results of the readers of one mount.
#[derive(Default)]
struct Seen {
    appeared: bool,
    wrong: Vec<String>,
}

pub(crate) fn run(every: usize, repeat: Option<&str>, total: &mut Total) -> Result<()> {
    if !need::fuse() {
        return Ok(());
    }
    let fixture = DaemonFixture::new()?;
    let (faultless, seen) = fixture.attempt(None)?;
    if !seen.appeared || !seen.wrong.is_empty() || faultless.status.code() != Some(0) {
        anyhow::bail!(
            "traced, the mount fails: {:?} {} {}",
            seen.wrong,
            faultless.status,
            faultless.stderr
        );
    }
    // Writes of answers to the FUSE device do not fail here: the kernel refuses an answer only if
    // nothing waits for it any more.
    let answers =
        |inject: &Injection| inject.number == libc::SYS_writev && inject.fault != Fault::Kill;
    let all: Vec<_> = injections(&faultless.calls).filter(|(_, inject)| !answers(inject)).collect();
    println!("mount: {} of {} failures", all.len().div_ceil(every), all.len());
    for (call, inject) in all.into_iter().step_by(every) {
        let name = format!("mount:{call}:{}:{}", inject.nth, inject.fault.name());
        if repeat.is_some_and(|case| case != name) {
            continue;
        }
        let (traced, seen) = fixture.attempt(Some(inject))?;
        total.add(&name, inject.fault, traced.injected.then(|| judge(&traced, seen, inject.fault)));
    }
    Ok(())
}

fn judge(traced: &Traced, seen: Seen, fault: Fault) -> Vec<String> {
    let mut wrong = seen.wrong;
    let said = &traced.stderr;
    if traced.hung {
        wrong.push("the daemon does not end".to_owned());
    }
    if said.contains("panicked") || said.contains("internal error") {
        wrong.push(format!("it panics: {said}"));
    }
    if traced.status.code().is_none() && fault != Fault::Kill && !traced.hung {
        wrong.push(format!("it ends with {}", traced.status));
    }
    if !seen.appeared && traced.status.code() == Some(0) {
        wrong.push("no mount, and exit code 0".to_owned());
    }
    if traced.status.code().is_some_and(|code| code != 0) && !said.contains("ferofs: ") {
        wrong.push("it fails without a message".to_owned());
    }
    wrong
}

impl DaemonFixture {
    fn new() -> Result<Self> {
        let dir = TempDir::new()?;
        let source = dir.path().join("source");
        fs::create_dir_all(&source)?;
        let mut noise = vec![0; 9000];
        Rng::new(1).fill(&mut noise);
        let files =
            vec![("text", Content::Text.bytes(150_000, &mut Rng::new(2))), ("noise", noise)];
        for (name, bytes) in &files {
            fs::write(source.join(name), bytes)?;
        }
        fs::create_dir(dir.path().join("mount"))?;
        ferofs!("build -q -z lz4", &source, dir.path().join("image")).success();
        Ok(Self { dir, files })
    }

    fn attempt(&self, inject: Option<Injection>) -> Result<(Traced, Seen)> {
        let mount = self.dir.path().join("mount");
        let mut command = Command::new(ferofs_path());
        command.args(["mount", "--fuse", "-f"]).arg(self.dir.path().join("image")).arg(&mount);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let ended = AtomicBool::new(false);
        let (traced, seen) = thread::scope(|scope| {
            let reader = scope.spawn(|| self.read(&mount, &ended));
            let traced = trace(command, inject, TIMEOUT);
            ended.store(true, Ordering::Relaxed);
            (traced, reader.join())
        });
        let traced = traced.context("tracing")?;
        let mut seen = seen.unwrap_or_else(|_| Seen {
            appeared: true,
            wrong: vec!["the reader panicked".to_owned()],
        });
        // The unmount helper removes the mount of a daemon that was killed. That takes a moment.
        let start = Instant::now();
        while is_mounted(&mount) && start.elapsed() < READ_TIMEOUT {
            thread::sleep(Duration::from_millis(10));
        }
        if is_mounted(&mount) {
            seen.wrong.push("a mount stays behind".to_owned());
            unmount(&mount, UnmountFlags::DETACH)?;
        }
        Ok((traced, seen))
    }

    /// Waits for the mount, reads all files, and unmounts.
    fn read(&self, mount: &Path, ended: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        while !is_mounted(mount) {
            if ended.load(Ordering::Relaxed) {
                return seen;
            }
            thread::sleep(Duration::from_millis(2));
        }
        seen.appeared = true;
        for (name, bytes) in &self.files {
            let start = Instant::now();
            let mut got = Vec::new();
            let read = File::open(mount.join(name)).and_then(|mut file| file.read_to_end(&mut got));
            if read.is_ok() && got != *bytes || !bytes.starts_with(&got) {
                seen.wrong.push(format!("wrong bytes of {name}"));
            }
            if start.elapsed() > READ_TIMEOUT {
                seen.wrong.push(format!("{name} hangs for {:?}", start.elapsed()));
            }
        }
        // The daemon may have ended in the meantime, and its mount with it.
        let _ = unmount(mount, UnmountFlags::empty());
        seen
    }
}
