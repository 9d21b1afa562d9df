//! A control group (cgroup): the kernel counts and limits the memory of the processes in it. Both
//! versions of the cgroup interface are supported.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// This machine lacks something that a measurement needs. It is not a failure of the measured
/// program, so callers can report it as "left out".
#[derive(Clone, Debug)]
pub struct Unavailable(pub String);

impl Display for Unavailable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A control group. Dropping the value removes the group.
pub struct Cgroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// Creates a group. Its processes may use at most `limit` bytes of memory; the page cache of
    /// the files that they read counts.
    ///
    /// # Errors
    /// [`Unavailable`] where the machine has no memory cgroups or does not allow a new one.
    pub fn new(limit: Option<u64>) -> Result<Self> {
        let root = Path::new(ROOT);
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let (parent, version) = if controllers.split_whitespace().any(|name| name == "memory") {
            (root.to_owned(), Version::Two)
        } else if root.join("memory/cgroup.procs").is_file() {
            (root.join("memory"), Version::One)
        } else {
            return Err(Unavailable("needs control groups for memory".into()).into());
        };
        let dir = parent.join(format!("ferofs-bench-{}", std::process::id()));
        let enabled = match version {
            Version::Two => fs::write(parent.join("cgroup.subtree_control"), "+memory"),
            Version::One => Ok(()),
        };
        if let Err(error) = enabled.and_then(|()| fs::create_dir(&dir)) {
            return Err(Unavailable(format!("needs to make a control group: {error}")).into());
        }
        let group = Self { dir, version };
        if let Some(limit) = limit {
            group.set_limit(limit)?;
        }
        Ok(group)
    }

    /// Changes the limit to `bytes`. The kernel evicts page cache until the group fits.
    ///
    /// # Errors
    /// When the kernel refuses the limit.
    pub fn set_limit(&self, bytes: u64) -> Result<()> {
        let file = self.file("memory.limit_in_bytes", "memory.max");
        fs::write(&file, bytes.to_string()).with_context(|| file.display().to_string())
    }

    /// Moves the process `id` into the group. Its future children start in the group, too.
    ///
    /// # Errors
    /// When the kernel refuses to move it.
    pub fn add_process(&self, id: u32) -> Result<()> {
        let file = self.dir.join("cgroup.procs");
        fs::write(&file, id.to_string()).with_context(|| file.display().to_string())
    }

    /// Moves the process `id` to the parent group.
    ///
    /// # Errors
    /// When the kernel refuses to move it.
    pub fn remove_process(&self, id: u32) -> Result<()> {
        let file = self.dir.join("../cgroup.procs");
        fs::write(&file, id.to_string()).with_context(|| file.display().to_string())
    }

    /// A command that moves itself into the group and then executes `command`.
    pub fn wrap(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.dir.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }

    /// Bytes of memory that the kernel charges to the group now.
    ///
    /// # Errors
    /// When the counter cannot be read.
    pub fn memory_usage(&self) -> Result<u64> {
        let file = self.file("memory.usage_in_bytes", "memory.current");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        text.trim().parse().with_context(|| file.display().to_string())
    }

    fn file(&self, version_one: &str, version_two: &str) -> PathBuf {
        self.dir.join(match self.version {
            Version::One => version_one,
            Version::Two => version_two,
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may count a process that has just ended for a moment longer; then the
        // directory is busy.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("cannot remove the control group {}", self.dir.display());
    }
}
