//! Mounts an image from a server with `ferofs mount`, reads it, and counts what the processes need.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use ferofs_tests::run::proc_bytes;

use super::images::Image;
use ferofs_devtools::shell::run_quietly;

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
    pub(crate) fn mount(
        &self,
        location: &str,
        dir: &Path,
        options: &[&str],
    ) -> Result<Mounted<'_>> {
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
pub(crate) fn read_all(
    image: &Image,
    mounted: &Path,
    large: Option<&str>,
    order: Order,
) -> Result<u64> {
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
        readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
            .sum()
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

/// Processes that are still there this long after they should have ended hang.
const END: Duration = Duration::from_secs(20);

/// All processes that run one program: the benchmark's own copy, so that other mounts of the
/// machine do not count.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    program: PathBuf,
}

impl Processes {
    pub(crate) fn of(program: &Path) -> Result<Self> {
        Ok(Self { program: fs::canonicalize(program)? })
    }

    /// The IDs of those that run now.
    fn ids(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // A process that has just ended has no program any more.
        ids.filter(|id| {
            fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == self.program)
        })
        .collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.ids().len()
    }

    /// Processor seconds of all that run, and of all children of this process that have ended.
    pub(crate) fn cpu(&self) -> Result<f64> {
        // Fields of proc(5), counted from the one after the name: utime and stime; cutime and
        // cstime.
        let seconds = |id: &str, first| {
            ticks(id, first)
                .map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
        };
        // The time of its threads is exact, but lacks threads that have ended; the time of the
        // process is cut to steps of 10 ms.
        let running =
            |id: &String| seconds(id, 11).unwrap_or(0.0).max(threads_cpu(id).unwrap_or(0.0));
        let running = self.ids().iter().map(running).sum::<f64>();
        Ok(running + seconds("self", 13).context("/proc/self/stat")?)
    }

    /// Bytes of memory of all that run. A page that several share is divided between them (PSS).
    pub(crate) fn memory(&self) -> Result<u64> {
        let mut sum = 0;
        for id in self.ids() {
            let file = format!("/proc/{id}/smaps_rollup");
            match proc_bytes(&file, "Pss:") {
                Some(bytes) => sum += bytes,
                // It has ended.
                None if !Path::new(&file).exists() => {}
                None => bail!("{file} has no memory"),
            }
        }
        Ok(sum)
    }

    /// Waits until none runs.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        let start = Instant::now();
        while self.count() > 0 {
            if start.elapsed() > END {
                bail!(
                    "processes of {} do not end: {}",
                    self.program.display(),
                    self.ids().join(" ")
                );
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Processor seconds of the threads of a process.
fn threads_cpu(id: &str) -> Option<f64> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten() {
        // It may have ended. The first number is the time on a processor.
        let Ok(stat) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        nanoseconds += stat.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(nanoseconds as f64 / 1e9)
}

/// The sum of two fields of `/proc/ID/stat` that follow each other.
fn ticks(id: &str, first: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    parse_ticks(&stat, first)
}

fn parse_ticks(stat: &str, first: usize) -> Option<u64> {
    // The name is in parentheses and may contain spaces.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(first);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process() {
        let stat =
            "812 (a) b (c) S 1 812 812 0 -1 4194304 1 2 3 4 17 5 300 40 20 0 9 0 100 1000 10\n";
        assert_eq!(parse_ticks(stat, 11), Some(22));
        assert_eq!(parse_ticks(stat, 13), Some(340));
        assert_eq!(parse_ticks("812 (a", 11), None);
        assert!(ticks("self", 11).is_some());
    }

    #[test]
    fn this_program_is_found() {
        let own = Processes::of(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.count() >= 1);
        assert!(own.memory().unwrap() > 100 << 10);
        assert!(own.cpu().unwrap() >= 0.0);
    }
}
