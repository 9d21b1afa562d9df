//! `cargo xtask bench random`: random reads of a part of a file through mounts.
//!
//! Programs mostly read a small part of a large file: databases, searches, programs that start. The
//! benchmark varies what users vary: the part of the file that is read (density), the distribution
//! of the reads, their size, how many run at a time, the clusters of the image, and whether the
//! image is in the page cache. It prints each cell for ferofs, erofsfuse and the kernel, and at the
//! end a table of the cells in which ferofs is slowest compared with erofsfuse.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::install::{self, FIO, FUSE, MOUNT};
use ferofs_devtools::shell;
use ferofs_tests::{need, scratch};

use crate::common::filesystem::{Driver, FileSystem, root_hash_file};
use crate::common::fio;
use crate::common::options::rounds;
use crate::common::programs::{Programs, Tool};
use crate::common::report::{Report, Table, number};
use crate::common::rounds::{PageCache, Spread, rotated_order, set_page_cache};
use crate::trees::packages;

/// Bytes of the file that are read from: the reads of a cell touch a part of them.
const SIZE: u64 = 512 << 20;
/// Seconds after which fio stops: a slow file system reads less in the same time. Dense reads
/// become faster when the page cache fills, which takes a second.
const FIO_SECONDS: u32 = 4;
/// A run mounts and reads again, at other places, until it has this many reads, because those of 10
/// ms say nothing.
const READS: u64 = 1024;
/// A limit on memory for which the times of the slowest reads are shown, too.
const MEMORY: &[&str] = &["--memory-limit", "32M"];
/// Percent of the pages that are read.
const DENSITIES: [f64; 4] = [0.1, 1.0, 10.0, 100.0];
/// An image, named by algorithm and largest cluster, and the options of mkfs.erofs.
type ImageOptions = (&'static str, &'static str);
const IMAGES: [ImageOptions; 4] = [
    ("lz4-4k", "-zlz4 -C4096"),
    ("lz4-64k", "-zlz4 -C65536"),
    ("zstd-64k", "-zzstd -C65536"),
    ("zstd-1m", "-zzstd -C1048576"),
];
/// The image of the other dimensions.
const IMAGE: ImageOptions = IMAGES[1];
/// The page shows this many of the slowest cells: enough to see which kinds of reads are slow.
const SLOWEST: usize = 10;

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
    image: ImageOptions,
    cache: PageCache,
    access: Access,
    density: f64,
    /// Bytes of a read.
    block: u64,
    /// Reads at a time.
    depth: u32,
    /// Options of ferofs.
    options: &'static [&'static str],
    /// The image has a hash tree, and ferofs verifies what it reads.
    is_sealed: bool,
}

impl Cell {
    const fn new(image: ImageOptions, cache: PageCache, density: f64) -> Self {
        Self {
            image,
            cache,
            access: Access::Uniform,
            density,
            block: 4096,
            depth: 1,
            options: &[],
            is_sealed: false,
        }
    }

    /// The densities on all images; then each other dimension with one image and two densities.
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for cache in [PageCache::Warm, PageCache::Cold] {
            for image in IMAGES {
                cells.extend(DENSITIES.map(|density| Self::new(image, cache, density)));
            }
            for density in [1.0, 10.0] {
                let cell = Self::new(IMAGE, cache, density);
                for access in [Access::Zipf, Access::HotRegions, Access::Mmap, Access::TwoFiles] {
                    cells.push(Self { access, ..cell });
                }
                cells.extend([16, 128].map(|kib| Self { block: kib << 10, ..cell }));
                cells.push(Self { depth: 8, ..cell });
                cells.push(Self { depth: 8, options: MEMORY, ..cell });
            }
        }
        for image in [IMAGES[1], IMAGES[2]] {
            let sealed =
                |density| Self { is_sealed: true, ..Self::new(image, PageCache::Warm, density) };
            cells.extend([1.0, 10.0].map(sealed));
        }
        cells
    }

    /// Runs for [`READS`].
    const fn repeats(&self) -> u64 {
        READS.div_ceil(self.bytes() / self.block)
    }

    /// Bytes that a run reads.
    const fn bytes(&self) -> u64 {
        (SIZE as f64 * self.density / 100.0) as u64
    }

    fn command(&self, mounted: &Path, seed: u64) -> Command {
        let mut fio = Command::new("fio");
        fio.args(["--name=read", "--readonly", "--rw=randread", "--allrandrepeat=1"]);
        fio.arg(format!("--randseed={seed}"));
        fio.args(["--group_reporting", "--thread", "--output-format=json"]);
        let first = mounted.join("linux.tar").display().to_string();
        let files = match self.access {
            Access::TwoFiles => format!("{first}:{}", mounted.join("second.tar").display()),
            _ => first,
        };
        // With two files, fio divides the size between them.
        let parts = if self.access == Access::TwoFiles { 2 } else { 1 };
        fio.arg(format!("--filename={files}")).arg(format!("--size={}", SIZE / parts));
        fio.arg(format!("--io_size={}", self.bytes() / parts));
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
        let (image, _) = self.image;
        let Self { access, density, block, depth, .. } = self;
        write!(f, "{image} {cache} {access} {density} % {} KiB x {depth}", block >> 10)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))?;
        if self.is_sealed { f.write_str(" sealed") } else { Ok(()) }
    }
}

