//! `cargo xtask bench sealed`: what verifying costs. A sealed image is mounted through FUSE with its root hash and without, in turn, and read
//! in sequence and at random. Each mount is new, so each block is verified once.
//!
//! It prints the speed with verification as a multiple of that without, and the memory that verification adds, the slowest first;
//! docs/results/sealed.md has the most important rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::scratch;

use super::MIB;
use crate::common::filesystem::{DaemonPrograms, Driver, FileSystem};
use crate::common::fio::{Job, Pattern};
use crate::common::linux_source;
use crate::common::rounds::{PageCache, Spread, rotated_order, set_page_cache};
use ferofs_devtools::install::{self, FIO, FUSE};
use ferofs_devtools::shell;

/// Bytes of the file, and those that are read from.
const FILE_SIZE: u64 = 1250 * MIB;
const SIZE: u64 = 1024 * MIB;
const FILE: &str = "linux.tar";
/// Seconds after which fio stops: a slow mount reads less in the same time.
const FIO_SECONDS: u32 = 10;
/// Names of images, and the options of `ferofs build` that make them.
const IMAGES: [(&str, [&str; 4]); 3] = [
    ("LZ4 4 KiB", ["-z", "lz4", "-C", "4K"]),
    ("LZ4 64 KiB", ["-z", "lz4", "-C", "64K"]),
    ("Zstandard 64 KiB", ["-z", "zstd", "-C", "64K"]),
];
/// Patterns, and the percent of the pages that are read.
const READS: [(Pattern, u64); 4] =
    [(Pattern::Sequential, 100), (Pattern::Random, 1), (Pattern::Random, 10), (Pattern::Random, 100)];

struct Options {
    rounds: usize,
    /// Only cells whose name contains this text.
    only: String,
}

/// One measurement.
#[derive(Clone, Copy)]
struct Run {
    /// MiB/s.
    speed: f64,
    /// Processor seconds of the daemon for each MiB.
    cpu: f64,
    /// Bytes of the daemon's private dirty memory after the reads.
    memory: f64,
}

/// Figures of one cell over all rounds.
struct Summary {
    title: String,
    plain: Spread,
    verified: Spread,
    /// Of each round: the speed with verification as a multiple of that without.
    ratio: Spread,
    /// Of each round: the daemon's processor time for each byte with verification as a multiple of that without.
    cpu: Spread,
    /// MiB of memory that verification adds.
    added: Spread,
    /// MiB that verification may add: 1, and a bit for each block of the image.
    allowed: f64,
}

pub(crate) fn sealed(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    install::install(&[FIO, FUSE])?;
    let programs = DaemonPrograms { ferofs: shell::build_ferofs("release")?, erofsfuse: None };
    let dir = scratch::target_dir().join("bench-sealed");
    let (source, mount_point) = (dir.join("source"), dir.join("mount"));
    fs::create_dir_all(&source)?;
    fs::create_dir_all(&mount_point)?;
    linux_source::write_text(&source.join(FILE), FILE_SIZE)?;
    let mut summaries = Vec::new();
    for (name, build) in IMAGES {
        if !options.has_cell(name) {
            continue;
        }
        let (image, root) = image(&programs.ferofs, &dir, name, &build)?;
        let allowed = 1.0 + fs::metadata(&image)?.len() as f64 / 4096.0 / 8.0 / MIB as f64;
        // The options of a driver live as long as the program.
        let verify: &'static [&'static str] = Box::leak(Box::new(["--roothash", &*root.leak()]));
        let plain = FileSystem::new("plain", &image, Driver::Ferofs(&[]));
        let both = [plain, FileSystem::new("verified", &image, Driver::Ferofs(verify))];
        for cache in [PageCache::Warm, PageCache::Cold] {
            for (pattern, percent) in READS {
                let title = title(name, cache, pattern, percent);
                if !title.contains(&options.only) {
                    continue;
                }
                let job = Job {
                    pattern,
                    size: SIZE,
                    total: SIZE / 100 * percent,
                    seconds: FIO_SECONDS,
                    readers: 1,
                };
                let mut runs: [Vec<Run>; 2] = Default::default();
                for round in 0..options.rounds {
                    for number in rotated_order(2, round) {
                        set_page_cache(&image, cache)?;
                        let mounted = both[number].mount(&programs, &mount_point)?;
                        let before = mounted.cpu().context("the daemon has ended")?;
                        let reading = job.run(&mounted.path().join(FILE))?;
                        let cpu = mounted.cpu().context("the daemon has ended")? - before;
                        let cpu = cpu / (reading.bytes as f64 / MIB as f64);
                        let memory = mounted.private_dirty().context("the daemon has ended")? as f64;
                        runs[number].push(Run { speed: reading.mib_per_second(), cpu, memory });
                    }
                }
                let summary = Summary::of(title, &runs, allowed)?;
                println!("{}", summary.row());
                summaries.push(summary);
            }
        }
    }
    summaries.sort_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median));
    println!("\n{HEAD}");
    for summary in summaries {
        println!("{}", summary.row());
    }
    Ok(())
}

