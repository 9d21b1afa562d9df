//! Read amplification: how much a system reads from the device for the bytes that fio requests (the
//! paper's table 1).
//!
//! Every system reads its image through a loop device, FUSE daemons too. The kernel counts the
//! sectors that the device reads, with read-ahead, so that the figures of all systems are
//! comparable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_devtools::shell;

use super::ReadCase;
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::fio::{Job, Pattern, STRIDE};
use crate::common::rounds::{PageCache, set_page_cache};
use crate::paper::evaluation::Evaluation;
use crate::paper::record::{Values, values};
use crate::paper::setup::{self, FILE, System, Workspace, systems};
use ferofs_devtools::shell::run_quietly;

const MIB: f64 = 1_048_576.0;

pub(crate) fn amplification(evaluation: &mut Evaluation) -> Result<()> {
    let mut cases = Vec::new();
    for dataset in setup::DATASETS {
        cases.extend(Pattern::ALL.map(|pattern| ReadCase { dataset: dataset.to_owned(), pattern }));
    }
    // The count hardly differs between rounds: one is enough.
    evaluation.measure_all("io", 1, &cases, &systems(), |workspace, case, system| {
        issued(workspace, &case.dataset, case.pattern, system)
    })
}

/// Reads a 32nd of the file in pieces of 4 KiB: 16 MiB of 512, as in the paper.
pub(crate) fn issued(
    workspace: &Workspace,
    dataset: &str,
    pattern: Pattern,
    system: &System,
) -> Result<Values> {
    let file_system = workspace.file_system(dataset, system)?;
    set_page_cache(&file_system.image, PageCache::Cold)?;
    let device = LoopDevice::attach(&file_system.image)?;
    let file_system = FileSystem::new(file_system.name, &device.0, file_system.driver);
    let mounted = file_system.mount(&workspace.programs.daemons(), &workspace.mount_point()?)?;
    let size = workspace.size(dataset)?;
    let total = size / STRIDE * 4096;
    // A high limit, so that fio reads all of it: the count must not depend on the speed.
    let job = Job { pattern, size, total, seconds: 600, readers: 1 };
    let before = device.sectors()?;
    let reading = job.run(&mounted.path().join(FILE))?;
    let issued = ((device.sectors()? - before) * 512) as f64;
    let requested = reading.bytes as f64;
    let mut all = values([
        ("asked_mib", requested / MIB),
        ("issued_mib", issued / MIB),
        ("times", issued / requested),
    ]);
    if let Driver::Ferofs(_) = file_system.driver {
        let stats = stats(workspace, mounted.path())?;
        let causes = ["metadata", "run", "partial", "stored", "ahead", "hint"];
        let own: f64 =
            causes.iter().filter_map(|cause| stats[format!("{cause}_bytes")].as_f64()).sum();
        all.extend(values([("own_times", own / requested)]));
    }
    drop(mounted);
    Ok(all)
}

/// The counters of a mounted ferofs.
pub(crate) fn stats(workspace: &Workspace, dir: &Path) -> Result<serde_json::Value> {
    let output =
        Command::new(&workspace.programs.ferofs).args(["stats", "--json"]).arg(dir).output()?;
    serde_json::from_slice(&output.stdout).context("ferofs stats")
}

/// A loop device. Dropping the value detaches it.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(image: &Path) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        let device = shell::output(losetup.args(["--find", "--show", "--read-only"]).arg(image))?;
        Ok(Self(String::from_utf8_lossy(&device).trim().into()))
    }

    /// Sectors of 512 bytes read since the device was attached.
    fn sectors(&self) -> Result<u64> {
        let name = self.0.file_name().context("a device has a name")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let sectors = text.split_whitespace().nth(2).and_then(|word| word.parse().ok());
        sectors.with_context(|| format!("{}: no sectors", path.display()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run_quietly(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}
