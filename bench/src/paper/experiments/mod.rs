//! The experiments. Each module measures for one or more figures of the report, and adds its values
//! to the log.

pub(crate) mod amplification;
pub(crate) mod boot;

use std::fmt::{self, Display, Formatter};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use ferofs_devtools::cgroup::Cgroup;

use super::evaluation::Evaluation;
use super::policy::POLICIES;
use super::record::{Values, values};
use super::setup::{
    self, FILE, ImageFormat, System, Workspace, erofs, free_memory, main_systems, systems,
};
use crate::common::filesystem::Driver;
use crate::common::fio::{self, Job, Latency, Pattern};
use crate::common::rounds::{PageCache, set_page_cache};

/// Measures one experiment and adds the results to the log.
pub(crate) type Experiment = fn(&mut Evaluation) -> Result<()>;

/// All experiments, the most important first: a run that ends early leaves out the last ones.
pub(crate) const EXPERIMENTS: [(&str, Experiment); 8] = [
    ("sizes", sizes),
    ("micro", micro),
    ("io", amplification::amplification),
    ("boot", boot::boot),
    ("memory", memory),
    ("latency", latency),
    ("savings", savings),
    ("strategies", strategies),
];

const MIB: f64 = 1_048_576.0;

/// Figure 9.
pub(crate) fn sizes(evaluation: &mut Evaluation) -> Result<()> {
    // Systems that mount the same image have the same size: keep the first.
    let mut all: Vec<System> = Vec::new();
    for system in systems() {
        if !all.iter().any(|other| other.format == system.format) {
            all.push(System {
                name: system.name.replace(" (kernel)", "").replace(" (FUSE)", " 4K"),
                ..system
            });
        }
    }
    let utils = ImageFormat::MkfsErofs("-zlz4hc,9".into());
    all.insert(1, System::new("erofs-utils 4K", &utils, Driver::Kernel("erofs")));
    for size in ["16K", "64K", "128K"] {
        let format = ImageFormat::Ferofs(format!("--preset android -C {size}"));
        all.push(System::new(format!("ferofs {size}"), &format, Driver::Kernel("erofs")));
    }
    let datasets = setup::DATASETS;
    evaluation.measure_all("sizes", 1, &datasets, &all, |workspace, dataset, system| {
        size(workspace, dataset, system)
    })
}

fn size(workspace: &Workspace, dataset: &str, system: &System) -> Result<Values> {
    let image = workspace.image(dataset, &system.format)?;
    let bytes = match system.format {
        // The blocks in use; the image also contains free blocks.
        ImageFormat::Btrfs(_) | ImageFormat::Ext4 => {
            let mounted = workspace
                .file_system(dataset, system)?
                .mount(&workspace.programs.daemons(), &workspace.mount_point()?)?;
            let stat = rustix::fs::statvfs(mounted.path())?;
            (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        }
        _ => fs::metadata(image)?.len(),
    };
    let source = workspace.size(dataset)?;
    let percent = bytes as f64 / source as f64 * 100.0;
    Ok(values([("mib", bytes as f64 / MIB), ("percent", percent)]))
}

/// Bytes that fio must have read before the machine's processor time is reported: in a shorter run,
/// fio's own start would be most of it.
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
    for dataset in setup::DATASETS {
        cases.extend(Pattern::ALL.map(|pattern| ReadCase { dataset: dataset.to_owned(), pattern }));
    }
    evaluation.measure_all("micro", setup::ROUNDS, &cases, &systems(), |workspace, case, system| {
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
        cases.extend(setup::SAVINGS.iter().map(|percent| PlotCase { pattern, x: *percent }));
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
    Ok(Job {
        pattern: Pattern::Sequential,
        size,
        total: size,
        seconds: setup::FIO_SECONDS,
        readers: 1,
    })
}

/// Mounts, reads, and returns the speed and the processor time: of the whole machine, and of the
/// daemon.
fn read(
    workspace: &Workspace,
    dataset: &str,
    system: &System,
    job: Job,
    cache: PageCache,
) -> Result<Values> {
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

/// Processor seconds of all processes since the machine's start, in hundredths: the kernel's own
/// threads are included.
fn cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let work = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum::<f64>();
    Ok(work / 100.0)
}
/// Interval between two readings of the daemon's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that readers, daemon and page cache may use together when memory is short.
const SHORT_MEMORY: u64 = 32 << 20;

/// Figure 10.
pub(crate) fn memory(evaluation: &mut Evaluation) -> Result<()> {
    let cases = [Pattern::Sequential, Pattern::Random]
        .map(|pattern| ReadCase { dataset: "text".into(), pattern });
    evaluation.measure_all("memory", 1, &cases, &systems(), memory_use)
}

fn memory_use(workspace: &Workspace, case: &ReadCase, system: &System) -> Result<Values> {
    let file_system = workspace.file_system(&case.dataset, system)?;
    set_page_cache(&file_system.image, PageCache::Cold)?;
    let group = Cgroup::new(None)?;
    let free_before = free_memory()?;
    let mounted = file_system.mount_in(
        &workspace.programs.daemons(),
        &workspace.mount_point()?,
        Some(&group),
    )?;
    let file = mounted.path().join(FILE);
    let size = workspace.size(&case.dataset)?;
    // A quarter of the file: all systems but the slowest read it before fio stops.
    let job = Job {
        pattern: case.pattern,
        size: size / 4,
        total: size / 4,
        seconds: 4 * setup::FIO_SECONDS,
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
        System::new(
            "ferofs --memory-limit 2M",
            &erofs(),
            Driver::Ferofs(&["--memory-limit", "2M"]),
        ),
    );
    evaluation.measure_all("latency", 1, &["enough", "32 MiB"], &all, |workspace, case, system| {
        let file_system = workspace.file_system("text", system)?;
        set_page_cache(&file_system.image, PageCache::Cold)?;
        let group = Cgroup::new((*case != "enough").then_some(SHORT_MEMORY))?;
        let mounted = file_system.mount_in(
            &workspace.programs.daemons(),
            &workspace.mount_point()?,
            Some(&group),
        )?;
        let size = workspace.size("text")?;
        let seconds = setup::FIO_SECONDS;
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
