//! Mounts an image with Linux or with `ferofs mount`. Dropping the value unmounts the image, also
//! after a panic.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, unmount};

use crate::need;
use crate::run::Run;

/// A mount that does not appear in this time, or a daemon that does not end in it, hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for a loop device.
const FREE: Duration = Duration::from_secs(2);

/// A mounted image.
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
    daemon: Option<Child>,
    mounted: bool,
}

impl Mount {
    /// Mounts with Linux, through a loop device.
    ///
    /// # Errors
    /// The message of `mount(8)`.
    pub fn kernel(image: &Path, dir: &Path) -> io::Result<Self> {
        Self::kernel_with(image, dir, "ro,loop")
    }

    /// Mounts with Linux and these `options` of `mount(8)`.
    ///
    /// # Errors
    /// The message of `mount(8)`.
    pub fn kernel_with(image: &Path, dir: &Path, options: &str) -> io::Result<Self> {
        Self::mount_command(["-t", "erofs", "-o", options], image, dir)
    }

    /// Mounts with Linux, without a loop device (since Linux 6.12).
    ///
    /// # Errors
    /// The error of the kernel; older kernels return `ENOTBLK`.
    pub fn kernel_file(image: &Path, dir: &Path) -> io::Result<Self> {
        rustix::mount::mount(image, dir, "erofs", MountFlags::RDONLY, None)?;
        Ok(Self { dir: dir.to_owned(), daemon: None, mounted: true })
    }

    /// Mounts with the FUSE daemon of `ferofs`, which stays in the foreground.
    ///
    /// # Errors
    /// The message of the daemon if it ends before the mount appears.
    pub fn fuse(ferofs: &Path, image: &Path, dir: &Path) -> io::Result<Self> {
        Self::fuse_with(ferofs, &[], image, dir)
    }

    /// Mounts with the FUSE daemon of `ferofs` and further `options`.
    ///
    /// # Errors
    /// As [`Self::fuse`].
    pub fn fuse_with(
        ferofs: &Path,
        options: &[&OsStr],
        image: &Path,
        dir: &Path,
    ) -> io::Result<Self> {
        let mut command = Command::new(ferofs);
        command.args([OsStr::new("mount"), OsStr::new("--fuse"), OsStr::new("-f")]);
        Self::serve(command.args(options).args([image, dir]), dir)
    }

    /// Mounts with a `command` that mounts on `dir` and stays in the foreground.
    ///
    /// # Errors
    /// As [`Self::fuse`].
    pub fn serve(command: &mut Command, dir: &Path) -> io::Result<Self> {
        let before = device(dir)?;
        let mut daemon = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let start = Instant::now();
        // A mount changes the directory's device. While a daemon that refuses its image ends, the
        // mount has no server and the call fails.
        while !device(dir).is_ok_and(|now| now != before) {
            if let Some(status) = daemon.try_wait()? {
                return Err(io::Error::other(format!("{status}: {}", stderr_of(&mut daemon))));
            }
            if start.elapsed() > TIMEOUT {
                daemon.kill()?;
                daemon.wait()?;
                return Err(io::Error::other(format!(
                    "{command:?}: nothing is mounted after a minute"
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { dir: dir.to_owned(), daemon: Some(daemon), mounted: true })
    }

    /// Mounts an empty file system of memory, `tmpfs` or `ramfs`, with these `options`.
    ///
    /// # Panics
    /// When mount(8) fails.
    #[track_caller]
    pub fn memory(kind: &str, options: &str, dir: &Path) -> Self {
        Run::line("mount -o").args([options, "-t", kind, kind]).arg(dir).success();
        Self::adopt(dir)
    }

    /// A value for an existing mount on `dir`.
    pub fn adopt(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), daemon: None, mounted: true }
    }

    fn mount_command<const N: usize>(
        options: [&str; N],
        image: &Path,
        dir: &Path,
    ) -> io::Result<Self> {
        let output =
            Command::new("mount").args(options).args([image, dir]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        Ok(Self { dir: dir.to_owned(), daemon: None, mounted: true })
    }

    /// The directory on which the image is mounted.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The process id of the FUSE daemon, if this value started one.
    pub fn daemon_id(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Waits until the FUSE daemon ends, and returns its exit code and its standard error.
    ///
    /// # Errors
    /// When it does not end.
    pub fn wait(mut self) -> io::Result<(Option<i32>, String)> {
        let daemon = self.daemon.as_mut().ok_or_else(|| io::Error::other("not a FUSE mount"))?;
        let start = Instant::now();
        loop {
            if let Some(status) = daemon.try_wait()? {
                let stderr = stderr_of(daemon);
                self.mounted = is_mounted(&self.dir);
                return Ok((status.code(), stderr));
            }
            if start.elapsed() > TIMEOUT {
                return Err(io::Error::other("the FUSE daemon does not end"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts and waits for the daemon, if there is one. Returns its exit code and its standard
    /// error.
    ///
    /// # Errors
    /// When unmounting fails or the daemon does not end.
    pub fn unmount(mut self) -> io::Result<(Option<i32>, String)> {
        self.unmount_once()?;
        if self.daemon.is_some() { self.wait() } else { Ok((Some(0), String::new())) }
    }

    fn unmount_once(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        if need::is_root() {
            // A daemon that does not answer must not be asked.
            let backing_file = if self.daemon.is_none() { loop_file(&self.dir) } else { None };
            // Another process may have a file open for a moment.
            for _ in 0..100 {
                match unmount(&self.dir, UnmountFlags::empty()) {
                    Err(rustix::io::Errno::BUSY) => thread::sleep(Duration::from_millis(20)),
                    done => {
                        wait_until_free(backing_file);
                        return Ok(done?);
                    }
                }
            }
            return Ok(unmount(&self.dir, UnmountFlags::DETACH)?);
        }
        let status = Command::new("fusermount3").arg("-u").arg(&self.dir).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("fusermount3: {status}")))
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Drop also runs during a panic: print errors and continue.
        if let Err(error) = self.unmount_once() {
            eprintln!("unmounting {}: {error}", self.dir.display());
        }
        if let Some(daemon) = &mut self.daemon {
            let start = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) {
                if start.elapsed() > TIMEOUT {
                    let _ = daemon.kill();
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The file of sysfs that names what is in the loop device below a mount, and what it says.
fn loop_file(dir: &Path) -> Option<(String, String)> {
    let device = dir.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let image = std::fs::read_to_string(&file).ok()?;
    Some((file, image))
}

/// Waits until a loop device is free of an image, unless another mount keeps it. Otherwise mount(8)
/// may take it again for the same file, with the content that the file had.
fn wait_until_free(backing_file: Option<(String, String)>) {
    let Some((file, image)) = backing_file else { return };
    let start = Instant::now();
    while std::fs::read_to_string(&file).is_ok_and(|now| now == image) && start.elapsed() < FREE {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a file system is mounted on `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    // `device(dir)` fails for a mount whose FUSE daemon has died; it still counts as mounted.
    let parent = dir.parent().unwrap_or(dir);
    device(dir).ok() != device(parent).ok()
}

fn device(dir: &Path) -> io::Result<u64> {
    Ok(std::fs::symlink_metadata(dir)?.dev())
}

fn stderr_of(daemon: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = daemon.stderr.take() {
        // An error only makes the message incomplete.
        let _ = stderr.read_to_string(&mut text);
    }
    text.trim().to_owned()
}
