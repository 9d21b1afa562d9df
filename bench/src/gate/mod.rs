//! `cargo xtask bench gate`: fails if a job of ferofs does not cost what was accepted, so that no
//! change makes something slower without anybody noticing.
//!
//! Seconds depend on the machine and on its load; the gate counts what does not: instructions,
//! cache misses, system calls, requests of FUSE mounts, bytes of output, and the peak of the
//! memory. The trees are generated ([`trees`]), the jobs are in [`cells`], and the accepted values
//! in bench/gate.tsv ([`accepted`]). Two cells run at a time, each on a processor of its own: a
//! command that sees one processor starts one worker.

pub(crate) mod accepted;
mod cells;
mod measure;
mod trees;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::{install, shell};
use ferofs_tests::{need, scratch};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::accepted::{AcceptedFile, Figures, MEMORY, METRICS, Metric, Verdict};
use self::cells::Cell;
use self::measure::Place;
use crate::common::options::rounds;
use crate::common::{machine, programs, report};

/// Cells that run at the same time.
const PLACES: usize = 2;

/// How often a cell that is not as accepted is measured again.
const LOOKS: usize = 3;

#[derive(Args)]
pub(crate) struct GateArgs {
    /// Write what was measured to bench/gate.tsv, with the reason
    #[arg(long, value_name = "WHY", value_parser = reason)]
    accept: Option<String>,
    /// Only cells whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Measure each cell N times, and print how much its values differ
    #[arg(long, value_name = "N", default_value = "1", value_parser = rounds())]
    rounds: usize,
}

fn reason(why: &str) -> Result<String, &'static str> {
    match why.trim().is_empty() || why.contains(['\t', '\n']) {
        true => Err("it needs a reason, in one line"),
        false => Ok(why.to_owned()),
    }
}

/// Measures all cells, and compares them with the accepted values, or accepts them.
pub(crate) fn gate(options: &GateArgs) -> Result<()> {
    let start = Instant::now();
    install::install(&measure::TOOLS)?;
    if !measure::is_allowed() {
        need::lacks("strace and setarch -R, which containers often forbid");
        return Ok(());
    }
    let program = std::env::var_os("FEROFS_BIN")
        .context("FEROFS_BIN is not set; `cargo xtask bench gate` sets it")?;
    let page = shell::repository().join("bench/gate.tsv");
    let mut accepted = match fs::read_to_string(&page) {
        Ok(text) => AcceptedFile::parse(&text).with_context(|| page.display().to_string())?,
        Err(_) => AcceptedFile::default(),
    };
    let machine = describe_machine()?;
    if options.accept.is_some() && !options.only.is_empty() && machine != accepted.machine {
        bail!(
            "{} names another machine or compiler: accept all cells together, without --only",
            page.display()
        );
    }
    let scratch = scratch::scratch_in_memory();
    prepare(scratch.path(), program.as_ref())?;
    let mut cells = cells::all(scratch.path())?;
    let names: Vec<String> =
        cells.iter().map(|cell| cell.name.clone()).chain([cells::start().name]).collect();
    let can_mount = need::fuse();
    cells.retain(|cell| cell.name.contains(&options.only) && (can_mount || !cell.is_mount()));
    let at_rest =
        Place { dir: scratch.path(), number: 0, start_memory: 0 }.measure(&cells::start())?;
    let measure = |cells: &[Cell]| -> Result<BTreeMap<String, Figures>> {
        let mut measured = measure_all(scratch.path(), cells, at_rest[MEMORY].unwrap_or_default())?;
        measured.insert(cells::start().name, at_rest);
        Ok(measured)
    };
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        rounds.push(measure(&cells)?);
    }
    print_spread(&rounds);
    let mut measured = smallest(&rounds);
    // Another program may have disturbed a cell, or its threads have taken turns in an unusual way;
    // further looks tell, also before a value is accepted.
    for _ in 0..LOOKS {
        cells.retain(|cell| fails(&accepted, &machine, &cell.name, &measured[&cell.name]));
        if cells.is_empty() {
            break;
        }
        measured = smallest(&[measured, measure(&cells)?]);
    }
    let seconds = start.elapsed().as_secs_f64();
    if let Some(why) = &options.accept {
        accepted.accept(&machine, &measured, why);
        accepted.cells.retain(|name, _| names.contains(name));
        fs::write(&page, accepted.text())?;
        println!("{} cells in {seconds:.0} s: {}", measured.len(), page.display());
        return Ok(());
    }
    let failures = print_comparison(&accepted, &machine, &measured);
    let gone = accepted.cells.keys().filter(|name| !names.contains(name)).count();
    println!(
        "gate: {} cells in {seconds:.0} s, {failures} not as accepted, {gone} no longer measured",
        measured.len()
    );
    if failures + gone > 0 {
        bail!(
            "the costs are not the accepted ones; `cargo xtask bench gate --accept \"WHY\"` accepts them"
        );
    }
    Ok(())
}

