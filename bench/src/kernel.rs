//! `cargo xtask bench kernel [--only SETTING]... [--rounds N] [--dir DIR] [--publish]`: how fast
//! Linux reads images that ferofs, erofs-utils and squashfs-tools made of the same trees, through
//! its own drivers and loop devices.
//!
//! Before each measurement the image is mounted anew, so that none of its files are in the page
//! cache. “Cold” means that the image itself is not there either, “warm” that it is. Processor
//! seconds are those of the reader and of all threads of the kernel, some of which decode.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, MOUNT};
use ferofs_devtools::shell;
use ferofs_tests::{Run, need, scratch};

use crate::common::filesystem::{Driver, FileSystem};
use crate::common::options::PartArgs;
use crate::common::programs::{Programs, Tool, kernel_threads, succeed};
use crate::common::reads::{Reads, thread_seconds};
use crate::common::report::{Report, Table, number};
use crate::common::rounds::{PageCache, Spread, rotated_order, set_page_cache};
use crate::trees::{self, each_file};

/// Options of ferofs, mkfs.erofs and mksquashfs that fit each other: the same algorithm, level and
/// window.
const SETTINGS: [(&str, [&str; 3]); 3] = [
    ("lz4 64K", ["-z lz4 -C 64K -E fragments", "-zlz4 -C65536 -Efragments", "-comp lz4 -b 64K"]),
    ("lz4hc 4K", ["--preset android", "-zlz4hc,9 -C4096", "-comp lz4 -Xhc -b 4K"]),
    (
        "zstd 128K",
        [
            "-z zstd,3 -C 128K -E fragments",
            "-zzstd,3 -C131072 -Efragments",
            "-comp zstd -Xcompression-level 3 -b 128K",
        ],
    ),
];

/// The trees, and a program that each contains and `chroot` can start.
const TREES: [(&str, &[&str]); 3] = [
    ("numpy", &["/usr/bin/python3", "-c", "import numpy, scipy.linalg"]),
    ("container", &["/usr/bin/perl", "-MPOSIX", "-MIO::Socket", "-e1"]),
    ("sqlalchemy", &[]),
];

/// A program that runs longer hangs.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What is done with a mounted tree.
#[derive(Clone, Copy)]
enum Job {
    /// Reads all files, one after the other.
    All,
    Random,
    Tar,
    Start(&'static [&'static str]),
}

/// Processor seconds and seconds.
type Cost = [f64; 2];

/// One setting, tree, job and state of the page cache: the medians of the three tools.
struct Row {
    names: [String; 4],
    costs: [Cost; 3],
}

pub(crate) fn kernel(PartArgs { parts, rounds, dir }: &PartArgs) -> Result<()> {
    parts.check(&SETTINGS.map(|(name, _)| name))?;
    if !need::is_root() {
        bail!("mounting with the kernel needs root");
    }
    for kind in ["erofs", "squashfs"] {
        Driver::Kernel(kind).check()?;
    }
    install::install(&[MOUNT])?;
    let programs = Programs::install()?;
    let report = Report::new("kernel", &programs.versions())?;
    let rounds = rounds.unwrap_or(3);
    let dir = dir.clone().unwrap_or_else(scratch::target_dir).join("bench-kernel");
    fs::create_dir_all(dir.join("mount"))?;
    let mut rows = Vec::new();
    for (tree, program) in TREES {
        let source = trees::named(tree)?.get()?;
        let reads = Reads::plan(&source)?;
        for (setting, tools) in SETTINGS.iter().filter(|(name, _)| parts.has(name)) {
            let images = images(&programs, &source, tools, &dir)?;
            let jobs = [("read all", Job::All), ("random 4 KiB", Job::Random), ("tar", Job::Tar)];
            let start = (!program.is_empty()).then_some(("start", Job::Start(program)));
            for (name, job) in jobs.into_iter().chain(start) {
                for (state, cache) in [("cold", PageCache::Cold), ("warm", PageCache::Warm)] {
                    let mut runs: [Vec<Cost>; 3] = Default::default();
                    for round in 0..rounds {
                        for number in rotated_order(images.len(), round) {
                            let cost = measure(
                                &programs,
                                &images[number],
                                &dir.join("mount"),
                                cache,
                                job,
                                &reads,
                            );
                            runs[number]
                                .push(cost.with_context(|| format!("{tree}: {setting}: {name}"))?);
                        }
                    }
                    let names = [setting, tree, name, state].map(str::to_owned);
                    eprintln!(
                        "{}",
                        shell::dim(&format!("{names:?}: {runs:.2?}"), &std::io::stderr())
                    );
                    rows.push(Row { names, costs: medians(&runs)? });
                }
            }
            for image in &images {
                fs::remove_file(&image.image)?;
            }
        }
    }
    rows.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    let table = table(&rows);
    report.add(&table);
    if parts.publish {
        let about = format!(
            "medians of {rounds} rounds, in which images of the three programs took turns."
        );
        report.publish(&about, table, 3, 4)?;
    }
    Ok(fs::remove_dir_all(&dir)?)
}

