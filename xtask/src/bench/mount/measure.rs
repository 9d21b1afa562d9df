//! One contestant's turn at one discipline.

use std::fmt::{self, Display, Formatter};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::contestant::Contestant;
use super::stage::{Stage, set_warm};
use super::{MIB, quietly};

/// A turn ends after so many seconds: what is slow is slow.
const LIMIT: &str = "--runtime=20";
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
pub(super) enum Pattern {
    Sequential,
    Random,
    /// The first 4 KiB of each 128 KiB.
    Stride,
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequential => "sequential 4 KiB",
            Self::Random => "random 4 KiB",
            Self::Stride => "4 KiB of each 128 KiB",
        })
    }
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
    let mounted = contestant.mount(stage)?;
    let mut fio = fio(mounted.path());
    fio.arg(format!("--size={size}")).arg(match pattern {
        Pattern::Sequential => "--rw=read",
        Pattern::Random => "--rw=randread",
        Pattern::Stride => "--rw=read:124k",
    });
    let (kib, milliseconds) = run_fio(&mut fio)?;
    let done = (kib * 1024.0) / size as f64;
    let whole = if matches!(pattern, Pattern::Stride) { done * 32.0 } else { done };
    let cpu = mounted.cpu().map(|seconds| seconds / whole);
    Ok(Cell { speed: kib / 1024.0 / (milliseconds / 1000.0), cpu })
}

pub(super) fn walk(stage: &Stage, contestant: &Contestant, walk: Walk) -> Result<Cell> {
    set_warm(&contestant.image, true)?;
    let mounted = contestant.mount(stage)?;
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
    let mounted = contestant.mount(stage)?;
    let mut most = 0;
    for pattern in ["--rw=read", "--rw=randread"] {
        let part = 1024 * MIB / readers as u64;
        let mut fio = fio(mounted.path());
        fio.args([pattern, "--group_reporting", "--thread"])
            .arg(format!("--numjobs={readers}"))
            .arg(format!("--size={part}"))
            .arg(format!("--offset_increment={part}"));
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

fn fio(dir: &std::path::Path) -> Command {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=read",
        "--readonly",
        "--bs=4k",
        "--ioengine=psync",
        "--randseed=1",
        "--allrandrepeat=1",
    ]);
    fio.args([LIMIT, "--output-format=terse"]).arg(format!("--filename={}", dir.join("linux.tar").display()));
    fio
}

/// KiB read, and milliseconds that it took.
fn run_fio(fio: &mut Command) -> Result<(f64, f64)> {
    let output = fio.output().context("fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("fio: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    // Fields 6 and 9 of fio's terse format, version 3.
    let line = text.lines().find(|line| line.starts_with("3;")).context("fio says nothing")?;
    let fields: Vec<&str> = line.split(';').collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let kib = number(5).context("fio: no size")?;
    let milliseconds = number(8).context("fio: no time")?;
    if kib == 0.0 || milliseconds == 0.0 {
        bail!("fio read nothing");
    }
    Ok((kib, milliseconds))
}

/// The least, the middle and the most.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    Some((*values.first()?, values[values.len() / 2], *values.last()?))
}