const HEAD: &str = "\
| verified / not | reads | verified, MiB/s | not | processor time | added memory, MiB | allowed |\n|---|---|---|---|---|---|---|";

/// The name of a cell.
fn title(image: &str, cache: PageCache, pattern: Pattern, percent: u64) -> String {
    let cache = if cache == PageCache::Warm { "warm" } else { "cold" };
    format!("{image}, {cache}, {pattern} {percent} %")
}

/// The sealed image `name`, which is made if it does not exist, and its root hash.
fn image(ferofs: &Path, dir: &Path, name: &str, build: &[&str]) -> Result<(PathBuf, String)> {
    let stem = name.replace(' ', "-");
    let (image, root) = (dir.join(format!("{stem}.erofs")), dir.join(format!("{stem}.roothash")));
    if !root.exists() {
        let unfinished = dir.join("unfinished.roothash");
        let mut command = Command::new(ferofs);
        command.args(["build", "--quiet", "--verity", "--roothash-file"]).arg(&unfinished);
        shell::run(command.args(build).arg(dir.join("source")).arg(&image))?;
        fs::rename(&unfinished, &root)?;
    }
    Ok((image, fs::read_to_string(&root)?.trim().to_owned()))
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { rounds: 7, only: String::new() };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let value = options.next().with_context(|| format!("{option} needs a value"))?;
            match *option {
                "--rounds" => parsed.rounds = value.parse().context("--rounds")?,
                "--only" => parsed.only = (*value).to_owned(),
                unknown => bail!("unknown option {unknown}"),
            }
        }
        Ok(parsed)
    }

    fn has_cell(&self, image: &str) -> bool {
        [PageCache::Warm, PageCache::Cold].into_iter().any(|cache| {
            READS
                .iter()
                .any(|(pattern, percent)| title(image, cache, *pattern, *percent).contains(&self.only))
        })
    }
}

impl Summary {
    fn of(title: String, [plain, verified]: &[Vec<Run>; 2], allowed: f64) -> Result<Self> {
        let spread = |values: Vec<f64>| Spread::of(values).context("no rounds");
        let speeds = |runs: &[Run]| spread(runs.iter().map(|run| run.speed).collect());
        let pairs = || plain.iter().zip(verified);
        Ok(Self {
            title,
            plain: speeds(plain)?,
            verified: speeds(verified)?,
            ratio: spread(pairs().map(|(plain, verified)| verified.speed / plain.speed).collect())?,
            cpu: spread(pairs().map(|(plain, verified)| verified.cpu / plain.cpu).collect())?,
            added: spread(
                pairs().map(|(plain, verified)| (verified.memory - plain.memory) / MIB as f64).collect(),
            )?,
            allowed,
        })
    }

    /// A row of the table.
    fn row(&self) -> String {
        let Self { title, plain, verified, ratio, cpu, added, allowed } = self;
        let spread = |Spread { min, median, max }: Spread, digits: usize| {
            format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
        };
        format!(
            "| {} | {title} | {} | {} | {} | {} | {allowed:.2} |",
            spread(*ratio, 2),
            spread(*verified, 0),
            spread(*plain, 0),
            spread(*cpu, 2),
            spread(*added, 2)
        )
    }
}
