//! Reads of large files by fio through mounts: the paper's micro-benchmarks (figures 7 and 8), throughput against space savings (figure
//! 11), and decoding strategies (section 5.6).

use std::fmt::{self, Display, Formatter};
use std::fs;

use anyhow::{Context, Result};

use super::super::evaluation::Evaluation;
use super::super::policy::POLICIES;
use super::super::record::{Values, values};
use super::super::setup::scale;
use super::super::setup::systems::{System, erofs, main_systems, systems};
use super::super::setup::workspace::{FILE, Workspace};
use crate::common::filesystem::Driver;
use crate::common::fio::{Job, Pattern};
use crate::common::rounds::{PageCache, set_page_cache};

/// Bytes that fio must have read before the machine's processor time is reported: in a shorter run, fio's own start would be most of
/// it.
const MIN_BYTES_FOR_CPU: u64 = 48 << 20;
const GIB: f64 = 1_073_741_824.0;

/// What fio reads in a case: a large file, and the pattern.
#[derive(Clone, Debug)]
pub(crate) struct ReadCase {
    pub(crate) dataset: String,
    pub(crate) pattern: Pattern,
}

impl Display for ReadCase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.dataset, self.pattern)
    }
}

/// Figures 7 and 8.
pub(crate) fn micro(evaluation: &mut Evaluation) -> Result<()> {
    let mut cases = Vec::new();
    for dataset in scale::DATASETS {
        cases.extend(Pattern::ALL.map(|pattern| ReadCase { dataset: dataset.to_owned(), pattern }));
    }
    evaluation.measure_all("micro", scale::ROUNDS, &cases, &systems(), |workspace, case, system| {
        read(
            workspace,
            &case.dataset,
            system,
            Job { pattern: case.pattern, ..whole_file(workspace, &case.dataset)? },
            PageCache::Cold,
        )
    })
}

/// Figure 11.
pub(crate) fn savings(evaluation: &mut Evaluation) -> Result<()> {
    let mut cases = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        cases.extend(scale::SAVINGS.iter().map(|percent| PlotCase { pattern, x: *percent }));
    }
    evaluation.measure_all("savings", 1, &cases, &main_systems(), |workspace, case, system| {
        let dataset = format!("saves{}", case.x);
        read(
            workspace,
            &dataset,
            system,
            Job { pattern: case.pattern, ..whole_file(workspace, &dataset)? },
            PageCache::Cold,
        )
    })
}

/// Section 5.6.
pub(crate) fn strategies(evaluation: &mut Evaluation) -> Result<()> {
    let systems = POLICIES.map(|(name, _)| System::new(name, &erofs(), Driver::Policy(name)));
    let cases = Pattern::ALL.map(|pattern| ReadCase { dataset: "text".into(), pattern });
    evaluation.measure_all("strategies", 1, &cases, &systems, |workspace, case, system| {
        read(
            workspace,
            &case.dataset,
            system,
            Job { pattern: case.pattern, ..whole_file(workspace, &case.dataset)? },
            PageCache::Warm,
        )
    })
}

/// A pattern, and the percentage that compression saves.
struct PlotCase {
    pattern: Pattern,
    x: u64,
}

impl Display for PlotCase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} @ {}", self.pattern, self.x)
    }
}

/// One thread reads the whole file, until fio's time limit.
fn whole_file(workspace: &Workspace, dataset: &str) -> Result<Job> {
    let size = workspace.size(dataset)?;
    Ok(Job { pattern: Pattern::Sequential, size, total: size, seconds: scale::FIO_SECONDS, readers: 1 })
}

/// Mounts, reads, and returns the speed and the processor time: of the whole machine, and of the daemon.
fn read(workspace: &Workspace, dataset: &str, system: &System, job: Job, cache: PageCache) -> Result<Values> {
    let file_system = workspace.file_system(dataset, system)?;
    set_page_cache(&file_system.image, cache)?;
    let mounted = file_system.mount(&workspace.programs.daemons(), &workspace.mount_point()?)?;
    let before = cpu_seconds()?;
    let reading = job.run(&mounted.path().join(FILE))?;
    let gib = reading.bytes as f64 / GIB;
    let mut all = values([("mib_s", reading.mib_per_second())]);
    if reading.bytes >= MIN_BYTES_FOR_CPU {
        all.extend(values([("cpu_s_gib", (cpu_seconds()? - before) / gib)]));
    }
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_s_gib", cpu / gib)]));
    }
    Ok(all)
}

/// Processor seconds of all processes since the machine's start, in hundredths: the kernel's own threads are included.
fn cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let work = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum::<f64>();
    Ok(work / 100.0)
}