/// The figures of one run of one cell.
#[derive(Clone, Copy)]
struct Figures {
    /// MiB/s.
    speed: f64,
    /// Microseconds, of the slowest hundredth of the reads.
    latency: f64,
    /// Microseconds of the daemon's processor time for each read; `None` without a daemon.
    cpu: Option<f64>,
}

/// Medians over the rounds of one cell and file system.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    /// MiB/s.
    pub(crate) speed: Spread,
    /// As [`Figures::latency`].
    latency: f64,
    /// As [`Figures::cpu`].
    cpu: Option<f64>,
}

impl Summary {
    fn of(runs: &[Figures]) -> Result<Self> {
        let latency =
            Spread::of(runs.iter().map(|figures| figures.latency)).context("no rounds")?;
        Ok(Self {
            speed: Spread::of(runs.iter().map(|figures| figures.speed)).context("no rounds")?,
            latency: latency.median,
            cpu: Spread::of(runs.iter().filter_map(|figures| figures.cpu))
                .map(|spread| spread.median),
        })
    }
}

/// What a run measured: each cell for ferofs, erofsfuse and the kernel.
type Results = Vec<(Cell, [Summary; 3])>;

#[derive(Args)]
pub(crate) struct RandomArgs {
    /// Only cells whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Measure N times
    #[arg(long, value_name = "N", default_value = "3", value_parser = rounds())]
    rounds: usize,
    /// Write docs/results/random.md
    #[arg(long, conflicts_with = "only")]
    publish: bool,
}

/// Runs all cells, or those that `--only` selects.
pub(crate) fn random(RandomArgs { only, rounds, publish }: &RandomArgs) -> Result<()> {
    let is_wanted = |cell: &Cell| cell.to_string().contains(only);
    if !need::is_root() {
        bail!("mounting with the kernel, for comparison, needs root");
    }
    install::install(&[FIO, FUSE, MOUNT])?;
    let images = Images::new(Programs::install()?)?;
    let mut versions = images.programs.versions().to_vec();
    versions.push(("fio", "fio".into(), "--version"));
    let report = Report::new("random", &versions)?;
    let mut results = Results::new();
    for cell in Cell::all().into_iter().filter(is_wanted) {
        let mut image = images.image(cell.image.0, cell.image.1)?;
        let mut driver = Driver::Ferofs(cell.options);
        if cell.is_sealed {
            (image, driver) = (images.sealed(&image)?, Driver::Sealed);
        }
        let file_systems = file_systems(&image, driver);
        let mut runs: [Vec<Figures>; 3] = Default::default();
        for round in 0..*rounds {
            for number in rotated_order(file_systems.len(), round) {
                let figures = run(&images, &file_systems[number], &cell);
                runs[number].push(
                    figures.with_context(|| format!("{cell}: {}", file_systems[number].name))?,
                );
            }
        }
        let [ferofs, erofsfuse, kernel] = &runs;
        let summaries = [Summary::of(ferofs)?, Summary::of(erofsfuse)?, Summary::of(kernel)?];
        let line = summaries.map(|summary| {
            format!("{:.1?}, p99 {:.0}, CPU {:.1?}", summary.speed, summary.latency, summary.cpu)
        });
        println!("{cell}: {}", line.join("; "));
        results.push((cell, summaries));
    }
    let cells = results.len();
    let table = table(results);
    report.add(&table);
    if *publish {
        let about = format!(
            "medians of {rounds} rounds of {cells} cells, in which the programs took turns."
        );
        report.publish(&about, table, 0, 1)?;
    }
    Ok(())
}

