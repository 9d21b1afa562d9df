//! `cargo xtask bench estimate [--rounds N] [--only PRESET]... TREE...`: what `ferofs build --estimate` says about each preset, compared with the
//! images. Estimates and builds take turns, so that a slow machine slows down both; the figures are medians. CPU seconds are those of all threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_tests::{Outcome, Run};
use serde::Deserialize;

use crate::common::rounds::Spread;

/// A command that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What `--estimate --json` prints.
#[derive(Deserialize)]
struct Estimates {
    files: u64,
    bytes_in: u64,
    estimates: Vec<Estimate>,
}

#[derive(Deserialize)]
struct Estimate {
    name: String,
    bytes_out: u64,
    seconds: f64,
    processor_seconds: f64,
}

/// The figures of one preset, of all rounds.
#[derive(Default)]
struct Row {
    estimated_bytes: u64,
    bytes: u64,
    estimated_seconds: Vec<f64>,
    seconds: Vec<f64>,
    estimated_processor: Vec<f64>,
    processor: Vec<f64>,
}

pub(crate) fn estimate(options: &[&str]) -> Result<()> {
    let (mut rounds, mut only, mut trees) = (3, Vec::new(), Vec::new());
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut value = || options.next().with_context(|| format!("{option} needs a value"));
        match *option {
            "--rounds" => rounds = value()?.parse().context("--rounds")?,
            "--only" => only.push(*value()?),
            tree if !tree.starts_with('-') => trees.push(PathBuf::from(tree)),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    if trees.is_empty() || rounds == 0 {
        bail!("a tree and at least one round are needed");
    }
    let ferofs = shell::build_ferofs("release")?;
    // In memory: an estimate does not include waiting for a disk.
    let images = tempfile::tempdir_in("/dev/shm")?;
    for tree in trees {
        compare(&ferofs, &tree, &images.path().join("image"), rounds, &only)
            .with_context(|| tree.display().to_string())?;
    }
    Ok(())
}

fn compare(ferofs: &Path, tree: &Path, image: &Path, rounds: usize, only: &[&str]) -> Result<()> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let (mut cost, mut files, mut bytes_in) = (Vec::new(), 0, 0);
    for _ in 0..rounds {
        let outcome = run(ferofs, &["--estimate", "--json", "--quiet"], &[tree])?;
        cost.push(outcome.wall.as_secs_f64());
        let all: Estimates = serde_json::from_slice(&outcome.stdout)?;
        (files, bytes_in) = (all.files, all.bytes_in);
        let wanted = all.estimates.iter().filter(|one| only.is_empty() || only.contains(&one.name.as_str()));
        for one in wanted {
            let outcome = run(ferofs, &["--quiet", "--preset", &one.name], &[tree, image])?;
            let row = rows.entry(one.name.clone()).or_default();
            row.estimated_bytes = one.bytes_out;
            row.estimated_seconds.push(one.seconds);
            row.bytes = fs::metadata(image)?.len();
            row.seconds.push(outcome.wall.as_secs_f64());
            row.estimated_processor.push(one.processor_seconds);
            row.processor.push(outcome.cpu.as_secs_f64());
            fs::remove_file(image)?;
        }
    }
    println!("\n{}: {files} files, {:.1} MB\n", tree.display(), bytes_in as f64 / 1e6);
    println!(
        "| preset | MB estimated | MB | error | s estimated | s | error | CPU s estimated | CPU s | error |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    let mut all_builds = 0.0;
    for (name, row) in &rows {
        let (estimated, seconds) = (median(&row.estimated_seconds)?, median(&row.seconds)?);
        let (estimated_processor, processor) = (median(&row.estimated_processor)?, median(&row.processor)?);
        all_builds += seconds;
        println!(
            "| {name} | {:.2} | {:.2} | {:+.1} % | {estimated:.2} | {seconds:.2} | {:+.0} % | {estimated_processor:.2} | {processor:.2} | {:+.0} % |",
            row.estimated_bytes as f64 / 1e6,
            row.bytes as f64 / 1e6,
            (row.estimated_bytes as f64 / row.bytes as f64 - 1.0) * 100.0,
            (estimated / seconds - 1.0) * 100.0,
            (estimated_processor / processor - 1.0) * 100.0,
        );
    }
    let cost = median(&cost)?;
    println!(
        "\nThe estimate of all presets took {cost:.2} s; these builds took {all_builds:.2} s ({:.1} %).",
        cost / all_builds * 100.0
    );
    Ok(())
}

fn run(ferofs: &Path, options: &[&str], paths: &[&Path]) -> Result<Outcome> {
    let run = Run::limited(ferofs, None, TIMEOUT).arg("build").args(options).args(paths);
    let outcome = run.try_run()?;
    if outcome.code != 0 {
        bail!("exit code {}: {}", outcome.code, outcome.stderr);
    }
    Ok(outcome)
}

fn median(values: &[f64]) -> Result<f64> {
    Ok(Spread::of(values.iter().copied()).context("no rounds")?.median)
}
