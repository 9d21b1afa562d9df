//! Mounts a file system by one of several drivers, and measures the memory and processor time of
//! its daemon.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use ferofs_devtools::cgroup::Cgroup;
use ferofs_tests::mount::is_mounted;
use ferofs_tests::need;
use ferofs_tests::run::proc_bytes;

use super::programs::resident_peak;
use ferofs_devtools::shell::run_quietly;

pub(crate) use ferofs_devtools::cgroup::Unavailable;

/// A daemon that has mounted nothing after this time hangs.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// The programs of the FUSE daemons.
#[derive(Clone, Debug)]
pub(crate) struct DaemonPrograms {
    pub(crate) ferofs: PathBuf,
    pub(crate) erofsfuse: Option<PathBuf>,
}

/// An image and the driver that mounts it.
#[derive(Clone, Debug)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    /// A file or a block device.
    pub(crate) image: PathBuf,
    pub(crate) driver: Driver,
}

/// Mounts an image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Driver {
    /// `ferofs mount --fuse` with further options.
    Ferofs(&'static [&'static str]),
    /// The same for a sealed image, whose root hash is in [`root_hash_file`].
    Sealed,
    /// `bench policy` with this policy of decoding.
    Policy(&'static str),
    Erofsfuse,
    Squashfuse,
    /// The kernel's driver of this file system type, through a loop device.
    Kernel(&'static str),
}

/// The file with the root hash of a sealed image.
pub(crate) fn root_hash_file(image: &Path) -> PathBuf {
    image.with_extension("roothash")
}

impl Driver {
    /// Checks the kernel, not whether the daemon's program is installed.
    pub(crate) fn check(self) -> Result<(), Unavailable> {
        match self {
            Self::Kernel(kind) => check_kernel(kind),
            _ if !Path::new("/dev/fuse").exists() => Err(Unavailable("needs /dev/fuse".into())),
            _ => Ok(()),
        }
    }
}

/// Checks that the kernel has the file system type `kind`, and loads its module if necessary.
fn check_kernel(kind: &str) -> Result<(), Unavailable> {
    let listed = || {
        let all = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        all.lines().any(|line| line.split_whitespace().last() == Some(kind))
    };
    if !listed() && need::find_tool("modprobe").is_some() {
        // If modprobe fails, the type is not listed below.
        let _ = Command::new("modprobe").args(["-q", kind]).status();
    }
    if listed() { Ok(()) } else { Err(Unavailable(format!("needs {kind} in the kernel"))) }
}

/// A mounted image. Dropping the value unmounts it, which needs root, as mounting does.
pub(crate) struct Mounted {
    dir: PathBuf,
    server: Server,
}

enum Server {
    Daemon(Child),
    Kernel,
}

impl FileSystem {
    pub(crate) fn new(name: impl Into<String>, image: &Path, driver: Driver) -> Self {
        Self { name: name.into(), image: image.to_owned(), driver }
    }

    pub(crate) fn mount(&self, programs: &DaemonPrograms, dir: &Path) -> Result<Mounted> {
        self.mount_in(programs, dir, None)
    }

    /// Mounts on `dir`. The daemon, if there is one, runs in the control group.
    pub(crate) fn mount_in(
        &self,
        programs: &DaemonPrograms,
        dir: &Path,
        group: Option<&Cgroup>,
    ) -> Result<Mounted> {
        let dir = dir.to_owned();
        let mut command = match self.driver {
            Driver::Ferofs(options) => {
                let mut ferofs = Command::new(&programs.ferofs);
                ferofs.args(["mount", "--fuse", "-f"]).args(options);
                ferofs
            }
            Driver::Sealed => {
                let mut ferofs = Command::new(&programs.ferofs);
                ferofs
                    .args(["mount", "--fuse", "-f", "--roothash-file"])
                    .arg(root_hash_file(&self.image));
                ferofs
            }
            Driver::Policy(name) => {
                let mut own = Command::new(std::env::current_exe()?);
                own.args(["policy", name]);
                own
            }
            Driver::Erofsfuse => {
                let missing = || Unavailable("needs erofsfuse: cargo xtask peers".into());
                let mut erofsfuse = Command::new(programs.erofsfuse.as_ref().ok_or_else(missing)?);
                erofsfuse.arg("-f");
                erofsfuse
            }
            Driver::Squashfuse => {
                let missing = || Unavailable("needs squashfuse".into());
                let mut squashfuse =
                    Command::new(need::find_tool("squashfuse").ok_or_else(missing)?);
                squashfuse.arg("-f");
                squashfuse
            }
            Driver::Kernel(kind) => {
                let is_device = fs::metadata(&self.image)?.file_type().is_block_device();
                let options = if is_device { "ro" } else { "ro,loop" };
                run_quietly(
                    Command::new("mount")
                        .args(["-t", kind, "-o", options])
                        .args([&self.image, &dir]),
                )?;
                return Ok(Mounted { dir, server: Server::Kernel });
            }
        };
        command.args([&self.image, &dir]);
        if let Some(group) = group {
            command = group.wrap(&command);
        }
        // The Linux scheduler divides processor time between sessions. A daemon normally runs in a
        // session of its own; without setsid it would share fio's part.
        let mut session = Command::new("setsid");
        session.arg(command.get_program()).args(command.get_args());
        session.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = session.spawn().context("starting the daemon")?;
        let start = Instant::now();
        while !is_mounted(&dir) {
            if daemon.try_wait()?.is_some() {
                bail!("the daemon ended: {session:?}");
            }
            if start.elapsed() > MOUNT_TIMEOUT {
                daemon.kill()?;
                bail!("nothing is mounted after a minute: {session:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Mounted { dir, server: Server::Daemon(daemon) })
    }
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Processor seconds of the daemon's threads since their start; `None` without a daemon.
    pub(crate) fn cpu(&self) -> Option<f64> {
        // The first number of schedstat: exact nanoseconds, where /proc/PID/stat has ticks of 10
        // ms.
        let nanoseconds = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split_whitespace().next()?.parse::<f64>().ok()
        };
        let tasks = fs::read_dir(self.proc("task")?).ok()?;
        Some(tasks.flatten().filter_map(nanoseconds).sum::<f64>() / 1e9)
    }

    /// Bytes of the daemon's private dirty memory now; `None` without a daemon.
    pub(crate) fn private_dirty(&self) -> Option<u64> {
        proc_bytes(self.proc("smaps_rollup")?, "Private_Dirty:")
    }

    /// The largest resident set of the daemon so far, in bytes; `None` without a daemon.
    pub(crate) fn peak(&self) -> Option<u64> {
        let Server::Daemon(daemon) = &self.server else { return None };
        resident_peak(daemon.id())
    }

    fn proc(&self, file: &str) -> Option<PathBuf> {
        let Server::Daemon(daemon) = &self.server else { return None };
        Some(Path::new("/proc").join(daemon.id().to_string()).join(file))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run_quietly(Command::new("umount").arg(&self.dir)) {
            eprintln!("{error:#}");
        }
        if let Server::Daemon(daemon) = &mut self.server
            && let Err(error) = daemon.wait()
        {
            eprintln!("waiting for a daemon: {error}");
        }
    }
}
