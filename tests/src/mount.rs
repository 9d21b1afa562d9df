//! Shows an image as a directory for as long as a value lives, by Linux or by `ferofs mount`, and takes it away when the
//! value goes, also in a panic.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, unmount};

use crate::need;

/// Waiting longer than this for a mount to come or a daemon to go means that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted image.
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
    daemon: Option<Child>,
    mounted: bool,
}

impl Mount {
    /// By Linux, through a loop device.
    ///
    /// # Errors
    /// What `mount(8)` says.
    pub fn kernel(image: &Path, dir: &Path) -> io::Result<Self> {
        Self::kernel_with(image, dir, "ro,loop")
    }

    /// By Linux, with these `options` of `mount(8)`.
    ///
    /// # Errors
    /// What `mount(8)` says.
    pub fn kernel_with(image: &Path, dir: &Path, options: &str) -> io::Result<Self> {
        Self::mount_command(["-t", "erofs", "-o", options], image, dir)
    }

    /// By Linux, without a loop device (Linux 6.12).
    ///
    /// # Errors
    /// What the kernel says; older ones `ENOTBLK`.
    pub fn kernel_file(image: &Path, dir: &Path) -> io::Result<Self> {
        rustix::mount::mount(image, dir, "erofs", MountFlags::RDONLY, None)?;
        Ok(Self { dir: dir.to_owned(), daemon: None, mounted: true })
    }

    /// By the FUSE daemon of `ferofs`, kept in the foreground.
    ///
    /// # Errors
    /// What the daemon says when it ends before the mount is there.
    pub fn fuse(ferofs: &Path, image: &Path, dir: &Path) -> io::Result<Self> {
        Self::fuse_with(ferofs, &[], image, dir)
    }

    /// By the FUSE daemon of `ferofs`, with further `options`.
    ///
    /// # Errors
    /// As [`Self::fuse`].
    pub fn fuse_with(ferofs: &Path, options: &[&OsStr], image: &Path, dir: &Path) -> io::Result<Self> {
        let before = device(dir)?;
        let mut daemon = Command::new(ferofs)
            .args([OsStr::new("mount"), OsStr::new("--fuse"), OsStr::new("-f")])
            .args(options)
            .args([image, dir])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let start = Instant::now();
        // The directory's device changes when something is mounted on it. A daemon that refuses its image leaves a mount
        // without a server for a moment: that gives errors.
        while !device(dir).is_ok_and(|now| now != before) {
            if let Some(status) = daemon.try_wait()? {
                return Err(io::Error::other(format!("{status}: {}", stderr_of(&mut daemon))));
            }
            if start.elapsed() > PATIENCE {
                daemon.kill()?;
                daemon.wait()?;
                return Err(io::Error::other("ferofs mount: nothing is mounted after a minute"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { dir: dir.to_owned(), daemon: Some(daemon), mounted: true })
    }

    /// Takes charge of what somebody else mounted on `dir`.
    pub fn adopt(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), daemon: None, mounted: true }
    }

    fn mount_command<const N: usize>(options: [&str; N], image: &Path, dir: &Path) -> io::Result<Self> {
        let output = Command::new("mount").args(options).args([image, dir]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(Self { dir: dir.to_owned(), daemon: None, mounted: true })
    }

    /// Where the image is shown.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The id of the FUSE daemon, if this is one of ours.
    pub fn daemon_id(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Waits for the FUSE daemon, which somebody asked to end, and returns its exit code and what it said.
    ///
    /// # Errors
    /// When it does not end.
    pub fn wait(mut self) -> io::Result<(Option<i32>, String)> {
        let daemon = self.daemon.as_mut().ok_or_else(|| io::Error::other("not a FUSE mount"))?;
        let start = Instant::now();
        loop {
            if let Some(status) = daemon.try_wait()? {
                let said = stderr_of(daemon);
                self.mounted = is_mounted(&self.dir);
                return Ok((status.code(), said));
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the FUSE daemon does not end"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts and waits for the daemon, if there is one: its exit code and what it said.
    ///
    /// # Errors
    /// When it cannot be unmounted or the daemon stays.
    pub fn unmount(mut self) -> io::Result<(Option<i32>, String)> {
        self.take_away()?;
        if self.daemon.is_some() { self.wait() } else { Ok((Some(0), String::new())) }
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        if need::is_root() {
            // Somebody (a file indexer, a test about to end) may hold it for a moment.
            for _ in 0..100 {
                match unmount(&self.dir, UnmountFlags::empty()) {
                    Err(rustix::io::Errno::BUSY) => thread::sleep(Duration::from_millis(20)),
                    done => return Ok(done?),
                }
            }
            return Ok(unmount(&self.dir, UnmountFlags::DETACH)?);
        }
        let status = Command::new("fusermount3").arg("-u").arg(&self.dir).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("fusermount3: {status}"))) }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Drop runs in panics too: say what goes wrong, and go on.
        if let Err(error) = self.take_away() {
            eprintln!("unmounting {}: {error}", self.dir.display());
        }
        if let Some(daemon) = &mut self.daemon {
            let start = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) {
                if start.elapsed() > PATIENCE {
                    let _ = daemon.kill();
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Whether something is mounted on `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    // A dead FUSE daemon's mount cannot be looked at, but is there.
    let parent = dir.parent().unwrap_or(dir);
    device(dir).ok() != device(parent).ok()
}

fn device(dir: &Path) -> io::Result<u64> {
    Ok(std::fs::symlink_metadata(dir)?.dev())
}

fn stderr_of(daemon: &mut Child) -> String {
    let mut said = String::new();
    if let Some(mut stderr) = daemon.stderr.take() {
        // What is not UTF-8 or cannot be read is only missing from a message.
        let _ = stderr.read_to_string(&mut said);
    }
    said.trim().to_owned()
}
