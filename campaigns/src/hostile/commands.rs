//! Runs the commands and a FUSE mount on a hostile image, with the same limits.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use ferofs_tests::run::{Outcome, Run, ferofs_path};
use ferofs_tests::{Mount, Rng, need};
use rustix::fs::SeekFrom;
use tempfile::TempDir;

use super::base_images::{DEVICE, TestImage};
use super::operations::{MEMORY, TIME, TIME_PER_MB};

/// Time after which a command is killed. Other programs share the machine, so this is far above the
/// CPU time allowed.
const TIMEOUT: Duration = Duration::from_secs(400);
/// Names of a mount that are read: a loop of directories has no end.
const NAMES: usize = 400;
/// Bytes of memory that a program uses before it reads an image: code, stacks of its threads,
/// allocator.
const PROGRAM_MEMORY: u64 = 24 << 20;

/// The commands that take an image, without the image itself.
const COMMANDS: [&[&str]; 8] = [
    &["check"],
    &["check", "--deep"],
    &["inspect"],
    &["inspect", "--json"],
    &["ls", "-R", "-l"],
    &["cat"],
    &["diff"],
    &["extract"],
];

/// A directory for an image, its extracted tree, and its mount.
pub(crate) struct Commands {
    work_dir: TempDir,
}

impl Commands {
    pub(crate) fn new() -> Result<Self> {
        // Images and extracted trees are small, but many: a directory in memory is faster.
        let work_dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new())?;
        fs::create_dir(work_dir.path().join("mount"))?;
        Ok(Self { work_dir })
    }

    /// Runs all commands on `image`, and returns their defects.
    pub(crate) fn try_all(&mut self, image: &TestImage, rng: &mut Rng) -> Result<Vec<String>> {
        let path = self.work_dir.path().join("image.erofs");
        let _ = fs::remove_file(path.with_extension(DEVICE));
        image.write(&path)?;
        let mut failures = Vec::new();
        for words in COMMANDS {
            let outcome = self.command(words, &path)?;
            failures.extend(defect(words, &outcome, image));
        }
        if need::fuse() {
            failures.extend(self.mount(&path, rng));
        }
        Ok(failures)
    }

    fn command(&self, words: &[&str], image: &Path) -> Result<Outcome> {
        // `diff` takes no devices.
        let device = if words[0] == "diff" { Vec::new() } else { device_option(image) };
        let run = Run::limited(ferofs_path(), None, TIMEOUT).args(words).args(device).arg(image);
        let target = self.work_dir.path().join("extracted");
        let run = match words[0] {
            "diff" => run.arg(image),
            "cat" => run.arg("/name005"),
            // The content of an image may be much larger than the image, and than this directory.
            "extract" => Run::limited("sh", None, TIMEOUT)
                .args(["-c", "ulimit -f 65536; trap '' XFSZ; exec \"$0\" extract \"$1\" \"$2\""])
                .args([ferofs_path(), image, &target]),
            _ => run,
        };
        let outcome = run.try_run()?;
        if target.exists() {
            let _ = std::process::Command::new("rm").arg("-rf").arg(&target).status();
        }
        Ok(outcome)
    }

    fn mount(&self, image: &Path, rng: &mut Rng) -> Vec<String> {
        let dir = self.work_dir.path().join("mount");
        let options = device_option(image);
        let options: Vec<&OsStr> = options.iter().map(OsString::as_os_str).collect();
        let mount = match Mount::fuse_with(ferofs_path(), &options, image, &dir) {
            Ok(mount) => mount,
            Err(error) => {
                let said = error.to_string();
                let refused = said.contains("ferofs: ") && !said.contains("panicked");
                return if refused { Vec::new() } else { vec![format!("mount: {said}")] };
            }
        };
        let start = Instant::now();
        use_mount(&dir, rng);
        let mut failures = Vec::new();
        if start.elapsed() > TIMEOUT {
            failures.push(format!("mount: reading {NAMES} names takes {:?}", start.elapsed()));
        }
        match mount.unmount() {
            Ok((Some(0), _)) => {}
            Ok((code, said)) => {
                failures.push(format!("mount: the daemon ends with {code:?}: {said}"))
            }
            Err(error) => failures.push(format!("mount: {error}")),
        }
        failures
    }
}

/// The option that names the image's extra device, if it has one.
fn device_option(image: &Path) -> Vec<OsString> {
    let device = image.with_extension(DEVICE);
    if device.exists() { vec!["--device".into(), device.into()] } else { Vec::new() }
}

fn defect(words: &[&str], outcome: &Outcome, image: &TestImage) -> Option<String> {
    let name = words.join(" ");
    let limit = Duration::from_micros(TIME + TIME_PER_MB * (image.len() >> 20) as u64);
    let memory = (MEMORY + image.len()) as u64 + PROGRAM_MEMORY;
    let said = || outcome.stderr.chars().take(200).collect::<String>();
    if outcome.stderr.contains("panicked") || outcome.stderr.contains("internal error") {
        return Some(format!("{name}: {}", said()));
    }
    if outcome.cpu > limit || outcome.wall >= TIMEOUT {
        return Some(format!("{name}: {:?} of CPU, {:?} in all", outcome.cpu, outcome.wall));
    }
    if outcome.peak > memory {
        return Some(format!("{name}: {} bytes of memory", outcome.peak));
    }
    // The exit codes of fsck(8) for `check`.
    let documented: &[i32] = if words[0] == "check" { &[0, 1, 2, 4, 8] } else { &[0, 1, 2] };
    (!documented.contains(&outcome.code))
        .then(|| format!("{name}: exit code {}: {}", outcome.code, said()))
}

/// Lists, reads and seeks as programs do. Errors are allowed.
fn use_mount(dir: &Path, rng: &mut Rng) {
    let mut pending: Vec<PathBuf> = vec![dir.to_owned()];
    let (mut names, mut buffer) = (0, vec![0; 128 << 10]);
    while let Some(path) = pending.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.take(NAMES).filter_map(Result::ok) {
            names += 1;
            if names > NAMES {
                return;
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                pending.push(path);
                continue;
            }
            let _ = fs::read_link(&path);
            if !metadata.is_file() {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            for offset in [0, metadata.len().saturating_sub(4096), rng.below(metadata.len().max(1))]
            {
                let _ = file.read_at(&mut buffer, offset);
                let _ = rustix::fs::seek(&file, SeekFrom::Hole(offset));
                let _ = rustix::fs::seek(&file, SeekFrom::Data(offset));
            }
            let _ = rustix::fs::getxattr(&path, "user.key", &mut [0u8; 1024][..]);
            let _ = rustix::fs::listxattr(&path, &mut [0u8; 8192][..]);
        }
    }
}
