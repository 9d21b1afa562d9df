//! Who mounts what, and how; and what its daemon used.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::mount::is_mounted;
use ferofs_tests::need;

use super::measure::quietly;
use crate::group::Group;

/// Clock ticks of /proc/PID/stat in a second: a constant of Linux's interface.
const TICKS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// What this machine has not, so that something cannot be measured; no failure of what was to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Lacks(pub(crate) String);

impl Display for Lacks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lacks {}

/// The daemons.
#[derive(Clone, Debug)]
pub(super) struct Daemons {
    pub(super) ferofs: PathBuf,
    pub(super) erofsfuse: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Contestant {
    pub(super) name: String,
    /// A file, or a block device.
    pub(super) image: PathBuf,
    pub(super) way: Way,
}

/// A way to mount.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Our daemon, with further options.
    Ferofs(&'static [&'static str]),
    Erofsfuse,
    Squashfuse,
    /// The kernel's driver of this type, through a loop device.
    Kernel(&'static str),
    /// The kernel's EROFS, right from the file.
    KernelFile,
}

impl Way {
    /// Whether a process of its own answers.
    pub(super) fn is_daemon(self) -> bool {
        matches!(self, Self::Ferofs(_) | Self::Erofsfuse | Self::Squashfuse)
    }

    /// Whether this machine can mount so, if the programs are there.
    pub(super) fn check(self) -> Result<(), Lacks> {
        match self {
            Self::Ferofs(_) | Self::Erofsfuse | Self::Squashfuse => {
                if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
                    return Err(Lacks("needs /dev/fuse".into()));
                }
                match need::is_root() || need::find_tool("fusermount3").is_some() {
                    true => Ok(()),
                    false => Err(Lacks("needs fusermount3".into())),
                }
            }
            Self::Kernel(_) | Self::KernelFile if !need::is_root() => Err(Lacks("needs root".into())),
            Self::Kernel(kind) => kernel_has(kind),
            Self::KernelFile => kernel_has("erofs"),
        }
    }
}

/// Whether the kernel has a file system of this type, loading its module if need be.
fn kernel_has(kind: &str) -> Result<(), Lacks> {
    let listed = || {
        let all = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        all.lines().any(|line| line.split_whitespace().last() == Some(kind))
    };
    if !listed() && need::is_root() && need::find_tool("modprobe").is_some() {
        // Whether it could be loaded is seen in the list.
        let _ = Command::new("modprobe").args(["-q", kind]).status();
    }
    if listed() { Ok(()) } else { Err(Lacks(format!("needs {kind} in the kernel"))) }
}

/// A mounted image; unmounted when the value goes.
pub(super) struct Mounted {
    dir: PathBuf,
    by: By,
}

enum By {
    Daemon(Child),
    Kernel,
    /// Unmounts by itself.
    Held(#[expect(dead_code, reason = "unmounts when dropped")] ferofs_tests::Mount),
}

impl Contestant {
    pub(super) fn new(name: impl Into<String>, image: &Path, way: Way) -> Self {
        Self { name: name.into(), image: image.to_owned(), way }
    }

    pub(super) fn mount(&self, daemons: &Daemons, dir: &Path) -> Result<Mounted> {
        self.mount_in(daemons, dir, None)
    }

    /// Mounts with the daemon, if there is one, in a group of processes.
    pub(super) fn mount_in(&self, daemons: &Daemons, dir: &Path, group: Option<&Group>) -> Result<Mounted> {
        let dir = dir.to_owned();
        let mut command = match self.way {
            Way::Ferofs(options) => {
                let mut ferofs = Command::new(&daemons.ferofs);
                ferofs.args(["mount", "--fuse", "-f"]).args(options);
                ferofs
            }
            Way::Erofsfuse => {
                let erofsfuse = daemons.erofsfuse.as_ref();
                let lacks = || Lacks("needs erofsfuse: cargo xtask peers".into());
                let mut erofsfuse = Command::new(erofsfuse.ok_or_else(lacks)?);
                erofsfuse.arg("-f");
                erofsfuse
            }
            Way::Squashfuse => {
                let squashfuse = need::find_tool("squashfuse");
                let mut squashfuse =
                    Command::new(squashfuse.ok_or_else(|| Lacks("needs squashfuse".into()))?);
                squashfuse.arg("-f");
                squashfuse
            }
            Way::Kernel(kind) => {
                let device = fs::metadata(&self.image)?.file_type().is_block_device();
                let options = if device { "ro" } else { "ro,loop" };
                quietly(Command::new("mount").args(["-t", kind, "-o", options]).args([&self.image, &dir]))?;
                return Ok(Mounted { dir, by: By::Kernel });
            }
            Way::KernelFile => {
                let held = ferofs_tests::Mount::kernel_file(&self.image, &dir)?;
                return Ok(Mounted { dir, by: By::Held(held) });
            }
        };
        command.args([&self.image, &dir]);
        if let Some(group) = group {
            command = group.enter(&command);
        }
        // In a session of its own, as a daemon in the background is: Linux shares processors out by sessions.
        let mut session = Command::new("setsid");
        session.arg(command.get_program()).args(command.get_args());
        let mut command = session;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = command.spawn().context("starting the daemon")?;
        let start = Instant::now();
        while !is_mounted(&dir) {
            if daemon.try_wait()?.is_some() {
                bail!("the daemon ended: {command:?}");
            }
            if start.elapsed() > PATIENCE {
                daemon.kill()?;
                bail!("nothing is mounted after a minute: {command:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Mounted { dir, by: By::Daemon(daemon) })
    }
}

impl Mounted {
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// Processor seconds that the daemon used so far, if there is one.
    pub(super) fn cpu(&self) -> Option<f64> {
        let stat = fs::read_to_string(self.proc("stat")?).ok()?;
        // The second field, in parentheses, may have any characters.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |number: usize| fields.get(number)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / TICKS)
    }

    /// Bytes of memory that the daemon has for itself now.
    pub(super) fn private_dirty(&self) -> Option<u64> {
        let map = fs::read_to_string(self.proc("smaps_rollup")?).ok()?;
        let line = map.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }

    fn proc(&self, file: &str) -> Option<PathBuf> {
        let By::Daemon(daemon) = &self.by else { return None };
        Some(Path::new("/proc").join(daemon.id().to_string()).join(file))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let By::Held(_) = self.by {
            return;
        }
        let mut umount = if need::is_root() { Command::new("umount") } else { Command::new("fusermount3") };
        if !need::is_root() {
            umount.arg("-u");
        }
        if let Err(error) = quietly(umount.arg(&self.dir)) {
            eprintln!("{error:#}");
        }
        if let By::Daemon(daemon) = &mut self.by
            && let Err(error) = daemon.wait()
        {
            eprintln!("waiting for a daemon: {error}");
        }
    }
}
