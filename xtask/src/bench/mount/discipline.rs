//! One contestant's turn at one discipline.

use std::fmt::{self, Display, Formatter};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::contestant::Contestant;
use super::super::fio::{Job, Pattern};
use super::super::measure::{quietly, set_warm};
use super::MIB;
use super::stage::Stage;

/// A turn ends after so many seconds: what is slow is slow.
const LIMIT: u32 = 20;
const FILE: &str = "linux.tar";
/// How often the daemon's memory is looked at.
const PEEK: Duration = Duration::from_millis(20);

/// What a turn gave.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) speed: f64,
    /// Processor seconds of the daemon, for the same work.
    pub(super) cpu: Option<f64>,
}

#[derive(Clone, Copy)]
pub(super) enum Walk {
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

pub(super) fn content(
    stage: &Stage,
    contestant: &Contestant,
    pattern: Pattern,
    warm: bool,
    size: u64,
) -> Result<Cell> {
    set_warm(&contestant.image, warm)?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point())?;
    let reading = job(pattern, size, 1).run(&mounted.path().join(FILE))?;
    // As much of the work as there was time for.
    let whole = reading.bytes as f64 / if pattern == Pattern::Stride { size / 32 } else { size } as f64;
    let cpu = mounted.cpu().map(|seconds| seconds / whole);
    Ok(Cell { speed: reading.mib_per_second(), cpu })
}

pub(super) fn walk(stage: &Stage, contestant: &Contestant, walk: Walk) -> Result<Cell> {
    set_warm(&contestant.image, true)?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point())?;
    let target = tempfile::TempDir::new_in("/dev/shm")?;
    let start = Instant::now();
    match walk {
        Walk::Find => quietly(Command::new("find").arg(mounted.path()).arg("-ls"))?,
        Walk::Tar => {
            let mut tar = Command::new("tar")
                .arg("-C")
                .arg(mounted.path())
                .args(["-cf", "-", "."])
                .stdout(Stdio::piped())
                .spawn()?;
            // To /dev/null itself, tar would not read.
            let mut text = tar.stdout.take().context("tar has no output")?;
            std::io::copy(&mut text, &mut std::io::sink())?;
            if !tar.wait()?.success() {
                bail!("tar failed");
            }
        }
        Walk::Rsync => {
            let from = mounted.path().join("");
            quietly(Command::new("rsync").args(["-a", "--whole-file"]).arg(from).arg(target.path()))?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Cell { speed: 1.0 / seconds, cpu: mounted.cpu() })
}

/// The most private dirty memory of the daemon while `readers` read 1 GiB in sequence and then at random.
pub(super) fn memory(stage: &Stage, contestant: &Contestant, readers: usize) -> Result<u64> {
    set_warm(&contestant.image, true)?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point())?;
    let mut most = 0;
    for pattern in [Pattern::Sequential, Pattern::Random] {
        let mut fio = job(pattern, 1024 * MIB, readers as u64).command(&mounted.path().join(FILE));
        let mut running = fio.stdout(Stdio::null()).spawn().context("fio")?;
        let status = loop {
            most = most.max(mounted.private_dirty().unwrap_or(0));
            if let Some(status) = running.try_wait()? {
                break status;
            }
            thread::sleep(PEEK);
        };
        if !status.success() {
            bail!("fio: {status}");
        }
    }
    Ok(most)
}

fn job(pattern: Pattern, size: u64, readers: u64) -> Job {
    Job { pattern, size, wanted: size, seconds: LIMIT, readers }
}
