//! Memory use after reading (the paper's figure 10), and read latency when memory is short.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::evaluation::Evaluation;
use super::super::record::{Values, values};
use super::super::setup::machine::free_memory;
use super::super::setup::scale;
use super::super::setup::systems::{System, erofs, main_systems, systems};
use super::super::setup::workspace::{FILE, Workspace};
use super::reads::ReadCase;
use crate::common::filesystem::Driver;
use crate::common::fio::{self, Job, Latency, Pattern};
use crate::common::rounds::{PageCache, set_page_cache};
use ferofs_devtools::cgroup::Cgroup;

const MIB: f64 = 1_048_576.0;
/// Interval between two readings of the daemon's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that readers, daemon and page cache may use together when memory is short.
const SHORT_MEMORY: u64 = 32 << 20;

/// Figure 10.
pub(crate) fn memory(evaluation: &mut Evaluation) -> Result<()> {
    let cases =
        [Pattern::Sequential, Pattern::Random].map(|pattern| ReadCase { dataset: "text".into(), pattern });
    evaluation.measure_all("memory", 1, &cases, &systems(), memory_use)
}

fn memory_use(workspace: &Workspace, case: &ReadCase, system: &System) -> Result<Values> {
    let file_system = workspace.file_system(&case.dataset, system)?;
    set_page_cache(&file_system.image, PageCache::Cold)?;
    let group = Cgroup::new(None)?;
    let free_before = free_memory()?;
    let mounted =
        file_system.mount_in(&workspace.programs.daemons(), &workspace.mount_point()?, Some(&group))?;
    let file = mounted.path().join(FILE);
    let size = workspace.size(&case.dataset)?;
    // A quarter of the file: all systems but the slowest read it before fio stops.
    let job = Job {
        pattern: case.pattern,
        size: size / 4,
        total: size / 4,
        seconds: 4 * scale::FIO_SECONDS,
        readers: 1,
    };
    let mut fio = group.wrap(&job.command(&file));
    let mut running = fio.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("fio")?;
    let mut private = None;
    let status = loop {
        private = private.max(mounted.private_dirty());
        if let Some(status) = running.try_wait()? {
            break status;
        }
        thread::sleep(SAMPLE_INTERVAL);
    };
    if !status.success() {
        bail!("fio: {status}");
    }
    let mut all = values([
        ("charged_mib", group.memory_usage()? as f64 / MIB),
        ("gone_mib", free_before.saturating_sub(free_memory()?) as f64 / MIB),
    ]);
    if let Some(private) = private {
        all.extend(values([("private_mib", private as f64 / MIB)]));
    }
    drop(mounted);
    Ok(all)
}

/// Read latency with enough memory and with little.
pub(crate) fn latency(evaluation: &mut Evaluation) -> Result<()> {
    let mut all = main_systems();
    all.insert(1, System::new("ferofs --low-memory", &erofs(), Driver::Ferofs(&["--low-memory"])));
    all.insert(
        2,
        System::new("ferofs --memory-limit 2M", &erofs(), Driver::Ferofs(&["--memory-limit", "2M"])),
    );
    evaluation.measure_all("latency", 1, &["enough", "32 MiB"], &all, |workspace, case, system| {
        let file_system = workspace.file_system("text", system)?;
        set_page_cache(&file_system.image, PageCache::Cold)?;
        let group = Cgroup::new((*case != "enough").then_some(SHORT_MEMORY))?;
        let mounted =
            file_system.mount_in(&workspace.programs.daemons(), &workspace.mount_point()?, Some(&group))?;
        let size = workspace.size("text")?;
        let seconds = scale::FIO_SECONDS;
        let job = Job { pattern: Pattern::Random, size, total: size, seconds, readers: 2 };
        let reading = fio::run(&mut group.wrap(&job.command(&mounted.path().join(FILE))))?;
        drop(mounted);
        let Latency { median, percentile_99, max } = reading.latency;
        Ok(values([
            ("p50_us", median),
            ("p99_us", percentile_99),
            ("max_us", max),
            ("mib_s", reading.mib_per_second()),
        ]))
    })
}
