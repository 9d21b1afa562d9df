//! How much is read of the device for what is asked for (the paper's table 1).
//!
//! Every contestant, daemons too, reads the image through a loop device, whose count of sectors is what is told: the same
//! ruler for all, with read-ahead and with whatever else the kernel reads along.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use super::super::contestant::{Contestant, Lacks, Way};
use super::super::fio::{Job, Pattern, STRIDE};
use super::super::measure::{quietly, set_warm};
use super::Bench;
use super::record::{Values, values};
use super::stage::{Content, Entrant, FILE, Stage, entrants, wanted};

const MIB: f64 = 1_048_576.0;

pub(super) fn amplification(bench: &mut Bench) -> Result<()> {
    let mut cases = Vec::new();
    for subject in bench.stage.subjects() {
        cases.extend(Pattern::ALL.map(|pattern| Content { subject: subject.clone(), pattern }));
    }
    // Counts hardly differ from one round to the next.
    bench.compete("io", 1, &cases, &entrants(), |stage, case, entrant| {
        issued(stage, &case.subject, case.pattern, entrant)
    })
}

/// Reads a 32nd of the file in 4 KiB pieces: 16 MiB of 512, as in the paper.
pub(super) fn issued(stage: &Stage, subject: &str, pattern: Pattern, entrant: &Entrant) -> Result<Values> {
    wanted(stage.tools.fio.as_deref(), "fio")?;
    let contestant = stage.contestant(subject, entrant)?;
    set_warm(&contestant.image, false)?;
    let device = Loop::attach(&contestant.image)?;
    let contestant = Contestant::new(contestant.name, &device.0, contestant.way);
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point()?)?;
    let size = stage.size(subject)?;
    let wanted = size / STRIDE * 4096;
    // As long as it takes: a count must not depend on the time.
    let job = Job { pattern, size, wanted, seconds: 600, readers: 1 };
    let before = device.sectors()?;
    let reading = job.run(&mounted.path().join(FILE))?;
    let issued = ((device.sectors()? - before) * 512) as f64;
    let asked = reading.bytes as f64;
    let mut all =
        values([("asked_mib", asked / MIB), ("issued_mib", issued / MIB), ("times", issued / asked)]);
    if let Way::Ferofs(_) = contestant.way {
        let stats = stats(stage, mounted.path())?;
        let causes = ["metadata", "run", "partial", "stored", "ahead", "hint"];
        let own: f64 = causes.iter().filter_map(|cause| stats[format!("{cause}_bytes")].as_f64()).sum();
        all.extend(values([("own_times", own / asked)]));
    }
    drop(mounted);
    Ok(all)
}

/// The counters of a mount of ferofs.
pub(super) fn stats(stage: &Stage, dir: &Path) -> Result<serde_json::Value> {
    let output = Command::new(&stage.daemons.ferofs).args(["stats", "--json"]).arg(dir).output()?;
    serde_json::from_slice(&output.stdout).context("ferofs stats")
}

/// A loop device, detached when the value goes.
struct Loop(PathBuf);

impl Loop {
    fn attach(image: &Path) -> Result<Self> {
        if !need::is_root() {
            return Err(Lacks("needs root, for a loop device that counts".into()).into());
        }
        let output = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(image).output()?;
        if !output.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).trim().into()))
    }

    /// Of 512 bytes, read since it was attached.
    fn sectors(&self) -> Result<u64> {
        let name = self.0.file_name().context("a device has a name")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let sectors = text.split_whitespace().nth(2).and_then(|word| word.parse().ok());
        sectors.with_context(|| format!("{}: no sectors", path.display()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = quietly(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}
