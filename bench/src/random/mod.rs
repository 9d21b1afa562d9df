//! `cargo xtask bench random`: random reads of a part of a file through mounts.
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
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use self::images::Images;
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::fio::{self, Reading};
use crate::common::report;
use crate::common::rounds::{PageCache, Spread, rotated_order, set_page_cache};
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
}

/// Medians over the rounds of one cell and file system.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    /// MiB/s.
    pub(crate) speed: Spread,
    /// As [`Figures::cpu`].
    pub(crate) cpu: Option<f64>,
}

impl Summary {
    fn of(runs: &[Figures]) -> Result<Self> {
        let speed = runs.iter().map(|figures| figures.reading.mib_per_second());
        Ok(Self {
            speed: Spread::of(speed).context("no rounds")?,
            cpu: Spread::of(runs.iter().filter_map(|figures| figures.cpu)).map(|spread| spread.median),
        })
    }
}

/// What a run measured: each cell for ferofs, erofsfuse and the kernel.
type Results = Vec<(Cell, [Summary; 3])>;

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
    let mut results = Results::new();
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
        results.push((cell, summaries));
    }
    let ratio = |summaries: &[Summary; 3]| summaries[0].speed.median / summaries[1].speed.median;
    let cells = results.iter().map(|(cell, summaries)| (ratio(summaries), cell.to_string()));
    let mut ratios: Vec<(f64, String)> = cells.collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("\nthe lowest speeds, as multiples of erofsfuse's");
    for (ratio, cell) in ratios.iter().take(WORST) {
        println!("{ratio:6.2}  {cell}");
    }
    if options.publish {
        let page = page::page(&results, options.rounds, &report::machine_list()?);
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
    let cpu = mounted.cpu();
    let reading = fio::run(&mut cell.command(mounted.path()))?;
    let reads = reading.bytes as f64 / cell.block as f64;
    let cpu = mounted.cpu().zip(cpu).map(|(after, before)| (after - before) * 1e6 / reads);
    Ok(Figures { reading, cpu })
}

/// Prints a table of one cell.
fn print(cell: &Cell, file_systems: &[FileSystem; 3], summaries: &[Summary; 3]) {
    println!("\n{cell}");
    println!("{:<14}{:>28}{:>8}{:>10}", "", "MiB/s (min - max)", "x", "CPU us");
    for (file_system, summary) in file_systems.iter().zip(summaries) {
        let Spread { min, median, max } = summary.speed;
        let range = format!("{median:.1} ({min:.1} - {max:.1})");
        let times = median / summaries[1].speed.median;
        let cpu = summary.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
        println!("{:<14}{range:>28}{times:>8.2}{cpu:>10}", file_system.name);
    }
}

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