/// Makes the program, the trees and the images in `dir`.
fn prepare(dir: &Path, program: &Path) -> Result<()> {
    trees::make(&dir.join("trees"))?;
    fs::create_dir(dir.join("images"))?;
    for number in 0..PLACES {
        fs::create_dir(dir.join(format!("place{number}")))?;
    }
    // Without debug information, which valgrind would read for each cell.
    shell::run(Command::new("strip").arg("-o").arg(dir.join("ferofs")).arg(program))?;
    for arguments in cells::preparations() {
        programs::run(Command::new("./ferofs").args(arguments).current_dir(dir))?;
    }
    Ok(())
}

/// Measures all cells; each place takes the next one when it has finished its last.
fn measure_all(dir: &Path, cells: &[Cell], start_memory: u64) -> Result<BTreeMap<String, Figures>> {
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let next = AtomicUsize::new(0);
    let work = |number: usize| -> Result<Vec<(String, Figures)>> {
        let mut own = CpuSet::new();
        own.set(processors[number % processors.len()]);
        sched_setaffinity(None, &own)?;
        // How many requests a daemon gets depends on its priority. A user who has lowered his
        // cannot raise it again.
        let _ = rustix::process::setpriority_process(None, 0);
        let place = Place { dir, number, start_memory };
        let mut measured = Vec::new();
        while let Some(cell) = cells.get(next.fetch_add(1, Relaxed)) {
            measured
                .push((cell.name.clone(), place.measure(cell).with_context(|| cell.name.clone())?));
        }
        Ok(measured)
    };
    let mut measured = BTreeMap::new();
    thread::scope(|scope| {
        let places: Vec<_> = (0..PLACES).map(|number| scope.spawn(move || work(number))).collect();
        for place in places {
            measured.extend(place.join().unwrap_or_else(|_| bail!("a place panicked"))?);
        }
        Ok(measured)
    })
}

/// The smallest value of each figure: other work of the machine only adds to it.
fn smallest(rounds: &[BTreeMap<String, Figures>]) -> BTreeMap<String, Figures> {
    let mut smallest: BTreeMap<String, Figures> = BTreeMap::new();
    for (name, figures) in rounds.iter().flatten() {
        let known = smallest.entry(name.clone()).or_insert(*figures);
        for (known, new) in known.iter_mut().zip(figures) {
            *known = (*known).into_iter().chain(*new).min();
        }
    }
    smallest
}

/// Prints how much the values of several rounds differ, those that differ most first.
fn print_spread(rounds: &[BTreeMap<String, Figures>]) {
    if rounds.len() < 2 {
        return;
    }
    let smallest = smallest(rounds);
    let mut lines = Vec::new();
    for (name, figures) in &smallest {
        for (number, metric) in METRICS.iter().enumerate() {
            let largest = rounds.iter().filter_map(|round| round.get(name)?[number]).max();
            if let (Some(largest), Some(smallest)) = (largest, figures[number]) {
                let percent = (largest as f64 / smallest as f64 - 1.0) * 100.0;
                lines.push((percent, format!("{name}: {}: {smallest} to {largest}", metric.name)));
            }
        }
    }
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (percent, line) in lines.iter().filter(|(percent, _)| *percent > 0.0) {
        println!("{percent:6.2} %  {line}");
    }
}

