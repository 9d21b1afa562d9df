//! `cargo xtask bench random`: random reads of a part of a file through mounts, and the start of programs.
//!
//! Programs mostly read a small part of a large file: databases, searches, programs that start. The benchmark varies what users
//! vary: the part of the file that is read (density), the distribution of the reads, their size, how many run at a time, the
//! clusters of the image, and whether the image is in the page cache. It prints each cell for ferofs, erofsfuse and the kernel, and
//! at the end the cells in which ferofs is slowest compared with erofsfuse.

mod images;
mod page;

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use self::images::Images;
use crate::common::device::DeviceReads;
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::fio::{self, Reading};
use crate::common::report;
use crate::common::rounds::{PageCache, Spread, rotated_order, run_quietly, set_page_cache};
use ferofs_devtools::install::{self, EROFS_UTILS, FIO, FUSE, MOUNT};
use ferofs_devtools::{peers, shell};

/// Bytes of the file that are read from: the reads of a cell touch a part of them.
const SIZE: u64 = 1 << 30;
/// Seconds after which fio stops: a slow file system reads less in the same time.
const FIO_SECONDS: u32 = 3;
/// Percent of the pages that are read.
const DENSITIES: [f64; 5] = [0.1, 1.0, 5.0, 25.0, 100.0];
/// Images, by algorithm and largest cluster.
const IMAGES: [&str; 5] = [
    "grid-lz4-4k.erofs",
    "grid-lz4-64k.erofs",
    "grid-lz4-1m.erofs",
    "grid-zstd-64k.erofs",
    "grid-zstd-1m.erofs",
];
/// Cells that are printed again at the end.
const WORST: usize = 10;

/// How a program reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    /// Each page at most once, all equally often.
    Uniform,
    /// Few pages often, most pages rarely.
    Zipf,
    /// 60 % of the reads in 2 % of the file, 30 % in 8 %, 10 % in the rest.
    HotRegions,
    /// Page faults of a memory map.
    Mmap,
    /// Two files in turn.
    TwoFiles,
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::HotRegions => "hot regions",
            Self::Mmap => "mmap",
            Self::TwoFiles => "two files",
        })
    }
}

/// One workload on one image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    image: &'static str,
    cache: PageCache,
    access: Access,
    density: f64,
    /// Bytes of a read.
    block: u64,
    /// Reads at a time.
    depth: u32,
}

impl Cell {
    const fn new(image: &'static str, cache: PageCache, density: f64) -> Self {
        Self { image, cache, access: Access::Uniform, density, block: 4096, depth: 1 }
    }

    /// The densities on all images; then each other dimension with two images and two densities.
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for cache in [PageCache::Warm, PageCache::Cold] {
            for image in IMAGES {
                cells.extend(DENSITIES.map(|density| Self::new(image, cache, density)));
            }
            for image in [IMAGES[0], IMAGES[1]] {
                for density in [1.0, 25.0] {
                    let cell = Self::new(image, cache, density);
                    for access in [Access::Zipf, Access::HotRegions, Access::Mmap, Access::TwoFiles] {
                        cells.push(Self { access, ..cell });
                    }
                    cells.extend([16, 128].map(|kib| Self { block: kib << 10, ..cell }));
                    cells.push(Self { depth: 8, ..cell });
                }
            }
        }
        cells
    }

    fn command(&self, mounted: &Path) -> Command {
        let mut fio = Command::new("fio");
        fio.args(["--name=read", "--readonly", "--rw=randread", "--randseed=1", "--allrandrepeat=1"]);
        fio.args(["--group_reporting", "--thread", "--output-format=json"]);
        let first = mounted.join("linux.tar").display().to_string();
        let files = match self.access {
            Access::TwoFiles => format!("{first}:{}", mounted.join("second.tar").display()),
            _ => first,
        };
        // With two files, fio divides the size between them.
        let size = if self.access == Access::TwoFiles { SIZE / 2 } else { SIZE };
        fio.arg(format!("--filename={files}")).arg(format!("--size={size}"));
        fio.arg(format!("--io_size={}", (size as f64 * self.density / 100.0) as u64));
        fio.arg(format!("--bs={}", self.block)).arg(format!("--runtime={FIO_SECONDS}"));
        if let Some(distribution) = match self.access {
            Access::Uniform | Access::Mmap | Access::TwoFiles => None,
            Access::Zipf => Some("zipf:1.1"),
            Access::HotRegions => Some("zoned:60/2:30/8:10/90"),
        } {
            fio.arg(format!("--random_distribution={distribution}")).arg("--norandommap");
        }
        let engine = match (self.access, self.depth) {
            (Access::Mmap, _) => "mmap",
            (_, 1) => "psync",
            _ => "io_uring",
        };
        fio.arg(format!("--ioengine={engine}")).arg(format!("--iodepth={}", self.depth));
        fio
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cache = if self.cache == PageCache::Warm { "warm" } else { "cold" };
        let image = self.image.trim_start_matches("grid-").trim_end_matches(".erofs");
        let Self { access, density, block, depth, .. } = self;
        write!(f, "{image} {cache} {access} {density} % {} KiB x {depth}", block >> 10)
    }
}

