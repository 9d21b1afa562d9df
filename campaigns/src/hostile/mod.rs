//! Runs every operation of the library, every command and the daemon on hostile images: valid
//! images with changed fields, and generated images that were never valid. The limits for each
//! image: no panic, 10 s of CPU time plus 1 s per MB of the image, and 128 MB of memory plus the
//! size of the image.

pub(crate) mod base_images;
mod commands;
mod content;
mod deltas;
mod fields;
mod generate;
mod linux;
mod memory;
mod mutate;
mod operations;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, thread};

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_tests::scratch;

use worker::{HANG, Range};

/// Images with false fields; those that fail are kept in target/hostile/kept
#[derive(Args)]
pub(crate) struct HostileArgs {
    /// Test N images
    #[arg(long, value_name = "N", default_value = "20000")]
    images: u64,
    /// The images of seed S
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Processes; one for each processor if it is not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Every Nth image goes through the commands and a FUSE mount, too; 0: none
    #[arg(long, value_name = "N", default_value = "500")]
    commands: u64,
    /// Test this image (or delta) of the seed alone, with all commands, and keep it
    #[arg(long, value_name = "CASE")]
    repeat: Option<u64>,
    /// Instead of images N cases of exact deltas: 5/6 mutants, 1/12 crafted deltas, 1/12
    /// interruptions of applying one
    #[arg(long, value_name = "N")]
    deltas: Option<u64>,
    /// Change only the base images whose names contain one of these words
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', conflicts_with_all = ["deltas", "linux_files"])]
    bases: Vec<String>,
    /// Let Linux read the images in virtual machines, and compare with check --deep and our reader
    #[arg(long)]
    linux: bool,
    /// The same with the images in a directory
    #[arg(long, value_name = "DIR")]
    linux_files: Option<PathBuf>,
    /// The number of the first image; only in worker processes
    #[arg(long, hide = true)]
    worker: Option<u64>,
}

pub(crate) fn run(args: &HostileArgs) -> Result<()> {
    let work_dir = scratch::target_dir().join("hostile");
    let kept = work_dir.join("kept");
    if let Some(dir) = &args.linux_files {
        return linux::files(dir, &work_dir, &kept);
    }
    let HostileArgs { seed, commands, images, .. } = *args;
    if let Some(cases) = args.deltas {
        return deltas::run(cases, seed, crate::jobs(args.jobs), args.repeat, &kept);
    }
    if let Some(first) = args.worker {
        let base_images = base_images::load(&work_dir, &args.bases)?;
        let step = crate::jobs(args.jobs) as u64;
        return worker::work(
            &base_images,
            &Range { seed, first, end: images, step, commands },
            &kept,
        );
    }
    std::fs::create_dir_all(&work_dir)?;
    base_images::build(&work_dir)?;
    let base_images = base_images::load(&work_dir, &args.bases)?;
    if args.linux {
        return linux::campaign(&base_images, seed, images, &work_dir, &kept);
    }
    if let Some(case) = args.repeat {
        let (what, image, ..) = worker::make(&base_images, seed, case);
        worker::keep_image(&kept, case, &image);
        println!("{what}: {}", kept.join(format!("{case}.erofs")).display());
        let range = Range { seed, first: case, end: case + 1, step: 1, commands: 1 };
        return worker::work(&base_images, &range, &kept);
    }
    campaign(args, &kept)
}

/// Runs the worker processes. Restarts a process that hung, with the next image.
fn campaign(args: &HostileArgs, kept: &Path) -> Result<()> {
    let start = Instant::now();
    let HostileArgs { images, seed, .. } = *args;
    let jobs = crate::jobs(args.jobs) as u64;
    println!("{images} images of seed {seed} in {jobs} processes");
    let totals: Vec<Result<Total>> = thread::scope(|scope| {
        let process = |first| scope.spawn(move || process(args, jobs, first));
        let running: Vec<_> = (0..jobs).map(process).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|total| total.unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let mut sum = Total::default();
    for total in totals {
        sum.merge(total?);
    }
    sum.print();
    println!("{:.0} images a second", images as f64 / start.elapsed().as_secs_f64());
    match sum.failures {
        0 => Ok(()),
        n => bail!("{n} failures; their images are in {}", kept.display()),
    }
}

fn process(args: &HostileArgs, jobs: u64, first: u64) -> Result<Total> {
    let (mut total, mut next) = (Total::default(), first);
    while next < args.images {
        let program = env::current_exe()?;
        let numbers = [
            ("--worker", next),
            ("--images", args.images),
            ("--seed", args.seed),
            ("--jobs", jobs),
            ("--commands", args.commands),
        ];
        let mut command = Command::new(program);
        command.arg("hostile");
        for (name, value) in numbers {
            command.args([name, &value.to_string()]);
        }
        if !args.bases.is_empty() {
            command.args(["--bases", &args.bases.join(",")]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the process has no output")?;
        let mut reached = next;
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            match line.strip_prefix("at ").and_then(|at| at.parse().ok()) {
                Some(at) => reached = at,
                None => total.add(&line),
            }
        }
        let status = child.wait()?;
        match status.code() {
            Some(0) => break,
            Some(HANG) => {}
            _ => {
                println!("failure {reached}: the process ended with {status}");
                total.failures += 1;
            }
        }
        next = reached + jobs;
    }
    Ok(total)
}

/// The counts of all worker processes.
#[derive(Default)]
struct Total {
    counts: BTreeMap<String, u64>,
    rules: BTreeMap<String, u64>,
    most: BTreeMap<String, u64>,
    failures: u64,
}

impl Total {
    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["count", name, count] => {
                *self.counts.entry(name.to_owned()).or_default() += number(count)
            }
            ["rule", count, rule] => {
                *self.rules.entry(rule.to_owned()).or_default() += number(count)
            }
            ["most", name, value] => {
                let most = self.most.entry(name.to_owned()).or_default();
                *most = number(value).max(*most);
            }
            _ => {
                self.failures += u64::from(words[0] == "failure");
                println!("{line}");
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.failures += other.failures;
        other
            .counts
            .into_iter()
            .for_each(|(name, count)| *self.counts.entry(name).or_default() += count);
        other
            .rules
            .into_iter()
            .for_each(|(name, count)| *self.rules.entry(name).or_default() += count);
        for (name, value) in other.most {
            let most = self.most.entry(name).or_default();
            *most = value.max(*most);
        }
    }

    fn print(&self) {
        for (rule, count) in &self.rules {
            println!("{count:8}  {rule}");
        }
        for (name, count) in self.counts.iter().chain(&self.most) {
            println!("{name}: {count}");
        }
        println!("{} kinds of findings, {} failures", self.rules.len(), self.failures);
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}
