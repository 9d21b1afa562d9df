//! Measures one file system with one workload: reads by fio, a walk through the tree, or the daemon's memory.

use std::fmt::{self, Display, Formatter};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::MIB;
use super::images::Images;
use crate::common::filesystem::FileSystem;
use crate::common::fio::{Job, Pattern};
use crate::common::rounds::{PageCache, run_quietly, set_page_cache};

/// Seconds after which fio stops: a slow file system reads less in the same time.
const FIO_SECONDS: u32 = 20;
const FILE: &str = "linux.tar";
/// Interval between two readings of the daemon's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The figures of one measurement.
#[derive(Clone, Copy)]
pub(crate) struct Measurement {
    /// MiB per second, or walks per second.
    pub(crate) speed: f64,
    /// Processor seconds of the daemon, for the same work.
    pub(crate) cpu: Option<f64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Walk {
    Find,
    Tar,
    Rsync,
}

impl Display for Walk {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Find => "find -ls",
            Self::Tar => "tar c",
            Self::Rsync => "rsync -a to tmpfs",
        })
    }
}

pub(crate) fn content(
    images: &Images,
    file_system: &FileSystem,
    pattern: Pattern,
    cache: PageCache,
    size: u64,
) -> Result<Measurement> {
    set_page_cache(&file_system.image, cache)?;
    let mounted = file_system.mount(&images.daemons, &images.mount_point())?;
    let reading = job(pattern, size, 1).run(&mounted.path().join(FILE))?;
    // The part of the work that fio did in the time; processor time is scaled to the whole.
    let done = reading.bytes as f64 / if pattern == Pattern::Stride { size / 32 } else { size } as f64;
    let cpu = mounted.cpu().map(|seconds| seconds / done);
    Ok(Measurement { speed: reading.mib_per_second(), cpu })
}

pub(crate) fn walk(images: &Images, file_system: &FileSystem, walk: Walk) -> Result<Measurement> {
    set_page_cache(&file_system.image, PageCache::Warm)?;
    let mounted = file_system.mount(&images.daemons, &images.mount_point())?;
    let target = tempfile::TempDir::new_in("/dev/shm")?;
    let start = Instant::now();
    match walk {
        Walk::Find => run_quietly(Command::new("find").arg(mounted.path()).arg("-ls"))?,
        Walk::Tar => {
            let mut tar = Command::new("tar")
                .arg("-C")
                .arg(mounted.path())
                .args(["-cf", "-", "."])
                .stdout(Stdio::piped())
                .spawn()?;
            // tar does not read the files if its output is /dev/null.
            let mut text = tar.stdout.take().context("tar has no output")?;
            std::io::copy(&mut text, &mut std::io::sink())?;
            if !tar.wait()?.success() {
                bail!("tar failed");
            }
        }
        Walk::Rsync => {
            let from = mounted.path().join("");
            run_quietly(Command::new("rsync").args(["-a", "--whole-file"]).arg(from).arg(target.path()))?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measurement { speed: 1.0 / seconds, cpu: mounted.cpu() })
}

/// The largest private dirty memory of the daemon while `readers` threads read 1 GiB in sequence and then at random.
pub(crate) fn memory(images: &Images, file_system: &FileSystem, readers: usize) -> Result<u64> {
    set_page_cache(&file_system.image, PageCache::Warm)?;
    let mounted = file_system.mount(&images.daemons, &images.mount_point())?;
    let mut largest = 0;
    for pattern in [Pattern::Sequential, Pattern::Random] {
        let mut fio = job(pattern, 1024 * MIB, readers as u64).command(&mounted.path().join(FILE));
        let mut running = fio.stdout(Stdio::null()).spawn().context("fio")?;
        let status = loop {
            largest = largest.max(mounted.private_dirty().unwrap_or(0));
            if let Some(status) = running.try_wait()? {
                break status;
            }
            thread::sleep(SAMPLE_INTERVAL);
        };
        if !status.success() {
            bail!("fio: {status}");
        }
    }
    Ok(largest)
}

fn job(pattern: Pattern, size: u64, readers: u64) -> Job {
    Job { pattern, size, total: size, seconds: FIO_SECONDS, readers }
}