/// The figures of one run of one cell.
#[derive(Clone, Copy)]
struct Figures {
    reading: Reading,
    /// Microseconds of the daemon's processor time for each read; `None` without a daemon.
    cpu: Option<f64>,
    /// Reads of the device that holds the image.
    device: DeviceReads,
}

/// Medians over the rounds of one cell and file system.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    /// MiB/s.
    pub(crate) speed: Spread,
    /// Microseconds.
    p50: f64,
    pub(crate) p99: f64,
    /// As [`Figures::cpu`].
    pub(crate) cpu: Option<f64>,
    /// Bytes read from the device for each byte that fio read.
    pub(crate) device_bytes: f64,
    /// Reads of the device for each 4 KiB that fio read.
    device_requests: f64,
}

impl Summary {
    fn of(runs: &[Figures]) -> Result<Self> {
        let spread =
            |figure: &dyn Fn(&Figures) -> f64| Spread::of(runs.iter().map(figure)).context("no rounds");
        let median = |figure: &dyn Fn(&Figures) -> f64| spread(figure).map(|spread| spread.median);
        let bytes = |figures: &Figures| figures.reading.bytes as f64;
        Ok(Self {
            speed: spread(&|figures| figures.reading.mib_per_second())?,
            p50: median(&|figures| figures.reading.latency.median)?,
            p99: median(&|figures| figures.reading.latency.percentile_99)?,
            cpu: Spread::of(runs.iter().filter_map(|figures| figures.cpu)).map(|spread| spread.median),
            device_bytes: median(&|figures| figures.device.bytes as f64 / bytes(figures))?,
            device_requests: median(&|figures| figures.device.requests as f64 * 4096.0 / bytes(figures))?,
        })
    }
}

/// The start of a program.
pub(crate) struct Program {
    pub(crate) title: String,
    /// The medians of ferofs, erofsfuse and the kernel.
    pub(crate) seconds: [f64; 3],
}

impl Program {
    /// The speed of ferofs as a multiple of erofsfuse's.
    pub(crate) fn ratio(&self) -> f64 {
        self.seconds[1] / self.seconds[0]
    }
}

/// What a run measured: each cell for ferofs, erofsfuse and the kernel.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) cells: Vec<(Cell, [Summary; 3])>,
    pub(crate) programs: Vec<Program>,
}

struct Options {
    rounds: usize,
    /// Write [`page`].
    publish: bool,
    /// Only cells whose name contains this text.
    only: String,
}

