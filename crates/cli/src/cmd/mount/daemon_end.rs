//! Lets `ferofs umount` wait until the processes of a FUSE mount have ended: then its access
//! profile is written, its pid file removed, and the image closed.
//!
//! /proc shows the unmount helper of a mount by its arguments, and the daemon (or its keeper) as
//! the helper's parent. Where /proc does not show them, for example in another PID namespace,
//! nobody waits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ferofs::escape::Escaped;

use crate::cmd::mount::memory::NAMES_TIME;
use crate::cmd::mount::mount_table::{FuseMounts, MountEntry};
use crate::cmd::mount::unmount_helper;
use crate::exit::{Failure, warn};

/// How long a daemon may take to end when it has no profile to write. It takes milliseconds.
const END_TIME: Duration = Duration::from_secs(5);
/// The pause between two looks at the processes grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The processes of a mount, found before the unmount.
pub(super) struct DaemonEnd {
    /// All mounts of the file system.
    mounts: FuseMounts,
    /// The unmount helpers of this directory, with their parents: those of other mounts there, too.
    pairs: Vec<[Option<Process>; 2]>,
    /// The access profile that the helper will write.
    profile: Option<PathBuf>,
}

/// A process, which has ended when another one has its number, or none.
struct Process {
    folder: PathBuf,
    arguments: Vec<u8>,
}

impl DaemonEnd {
    /// Of the mount on `dir`, an absolute path without symbolic links.
    pub(super) fn of(dir: &Path, mount: &MountEntry) -> Self {
        let mut found =
            Self { mounts: FuseMounts::of(&mount.device), pairs: Vec::new(), profile: None };
        if !mount.kind.starts_with("fuse.") {
            return found;
        }
        let own_namespace = namespace(Path::new("/proc/self"));
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(helper) = Process::of(entry.path()) else { continue };
            let words: Vec<&OsStr> = helper.words().collect();
            let Some(profile) = unmount_helper::profile_of(&words, dir) else { continue };
            if own_namespace.is_none() || namespace(&helper.folder) != own_namespace {
                continue;
            }
            found.profile = found.profile.or(profile.map(Path::to_owned));
            let parent = helper.parent();
            found.pairs.push([Some(helper), parent]);
        }
        found
    }

    /// Whether an unmount helper of ferofs waits for the end of a mount on the directory.
    pub(super) const fn has_helper(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Waits after the unmount, for a limited time. Does not wait while the file system has another
    /// mount.
    pub(super) fn wait(self) -> Result<(), Failure> {
        let limit = END_TIME + if self.profile.is_some() { NAMES_TIME } else { Duration::ZERO };
        let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
        let has_ended = |pair: &[Option<Process>; 2]| pair.iter().flatten().all(Process::has_ended);
        while !self.pairs.is_empty() && !self.pairs.iter().any(has_ended) {
            if self.mounts.are_left() || start.elapsed() >= limit {
                let Some(profile) = self.profile else { break };
                let reason =
                    "not written yet: the image is in use elsewhere, or its server does not answer";
                return warn(format_args!("{}: {reason}", Escaped::path(&profile)));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }
}

impl Process {
    fn of(folder: PathBuf) -> Option<Self> {
        let arguments = std::fs::read(folder.join("cmdline")).ok()?;
        (!arguments.is_empty()).then_some(Self { folder, arguments })
    }

    fn words(&self) -> impl Iterator<Item = &OsStr> {
        let words = self.arguments.strip_suffix(b"\0").unwrap_or(&self.arguments);
        words.split(|byte| *byte == 0).map(OsStr::from_bytes)
    }

    /// A process that has ended has no arguments, also before its parent has looked at it.
    fn has_ended(&self) -> bool {
        !std::fs::read(self.folder.join("cmdline"))
            .is_ok_and(|arguments| arguments == self.arguments)
    }

    /// The parent, if it runs the same program: the process that adopts the helper of a killed
    /// daemon does not end.
    fn parent(&self) -> Option<Self> {
        let stat = std::fs::read_to_string(self.folder.join("stat")).ok()?;
        // The name of the program may have spaces and parentheses. Its state and the parent follow.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned();
        let parent = Self::of(Path::new("/proc").join(parent))?;
        let program = |process: &Self| std::fs::read_link(process.folder.join("exe")).ok();
        (program(&parent)? == program(self)?).then_some(parent)
    }
}

/// The mount namespace of a process: a mount with the same path in another one is another mount.
fn namespace(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/mnt")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_is_noticed_before_and_after_its_parent_looks() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let folder = Path::new("/proc").join(child.id().to_string());
        // While the program starts, it has no arguments.
        let process = loop {
            let Some(process) = Process::of(folder.clone()) else { continue };
            if process.words().any(|word| word == "100") {
                break process;
            }
        };
        assert!(!process.has_ended());
        // `sleep` is another program than its parent.
        assert!(process.parent().is_none());
        child.kill().unwrap();
        let start = Instant::now();
        while !process.has_ended() {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        child.wait().unwrap();
        assert!(process.has_ended());
    }
}
