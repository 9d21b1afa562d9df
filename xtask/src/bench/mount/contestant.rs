//! Who mounts what, and how; and what its daemon used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::mount::is_mounted;

use super::quietly;
use super::stage::Stage;

/// Clock ticks of /proc/PID/stat in a second: a constant of Linux's interface.
const TICKS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) image: PathBuf,
    pub(super) way: Way,
}

/// A way to mount.
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
    pub(super) fn new(name: &'static str, image: &Path, way: Way) -> Self {
        Self { name, image: image.to_owned(), way }
    }

    pub(super) fn mount(&self, stage: &Stage) -> Result<Mounted> {
        let dir = stage.mount_point();
        let mut command = match self.way {
            Way::Ferofs(options) => {
                let mut ferofs = Command::new(&stage.ferofs);
                ferofs.args(["mount", "--fuse", "-f"]).args(options);
                ferofs
            }
            Way::Erofsfuse => {
                let mut erofsfuse = Command::new(&stage.erofsfuse);
                erofsfuse.arg("-f");
                erofsfuse
            }
            Way::Squashfuse => {
                let mut squashfuse = Command::new("squashfuse");
                squashfuse.arg("-f");
                squashfuse
            }
            Way::Kernel(kind) => {
                quietly(Command::new("mount").args(["-t", kind, "-o", "ro,loop"]).args([&self.image, &dir]))?;
                return Ok(Mounted { dir, by: By::Kernel });
            }
            Way::KernelFile => {
                let held = ferofs_tests::Mount::kernel_file(&self.image, &dir)?;
                return Ok(Mounted { dir, by: By::Held(held) });
            }
        };
        command.args([&self.image, &dir]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
        if let Err(error) = quietly(Command::new("umount").arg(&self.dir)) {
            eprintln!("{error:#}");
        }
        if let By::Daemon(daemon) = &mut self.by
            && let Err(error) = daemon.wait()
        {
            eprintln!("waiting for a daemon: {error}");
        }
    }
}
