//! A group of processes whose memory Linux counts and limits: a control group, in either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::Lacks;

const ROOT: &str = "/sys/fs/cgroup";

/// A control group, removed when the value goes.
pub(crate) struct Group {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl Group {
    /// A group of its own, with at most `limit` bytes of memory, the page cache of what it reads included.
    pub(crate) fn new(limit: Option<u64>) -> Result<Self> {
        let root = Path::new(ROOT);
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let (parent, version) = if controllers.split_whitespace().any(|name| name == "memory") {
            (root.to_owned(), Version::Two)
        } else if root.join("memory/cgroup.procs").is_file() {
            (root.join("memory"), Version::One)
        } else {
            return Err(Lacks("needs control groups for memory".into()).into());
        };
        let dir = parent.join(format!("ferofs-bench-{}", std::process::id()));
        let made = match version {
            Version::Two => fs::write(parent.join("cgroup.subtree_control"), "+memory"),
            Version::One => Ok(()),
        };
        if let Err(error) = made.and_then(|()| fs::create_dir(&dir)) {
            return Err(Lacks(format!("needs to make a control group: {error}")).into());
        }
        let group = Self { dir, version };
        if let Some(limit) = limit {
            group.limit(limit)?;
        }
        Ok(group)
    }

    /// Changes the limit to `bytes`. The kernel takes back page cache until the group fits.
    pub(crate) fn limit(&self, bytes: u64) -> Result<()> {
        let file = self.file("memory.limit_in_bytes", "memory.max");
        fs::write(&file, bytes.to_string()).with_context(|| file.display().to_string())
    }

    /// Takes the process `id` in, with the children that it will have.
    pub(crate) fn adopt(&self, id: u32) -> Result<()> {
        let file = self.dir.join("cgroup.procs");
        fs::write(&file, id.to_string()).with_context(|| file.display().to_string())
    }

    /// Gives the process `id` back to the group above.
    pub(crate) fn release(&self, id: u32) -> Result<()> {
        let file = self.dir.join("../cgroup.procs");
        fs::write(&file, id.to_string()).with_context(|| file.display().to_string())
    }

    /// A command that runs `command` within the group.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.dir.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }

    /// Bytes of memory that are charged to the group now.
    pub(crate) fn held(&self) -> Result<u64> {
        let file = self.file("memory.usage_in_bytes", "memory.current");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        text.trim().parse().with_context(|| file.display().to_string())
    }

    fn file(&self, one: &str, two: &str) -> PathBuf {
        self.dir.join(match self.version {
            Version::One => one,
            Version::Two => two,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that just ended may be counted for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} stays", self.dir.display());
    }
}