/// The images of the three tools.
fn images(
    programs: &Programs,
    source: &Path,
    options: &[&str; 3],
    dir: &Path,
) -> Result<Vec<FileSystem>> {
    let tools =
        [(Tool::Ferofs, "erofs"), (Tool::MkfsErofs, "erofs"), (Tool::Mksquashfs, "squashfs")];
    let image = |((tool, kind), options): ((Tool, _), &&str)| {
        let image = dir.join(tool.name());
        programs.build(tool, options, source, &image)?;
        Ok(FileSystem::new(tool.name(), &image, Driver::Kernel(kind)))
    };
    tools.into_iter().zip(options).map(image).collect()
}

fn measure(
    programs: &Programs,
    image: &FileSystem,
    dir: &Path,
    cache: PageCache,
    job: Job,
    reads: &Reads,
) -> Result<Cost> {
    set_page_cache(&image.image, cache)?;
    let mounted = image.mount(&programs.daemons(), dir)?;
    let (threads, own, start) = (kernel_threads()?, thread_seconds()?, Instant::now());
    let mut program = 0.0;
    match job {
        Job::All => each_file(mounted.path(), &mut |file, _| {
            std::io::copy(&mut fs::File::open(file)?, &mut std::io::sink())?;
            Ok(())
        })?,
        Job::Random => reads.run(mounted.path())?,
        Job::Tar => {
            let run = Run::limited("sh", None, TIMEOUT).args(["-c", "tar -cf - . | wc -c"]);
            program = succeed("tar", run.dir(mounted.path()))?.cpu.as_secs_f64();
        }
        Job::Start(words) => {
            let run = Run::limited("chroot", None, TIMEOUT).arg(mounted.path()).args(words);
            program = succeed("chroot", run)?.cpu.as_secs_f64();
        }
    }
    let wall = start.elapsed().as_secs_f64();
    let own = thread_seconds()? - own;
    // A thread that was not there before started at 0; one that ended is not counted.
    let decoding: f64 = kernel_threads()?
        .iter()
        .map(|(thread, seconds)| (seconds - threads.get(thread).unwrap_or(&0.0)).max(0.0))
        .sum();
    Ok([own + program + decoding, wall])
}

fn medians(runs: &[Vec<Cost>; 3]) -> Result<[Cost; 3]> {
    let mut medians = [Cost::default(); 3];
    for (medians, runs) in medians.iter_mut().zip(runs) {
        for (number, median) in medians.iter_mut().enumerate() {
            *median = Spread::of(runs.iter().map(|cost| cost[number])).context("no rounds")?.median;
        }
    }
    Ok(medians)
}

impl Row {
    /// Processor seconds and seconds of the image of ferofs, divided by those of the images of
    /// erofs-utils and of squashfs-tools.
    fn ratios(&self) -> [f64; 4] {
        let [ours, erofs, squashfs] = self.costs;
        [ours[0] / erofs[0], ours[1] / erofs[1], ours[0] / squashfs[0], ours[1] / squashfs[1]]
    }

    fn worst(&self) -> f64 {
        self.ratios().into_iter().fold(0.0, f64::max)
    }
}

fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let mut cells = row.names.to_vec();
        cells.extend(row.ratios().map(|ratio| format!("{ratio:.2}")));
        cells.extend(row.costs[0].map(number));
        cells
    };
    Table {
        title: "Reading with Linux".into(),
        text: "The ratios are those of the processor seconds, with those of the kernel's threads, and of the seconds from start to end: the image of ferofs divided by that of \
               mkfs.erofs, and by that of mksquashfs, so below 1 is better for ferofs. The last columns are the seconds with the image of ferofs. The \
               worst line comes first."
            .into(),
        head: vec![
            "setting",
            "tree",
            "job",
            "image",
            "CPU / mkfs.erofs",
            "wall / mkfs.erofs",
            "CPU / mksquashfs",
            "wall / mksquashfs",
            "CPU s",
            "seconds",
        ],
        rows: rows.iter().map(cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_ratio_counts() {
        let row = Row { names: Default::default(), costs: [[2.0, 3.0], [2.0, 1.0], [4.0, 1.5]] };
        assert_eq!(row.ratios(), [1.0, 3.0, 0.5, 2.0]);
        assert_eq!(row.worst(), 3.0);
        assert_eq!(table(&[row]).rows[0][4..], ["1.00", "3.00", "0.50", "2.00", "2.00", "3.00"]);
    }
}
