//! Mounts an image from a server with `ferofs mount`, and reads it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::images::Image;
use super::processes::Processes;
use crate::common::rounds::run_quietly;

/// Bytes of a read, as programs that copy files read.
const BLOCK: usize = 128 << 10;

/// The program, and the processes that run it.
pub(crate) struct Ferofs {
    pub(crate) program: PathBuf,
    pub(crate) processes: Processes,
}

impl Ferofs {
    /// Copies `program` into `dir`: the processes of the benchmark are those that run this copy.
    pub(crate) fn copy(program: &Path, dir: &Path) -> Result<Self> {
        let own = dir.join("ferofs");
        // Processes of an interrupted run may still use the old file.
        let unfinished = dir.join("unfinished-ferofs");
        fs::copy(program, &unfinished)?;
        fs::rename(&unfinished, &own)?;
        Ok(Self { processes: Processes::of(&own)?, program: own })
    }

    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(name).stdin(Stdio::null()).stdout(Stdio::null());
        // Proxies of the user who runs the benchmark do not count.
        for variable in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        command
    }

    /// Mounts `location` on `dir` with these options. Returns when the command has returned.
    pub(crate) fn mount(&self, location: &str, dir: &Path, options: &[&str]) -> Result<Mounted<'_>> {
        let mut command = self.command("mount");
        run_quietly(command.args(options).arg(location).arg(dir))?;
        Ok(Mounted { dir: dir.to_owned(), ferofs: self, is_mounted: true })
    }
}

/// A mount. Dropping it unmounts.
pub(crate) struct Mounted<'a> {
    dir: PathBuf,
    ferofs: &'a Ferofs,
    is_mounted: bool,
}

impl Mounted<'_> {
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Unmounts, and waits until no process is left.
    pub(crate) fn end(mut self) -> Result<()> {
        self.unmount()?;
        self.ferofs.processes.wait_for_end()
    }

    fn unmount(&mut self) -> Result<()> {
        self.is_mounted = false;
        run_quietly(self.ferofs.command("umount").arg(&self.dir))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = self.unmount()
        {
            eprintln!("{error:#}");
        }
    }
}

/// A new, empty cache. It is removed when this is dropped.
pub(crate) struct CacheDir(PathBuf);

impl CacheDir {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let cache = dir.join("cache");
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        fs::create_dir_all(&cache)?;
        Ok(Self(cache))
    }

    /// The option for it.
    pub(crate) fn option(&self) -> String {
        format!("--cache-dir={}", self.0.display())
    }
}

impl Drop for CacheDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// Which files are read, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One thread reads all files in the order of the tree, as tar does.
    Tree,
    /// Four threads read the next file each.
    FourThreads,
}

impl Order {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tree => "as tar",
            Self::FourThreads => "4 threads",
        }
    }
}

/// Reads all files of a mounted image. Returns the number of bytes.
pub(crate) fn read_all(image: &Image, mounted: &Path, large: Option<&str>, order: Order) -> Result<u64> {
    let mut files: Vec<PathBuf> = image.files.iter().map(|(file, _)| mounted.join(file)).collect();
    files.extend(large.map(|name| mounted.join(name)));
    let next = AtomicUsize::new(0);
    let read = || -> Result<u64> {
        let mut bytes = 0;
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            bytes += read_file(file)?;
        }
        Ok(bytes)
    };
    let threads = match order {
        Order::Tree => 1,
        Order::FourThreads => 4,
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?).sum()
    })
}

/// Reads a file. Returns the number of bytes.
pub(crate) fn read_file(path: &Path) -> Result<u64> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut buf = vec![0; BLOCK];
    let mut bytes = 0;
    loop {
        match file.read(&mut buf).with_context(|| path.display().to_string())? {
            0 => return Ok(bytes),
            len => bytes += len as u64,
        }
    }
}

/// The result of a function, and the time that it took.
pub(crate) fn timed<T>(function: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let result = function()?;
    Ok((result, start.elapsed()))
}
