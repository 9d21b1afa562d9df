//! Builds images of all layouts, and of random options, and lets releases of Linux read them in
//! virtual machines.
//!
//! A release that the summary of the build promises must show the same tree as our reader. An older
//! one must show it, too, or refuse the image or a part of it: it must never show other bytes.
//!
//! | module | content |
//! |---|---|
//! | [`images`] | builds the images |
//! | [`table`] | judges what each kernel did with each image |

mod images;
mod table;

use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_tests::scratch;
use parking_lot::Mutex;

use crate::linux::machine::{Kernel, Processor};
use table::Table;

/// The releases and processors. Debian's suites have these releases; `newest` is the newest of all
/// suites.
const KERNELS: [(&str, Processor); 12] = [
    ("5.10", Processor::Amd64),
    ("6.1", Processor::Amd64),
    ("6.12", Processor::Amd64),
    ("6.16", Processor::Amd64),
    ("6.17", Processor::Amd64),
    ("6.18", Processor::Amd64),
    ("7.2", Processor::Amd64),
    ("newest", Processor::Amd64),
    ("6.12", Processor::Arm64),
    ("newest", Processor::Arm64),
    ("6.12", Processor::Arm64Pages16K),
    ("newest", Processor::Arm64Pages16K),
];
/// The short run: the oldest release that Debian has, the stable one, the newest.
const FEW_KERNELS: [(&str, Processor); 3] =
    [("5.10", Processor::Amd64), ("6.12", Processor::Amd64), ("newest", Processor::Amd64)];

/// Bytes of images for one start of a machine, which keeps them in memory.
const BATCH: usize = 128 << 20;
/// Images of random options that are built before their bytes are counted.
const STEP: u64 = 100;

/// Releases of Linux read images in virtual machines; needs root or sudo once
#[derive(Args)]
#[command(override_usage = "cargo xtask test --kernels [OPTIONS]")]
pub(crate) struct KernelArgs {
    /// Three releases and eleven layouts, and nothing else
    #[arg(long)]
    few: bool,
    /// Only kernels of this release (6.18, newest), or of these packages (cloud-amd64, cloud-arm64,
    /// arm64-16k)
    #[arg(long, value_name = "KERNEL")]
    only: Option<String>,
    /// Also N images of random options for each release
    #[arg(long, value_name = "N", default_value = "200", default_value_if("few", "true", "0"))]
    pub(crate) random: u64,
    /// The images of seed S
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Virtual machines at a time; one for each processor if it is not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Write the results into docs/results/kernels.md
    #[arg(long, conflicts_with_all = ["few", "only"])]
    publish: bool,
}

pub(crate) fn run(options: &KernelArgs) -> Result<()> {
    let work_dir = scratch::target_dir().join("kernels");
    fs::create_dir_all(&work_dir)?;
    let kernels = kernels(options, &work_dir)?;
    let all: Vec<&Kernel> = kernels.iter().collect();
    let scratch = scratch::scratch_in_memory();
    let dir = scratch.path();
    let jobs = crate::jobs(options.jobs);
    let mut table = Table::new(&work_dir, jobs);
    let mut images = images::layouts(dir, options.few)?;
    for first in (0..options.random).step_by(STEP as usize) {
        let (start, count) = (Instant::now(), STEP.min(options.random - first));
        let built = parallel(jobs, count as usize, |number| {
            images::random(dir, options.seed, first + number as u64)
        })?;
        images.extend(built.into_iter().flatten());
        println!("{count} images built in {:.0} s", start.elapsed().as_secs_f64());
        if images.iter().map(images::Built::len).sum::<usize>() > BATCH {
            table.read(&all, &std::mem::take(&mut images))?;
        }
    }
    table.read(&all, &images)?;
    // Other kernels cannot read most of them, or show no holes, and then a file of terabytes cannot
    // be read.
    let can_read = |kernel: &&Kernel| {
        kernel.processor == Processor::Amd64
            && Version::parse(&kernel.release).is_ok_and(|version| version >= images::HUGE_SINCE)
    };
    let new: Vec<&Kernel> = kernels.iter().filter(can_read).collect();
    if !options.few && !new.is_empty() {
        table.read(&new, &images::huge(dir)?)?;
    }
    table.print();
    table.end()?;
    if options.publish { table.publish() } else { Ok(()) }
}

fn kernels(options: &KernelArgs, work_dir: &Path) -> Result<Vec<Kernel>> {
    let all = if options.few { &FEW_KERNELS[..] } else { &KERNELS };
    let is_wanted = |(release, processor): &&(&str, Processor)| {
        options.only.as_deref().is_none_or(|only| [*release, processor.packages()].contains(&only))
    };
    let mut found: Vec<Kernel> = Vec::new();
    for (release, processor) in all.iter().filter(is_wanted) {
        let kernel = Kernel::get(release, *processor, work_dir)?;
        if found.iter().any(|it| it.release == kernel.release && it.processor == kernel.processor) {
            println!(
                "Debian has no newer kernel than {} ({})",
                kernel.release,
                processor.packages()
            );
            continue;
        }
        found.push(kernel);
    }
    if found.is_empty() {
        bail!("there is no such kernel: {}", KERNELS.map(|(release, _)| release).join(", "));
    }
    Ok(found)
}

/// Lets `jobs` threads do `work` for all numbers below `count`. Returns its results in the order of
/// the numbers.
fn parallel<T: Send>(
    jobs: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let result = work(number)?;
            found.lock().push((number, result));
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(run)).collect();
        let mut ended = running.into_iter().map(|thread| thread.join());
        ended.try_for_each(|end| end.unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    let mut found = found.into_inner();
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, result)| result).collect())
}

/// A release of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    fn parse(text: &str) -> Result<Self> {
        let (major, minor) = text.split_once('.').with_context(|| text.to_owned())?;
        Ok(Self(major.parse()?, minor.parse()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}
