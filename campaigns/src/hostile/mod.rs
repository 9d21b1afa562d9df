//! Runs every operation of the library, every command and the daemon on hostile images: valid images with changed fields, and generated
//! images that were never valid. The limits for each image: no panic, 10 s of CPU time plus 1 s per MB of the image, and 128 MB of memory
//! plus the size of the image.

mod base_images;
mod commands;
mod content;
mod fields;
mod generate;
mod linux;
mod memory;
mod mutate;
mod operations;
pub(crate) mod test_image;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, thread};

use anyhow::{Context, Result, bail};
use ferofs_tests::scratch;

use worker::{HANG, Range};

const HELP: &str = "\
cargo xtask fuzz hostile [--images N] [--seed S] [--jobs N] [--commands N] [--repeat CASE]
cargo xtask fuzz hostile --linux [--images N] [--seed S] | --linux-files DIR

  --images N     test N images (20,000)
  --seed S       the images of seed S (1)
  --jobs N       processes (one for each processor)
  --commands N   every Nth image goes through the commands and a FUSE mount, too (500; 0: none)
  --repeat CASE  test image number CASE of the seed alone, with all commands, and keep it
  --linux        let Linux read the images in virtual machines, and compare with check --deep and our reader
  --linux-files  the same with the images in a directory

Images that fail are kept in target/hostile/kept.";

struct Options {
    images: u64,
    seed: u64,
    jobs: u64,
    commands: u64,
    repeat: Option<u64>,
    /// The number of the first image; only set in worker processes.
    worker: Option<u64>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let jobs = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let mut options = Self { images: 20_000, seed: 1, jobs, commands: 500, repeat: None, worker: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a number\n\n{HELP}"))?;
            let value: u64 = value.parse().with_context(|| format!("{word} {value}"))?;
            match *word {
                "--images" => options.images = value,
                "--seed" => options.seed = value,
                "--jobs" => options.jobs = value.max(1),
                "--commands" => options.commands = value,
                "--repeat" => options.repeat = Some(value),
                "--worker" => options.worker = Some(value),
                _ => bail!("no option {word}\n\n{HELP}"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<()> {
    if words.contains(&"--help") {
        println!("{HELP}");
        return Ok(());
    }
    let work_dir = scratch::target_dir().join("hostile");
    let kept = work_dir.join("kept");
    if let ["--linux-files", dir] = words {
        return linux::files(Path::new(dir), &work_dir, &kept);
    }
    let (in_linux, words) = match words {
        ["--linux", rest @ ..] => (true, rest),
        words => (false, words),
    };
    let options = Options::parse(words)?;
    if let Some(first) = options.worker {
        let base_images = base_images::load(&work_dir)?;
        let Options { seed, jobs, commands, images, .. } = options;
        return worker::work(&base_images, &Range { seed, first, end: images, step: jobs, commands }, &kept);
    }
    std::fs::create_dir_all(&work_dir)?;
    base_images::build(&work_dir)?;
    if in_linux {
        let bases = base_images::load(&work_dir)?;
        return linux::campaign(&bases, options.seed, options.images, &work_dir, &kept);
    }
    if let Some(case) = options.repeat {
        let base_images = base_images::load(&work_dir)?;
        let (what, image, ..) = worker::make(&base_images, options.seed, case);
        worker::keep_image(&kept, case, &image);
        println!("{what}: {}", kept.join(format!("{case}.erofs")).display());
        let range = Range { seed: options.seed, first: case, end: case + 1, step: 1, commands: 1 };
        return worker::work(&base_images, &range, &kept);
    }
    campaign(&options, &kept)
}

/// Runs the worker processes. Restarts a process that hung, with the next image.
fn campaign(options: &Options, kept: &Path) -> Result<()> {
    let start = Instant::now();
    let Options { images, seed, jobs, .. } = *options;
    println!("{images} images of seed {seed} in {jobs} processes");
    let totals: Vec<Result<Total>> = thread::scope(|scope| {
        let process = |first| scope.spawn(move || process(options, first));
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

fn process(options: &Options, first: u64) -> Result<Total> {
    let (mut total, mut next) = (Total::default(), first);
    while next < options.images {
        let program = env::current_exe()?;
        let numbers = [
            ("--worker", next),
            ("--images", options.images),
            ("--seed", options.seed),
            ("--jobs", options.jobs),
            ("--commands", options.commands),
        ];
        let mut command = Command::new(program);
        command.arg("hostile");
        for (name, value) in numbers {
            command.args([name, &value.to_string()]);
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
        next = reached + options.jobs;
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
            ["count", name, count] => *self.counts.entry(name.to_owned()).or_default() += number(count),
            ["rule", count, rule] => *self.rules.entry(rule.to_owned()).or_default() += number(count),
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
        other.counts.into_iter().for_each(|(name, count)| *self.counts.entry(name).or_default() += count);
        other.rules.into_iter().for_each(|(name, count)| *self.rules.entry(name).or_default() += count);
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