/// The slowest cells of ferofs compared with erofsfuse, the median and the fastest.
fn table(mut results: Results) -> Table {
    let ratio = |summaries: &[Summary; 3]| summaries[0].speed.median / summaries[1].speed.median;
    results.sort_by(|a, b| ratio(&a.1).total_cmp(&ratio(&b.1)));
    let last = results.len().saturating_sub(1);
    let shown = results
        .iter()
        .enumerate()
        .filter(|(at, _)| *at < SLOWEST || *at == last / 2 || *at == last);
    let row = |(_, (cell, summaries)): (usize, &(Cell, [Summary; 3]))| {
        let [ferofs, erofsfuse, _] = summaries;
        let cpu = ferofs.cpu.unwrap_or(f64::NAN) / erofsfuse.cpu.unwrap_or(f64::NAN);
        let mut row = vec![cell.to_string(), format!("{:.2}", ratio(summaries))];
        row.extend(summaries.map(|summary| number(summary.speed.median)));
        row.push(format!("{cpu:.2}"));
        row.push(format!("{:.2}", ferofs.latency / erofsfuse.latency));
        row
    };
    Table {
        title: "Random reads".into(),
        text: format!(
            "fio reads parts of the first {} MB of a file of {} MB. The table shows the {SLOWEST} slowest cells, the median cell and the fastest one, in MiB/s. \
             “CPU” is the daemon's processor time for each read, and “p99” the time that 99 of 100 reads take at most, as multiples of erofsfuse's.",
            number(SIZE as f64 / 1e6),
            number(FILE_SIZE as f64 / 1e6)
        ),
        head: vec!["cell", "ferofs / erofsfuse", "ferofs", "erofsfuse", "kernel", "CPU", "p99"],
        rows: shown.map(row).collect(),
    }
}

fn file_systems(image: &Path, ferofs: Driver) -> [FileSystem; 3] {
    [
        FileSystem::new("ferofs", image, ferofs),
        FileSystem::new("erofsfuse", image, Driver::Erofsfuse),
        FileSystem::new("kernel EROFS", image, Driver::Kernel("erofs")),
    ]
}

/// Mounts and reads as often as the cell needs; the latency is the median of these times.
fn run(images: &Images, file_system: &FileSystem, cell: &Cell) -> Result<Figures> {
    let (mut bytes, mut seconds, mut cpu, mut latencies) = (0, 0.0, Some(0.0), Vec::new());
    for seed in 1..=cell.repeats() {
        set_page_cache(&file_system.image, cell.cache)?;
        let mounted = file_system.mount(&images.programs.daemons(), &images.mount_point())?;
        let before = mounted.cpu();
        let reading = fio::run(&mut cell.command(mounted.path(), seed))?;
        let used = mounted.cpu().zip(before).map(|(after, before)| after - before);
        cpu = cpu.zip(used).map(|(sum, used)| sum + used);
        bytes += reading.bytes;
        seconds += reading.seconds;
        latencies.push(reading.latency.percentile_99);
    }
    Ok(Figures {
        speed: bytes as f64 / f64::from(1 << 20) / seconds,
        latency: Spread::of(latencies).context("no reads")?.median,
        cpu: cpu.map(|cpu| cpu * 1e6 / (bytes as f64 / cell.block as f64)),
    })
}

/// Bytes of the large file.
pub(crate) const FILE_SIZE: u64 = 640 << 20;

pub(crate) struct Images {
    pub(crate) programs: Programs,
    dir: PathBuf,
}

impl Images {
    pub(crate) fn new(programs: Programs) -> Result<Self> {
        let dir = scratch::target_dir().join("bench-random");
        fs::create_dir_all(dir.join("mount"))?;
        Ok(Self { programs, dir })
    }

    /// The directory that all file systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// The image called `name`, which mkfs.erofs makes with `options`.
    pub(crate) fn image(&self, name: &str, options: &str) -> Result<PathBuf> {
        let image = self.dir.join(format!("{name}.erofs"));
        if !image.exists() {
            let unfinished = self.dir.join("unfinished");
            self.programs.build(Tool::MkfsErofs, options, &self.files()?, &unfinished)?;
            fs::rename(&unfinished, &image)?;
        }
        Ok(image)
    }

    /// A copy of `image` with a hash tree, which others than ferofs do not read.
    fn sealed(&self, image: &Path) -> Result<PathBuf> {
        let sealed = image.with_extension("sealed");
        if !root_hash_file(&sealed).exists() {
            fs::copy(image, &sealed)?;
            let mut format = Command::new(&self.programs.ferofs);
            format.args(["verity", "format", "--force", "--roothash-file"]);
            shell::run_quietly(format.args([&root_hash_file(&sealed), &sealed]))?;
        }
        Ok(sealed)
    }

    /// A directory with the large file and a second one, half as large.
    fn files(&self) -> Result<PathBuf> {
        let dir = self.dir.join("files");
        fs::create_dir_all(&dir)?;
        packages::write_text(&dir.join("linux.tar"), FILE_SIZE)?;
        packages::write_text(&dir.join("second.tar"), FILE_SIZE / 2)?;
        Ok(dir)
    }
}