/// Runs all cells, or those that `--only` selects.
pub(crate) fn random(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    if !need::is_root() {
        bail!("mounting with the kernel, for comparison, needs root");
    }
    install::install(&[EROFS_UTILS, FIO, FUSE, MOUNT])?;
    peers::install_peers()?;
    let images = Images::new(shell::build_ferofs("release")?)?;
    let mut results = Results::default();
    for cell in Cell::all().into_iter().filter(|cell| cell.to_string().contains(&options.only)) {
        let image = images.image(cell.image)?;
        let file_systems = file_systems(&image);
        let mut runs: [Vec<Figures>; 3] = Default::default();
        for round in 0..options.rounds {
            for number in rotated_order(file_systems.len(), round) {
                let figures = run(&images, &file_systems[number], &cell);
                runs[number].push(figures.with_context(|| format!("{cell}: {}", file_systems[number].name))?);
            }
        }
        let [ferofs, erofsfuse, kernel] = &runs;
        let summaries = [Summary::of(ferofs)?, Summary::of(erofsfuse)?, Summary::of(kernel)?];
        print(&cell, &file_systems, &summaries);
        results.cells.push((cell, summaries));
    }
    if options.only.is_empty() || "program start".contains(&options.only) {
        programs(&images, &options, &mut results.programs)?;
    }
    let ratio = |summaries: &[Summary; 3]| summaries[0].speed.median / summaries[1].speed.median;
    let cells = results.cells.iter().map(|(cell, summaries)| (ratio(summaries), cell.to_string()));
    let programs = results.programs.iter().map(|program| (program.ratio(), program.title.clone()));
    let mut ratios: Vec<(f64, String)> = cells.chain(programs).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("\nthe lowest speeds, as multiples of erofsfuse's");
    for (ratio, cell) in ratios.iter().take(WORST) {
        println!("{ratio:6.2}  {cell}");
    }
    if options.publish {
        let page = page::page(&results, options.rounds, &report::machine()?);
        let path = shell::repository().join("docs/results/random.md");
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn file_systems(image: &Path) -> [FileSystem; 3] {
    [
        FileSystem::new("ferofs", image, Driver::Ferofs(&[])),
        FileSystem::new("erofsfuse", image, Driver::Erofsfuse),
        FileSystem::new("kernel EROFS", image, Driver::Kernel("erofs")),
    ]
}

fn run(images: &Images, file_system: &FileSystem, cell: &Cell) -> Result<Figures> {
    set_page_cache(&file_system.image, cell.cache)?;
    let mounted = file_system.mount(&images.daemons, &images.mount_point())?;
    let (cpu, device) = (mounted.cpu(), DeviceReads::of(&file_system.image)?);
    let reading = fio::run(&mut cell.command(mounted.path()))?;
    let reads = reading.bytes as f64 / cell.block as f64;
    let cpu = mounted.cpu().zip(cpu).map(|(after, before)| (after - before) * 1e6 / reads);
    Ok(Figures { reading, cpu, device: DeviceReads::of(&file_system.image)?.since(device) })
}

/// Prints a table of one cell.
fn print(cell: &Cell, file_systems: &[FileSystem; 3], summaries: &[Summary; 3]) {
    println!("\n{cell}");
    println!(
        "{:<14}{:>28}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "MiB/s (min - max)", "x", "p50 us", "p99 us", "CPU us", "I/O x", "I/Os"
    );
    for (file_system, summary) in file_systems.iter().zip(summaries) {
        let Spread { min, median, max } = summary.speed;
        println!(
            "{:<14}{:>28}{:>8.2}{:>10.1}{:>10.1}{:>10}{:>10.2}{:>10.2}",
            file_system.name,
            format!("{median:.1} ({min:.1} - {max:.1})"),
            median / summaries[1].speed.median,
            summary.p50,
            summary.p99,
            summary.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}")),
            summary.device_bytes,
            summary.device_requests,
        );
    }
}

/// Times commands that read a few parts of many files, from an image of the system's own programs.
fn programs(images: &Images, options: &Options, programs: &mut Vec<Program>) -> Result<()> {
    let image = images.image("programs-lz4-64k.erofs")?;
    let file_systems = file_systems(&image);
    for (name, command) in [
        ("python3 starts and imports 20 modules", PYTHON),
        ("grep for a word in all Python modules", "grep -rlF asyncio ROOT/lib/python3 > /dev/null"),
        ("git status of a tree of 2,000 files", "git -C ROOT/repository --no-optional-locks status --short"),
    ] {
        for cache in [PageCache::Warm, PageCache::Cold] {
            let title =
                format!("program start: {name}, {}", if cache == PageCache::Warm { "warm" } else { "cold" });
            let mut seconds: [Vec<f64>; 3] = Default::default();
            for round in 0..options.rounds {
                for number in rotated_order(file_systems.len(), round) {
                    set_page_cache(&image, cache)?;
                    let mounted = file_systems[number].mount(&images.daemons, &images.mount_point())?;
                    let command = command.replace("ROOT", &mounted.path().display().to_string());
                    let start = Instant::now();
                    let mut shell = Command::new("sh");
                    run_quietly(shell.args(["-c", &command]).stdin(Stdio::null()))?;
                    seconds[number].push(start.elapsed().as_secs_f64());
                }
            }
            println!("\n{title}");
            let medians = seconds.map(|seconds| Spread::of(seconds).map_or(f64::NAN, |spread| spread.median));
            for (file_system, median) in file_systems.iter().zip(medians) {
                println!("{:<14}{:>12.1} ms{:>8.2}", file_system.name, median * 1e3, medians[1] / median);
            }
            programs.push(Program { title, seconds: medians });
        }
    }
    Ok(())
}

const PYTHON: &str = "PYTHONHOME= PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=ROOT/lib/python3 python3 -S -c 'import json, asyncio, \
email, http.client, xml.dom.minidom, unittest, sqlite3, logging, argparse, decimal, csv, tarfile, zipfile, difflib, pickle, \
ssl, urllib.request, subprocess, multiprocessing, concurrent.futures'";

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { rounds: 5, publish: false, only: String::new() };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if *option == "--publish" {
                parsed.publish = true;
                continue;
            }
            let value = options.next().with_context(|| format!("{option} needs a value"))?;
            match *option {
                "--rounds" => parsed.rounds = value.parse().context("--rounds")?,
                "--only" => parsed.only = (*value).to_owned(),
                unknown => bail!("unknown option {unknown}"),
            }
        }
        Ok(parsed)
    }
}