/// Prints each value that is not as accepted, and returns the number of cells that fail.
fn print_comparison(
    accepted: &AcceptedFile,
    machine: &str,
    measured: &BTreeMap<String, Figures>,
) -> usize {
    let is_comparable = machine == accepted.machine;
    if !is_comparable {
        println!(
            "instructions, misses and memory are not compared: this is {machine}; accepted with {}",
            accepted.machine
        );
    }
    for (name, figures) in measured {
        let Some(line) = accepted.cells.get(name) else {
            println!("WORSE   {name}: no accepted values");
            continue;
        };
        let verdicts = accepted.compare(name, machine, figures);
        for (number, metric) in METRICS.iter().enumerate() {
            let (old, new) = (line.figures[number], figures[number]);
            let word = match verdicts[number] {
                Some(Verdict::Worse) => "WORSE",
                Some(Verdict::Better) if is_comparable && metric.is_steady() => "BETTER",
                Some(Verdict::Better) => "better",
                None if !is_comparable && metric.differs(name, old, new) => "told",
                _ => continue,
            };
            let [shown_old, shown_new] = [old, new]
                .map(|value| value.map_or("none".into(), |value| report::number(value as f64)));
            let ratio = new.unwrap_or(0) as f64 / old.unwrap_or(0) as f64;
            println!(
                "{word:<8}{name}: {}: accepted {shown_old}, measured {shown_new}: {ratio:.3}",
                metric.name
            );
        }
    }
    measured.iter().filter(|(name, figures)| fails(accepted, machine, name, figures)).count()
}

/// Whether a cell fails the gate: it is new or worse, or better, because a later change could make
/// it worse again unseen. On other machines some values are always better.
fn fails(accepted: &AcceptedFile, machine: &str, name: &str, figures: &Figures) -> bool {
    let fails = |(verdict, metric): (Option<Verdict>, &Metric)| match verdict {
        Some(Verdict::Worse) => true,
        Some(Verdict::Better) => machine == accepted.machine && metric.is_steady(),
        Some(Verdict::Same) | None => false,
    };
    let verdicts = accepted.compare(name, machine, figures);
    !accepted.cells.contains_key(name) || verdicts.into_iter().zip(&METRICS).any(fails)
}

/// What instructions, misses and memory depend on besides the program's source.
fn describe_machine() -> Result<String> {
    let programs = [
        ("rustc", Path::new("rustc"), "--version"),
        ("cc", Path::new("cc"), "--version"),
        ("libc", Path::new("ldd"), "--version"),
        ("valgrind", Path::new("valgrind"), "--version"),
    ];
    let facts = machine::versions(&programs)?;
    let versions: Vec<&str> =
        programs.iter().filter_map(|(name, ..)| facts.get(*name)).map(String::as_str).collect();
    if let Some(line) =
        versions.iter().find(|line| !line.contains(|char: char| char.is_ascii_digit()))
    {
        bail!("no version of a program that the instructions depend on: {line}");
    }
    Ok(format!(
        "{}; {} {}",
        versions.join("; "),
        std::env::consts::ARCH,
        processor_features().join(" ")
    ))
}

/// Processor features on which the code that libraries choose depends. Valgrind hides newer ones.
#[cfg(target_arch = "x86_64")]
fn processor_features() -> Vec<&'static str> {
    let known = [
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("rdrand", std::is_x86_feature_detected!("rdrand")),
    ];
    known.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn processor_features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rounds_the_smallest_value_of_each_figure_counts() {
        let round = |a, b| {
            BTreeMap::from([("cell".to_owned(), [Some(a), Some(b), None, None, None, Some(1)])])
        };
        let smallest = smallest(&[round(5, 7), round(6, 3)]);
        assert_eq!(smallest["cell"], [Some(5), Some(3), None, None, None, Some(1)]);
    }

    #[test]
    fn values_that_differ_from_the_accepted_ones_fail() {
        let mut accepted = AcceptedFile::default();
        let figures = |calls| [None, None, None, None, None, Some(calls)];
        accepted.accept("rustc 1", &BTreeMap::from([("cell".into(), figures(10_000))]), "x");
        let fails = |machine, calls| fails(&accepted, machine, "cell", &figures(calls));
        assert_eq!(
            [9_799, 9_800, 10_200, 10_201].map(|calls| fails("rustc 1", calls)),
            [true, false, false, true]
        );
        assert_eq!([9_799, 10_201].map(|calls| fails("rustc 2", calls)), [false, true]);
        // Less memory can be that of another machine.
        let memory = |memory: u64| [None, None, Some(memory << 20), None, None, None];
        accepted.accept("rustc 1", &BTreeMap::from([("cell".into(), memory(100))]), "x");
        let fails = |mib| super::fails(&accepted, "rustc 1", "cell", &memory(mib));
        assert_eq!([90, 110].map(fails), [false, true]);
        assert!(!super::fails(&accepted, "rustc 2", "cell", &memory(110)));
    }
}
