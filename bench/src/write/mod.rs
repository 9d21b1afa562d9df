//! `cargo xtask bench build [--only CONTEST]... [--trees NAME]... [--rounds N] [--into DIR]
//! [--publish]`: time and size of builds and of extracting, compared with erofs-utils,
//! squashfs-tools and, where it is installed, DwarFS, over trees that users have. The programs of a
//! contest take turns. One table has all contests and trees, the worst cell first.

mod contests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::shell;
use ferofs_tests::Outcome;
use serde_json::Value;
use tempfile::TempDir;

use self::contests::{CONTESTS, Contest, ESTIMATE, Job, PRESETS, TREES_OF_PRESETS};
use crate::charts;
use crate::common::options::{SizeArgs, rounds};
use crate::common::programs::{Programs, TIMEOUT, Tool, succeed};
use crate::common::report::{Report, Table, number};
use crate::common::rounds::{Spread, rotated_order};
use crate::trees::{self, Tree};

/// The contests that compare ferofs with itself.
pub(crate) const WITH_ITSELF: [&str; 2] = [PRESETS, ESTIMATE];

/// Medians of one job on one tree.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
    memory: f64,
    /// Bytes of the image; 0 for what was extracted.
    size: f64,
}

/// A line of the table: ratios above 1 are bad for ferofs.
struct Row {
    contest: &'static str,
    tree: String,
    peer: String,
    ours: Cost,
    theirs: Cost,
    /// The lines are in the order of this, the largest first.
    badness: f64,
}

#[derive(Args)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    parts: SizeArgs,
    /// These trees instead of those of the contests
    #[arg(long, value_name = "NAME", conflicts_with = "publish")]
    trees: Vec<String>,
    /// Measure N times
    #[arg(long, value_name = "N", value_parser = rounds())]
    rounds: Option<usize>,
    /// Where the images go
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    into: PathBuf,
}

pub(crate) fn build(args: &BuildArgs) -> Result<()> {
    let mut contests: Vec<&str> = CONTESTS.iter().map(|contest| contest.name).collect();
    contests.extend(WITH_ITSELF);
    let BuildArgs { parts, trees: chosen, rounds, into } = args;
    parts.check(&contests)?;
    let programs = Programs::install()?;
    let report = Report::new("build", &programs.versions())?;
    let into = TempDir::new_in(into).with_context(|| into.display().to_string())?;
    let (mut rows, mut trees) = (Vec::new(), BTreeMap::new());
    let mut bench = |tree: &Tree| -> Result<Bench> {
        if !trees.contains_key(tree.name) {
            trees.insert(tree.name, tree.describe()?);
        }
        Ok(Bench { programs: &programs, tree: tree.get()?, into: into.path() })
    };
    for contest in CONTESTS.iter().filter(|contest| parts.has(contest.name)) {
        for tree in chosen_trees(chosen, contest.trees)? {
            rows.extend(bench(&tree)?.contest(contest, &tree, *rounds).context(contest.name)?);
        }
    }
    if parts.has(PRESETS) || parts.has(ESTIMATE) {
        for tree in chosen_trees(chosen, &TREES_OF_PRESETS)? {
            let all = bench(&tree)?.presets(&tree, rounds.unwrap_or(1)).context(PRESETS)?;
            rows.extend(all.into_iter().filter(|row| parts.has(row.contest)));
        }
    }
    rows.sort_by(|a, b| b.badness.total_cmp(&a.badness));
    let table = table(&rows, trees.values());
    report.add(&table);
    if parts.publish {
        report.publish("medians of 1 to 3 rounds, in which the programs that are compared took turns, with the trees and images in memory.", table, 2, 3)?;
    }
    Ok(())
}

/// What the jobs of one tree share.
struct Bench<'a> {
    programs: &'a Programs,
    tree: PathBuf,
    into: &'a Path,
}

impl Bench<'_> {
    fn contest(&self, contest: &Contest, tree: &Tree, rounds: Option<usize>) -> Result<Vec<Row>> {
        let peers = contest.peers.iter().filter(|job| job.is_possible());
        let jobs: Vec<Job> = std::iter::once(&contest.ours).chain(peers).copied().collect();
        let costs = self.take_turns(&jobs, rounds.unwrap_or(contest.rounds))?;
        let [ours, theirs @ ..] = &costs[..] else { bail!("no job") };
        let row = |(job, theirs): (&Job, &Cost)| {
            let (cpu, size) = (ours.cpu / theirs.cpu, ours.size / theirs.size);
            let is_build = matches!(job, Job::Build(..));
            Row {
                contest: contest.name,
                tree: tree.name.to_owned(),
                peer: job.name(),
                ours: *ours,
                theirs: *theirs,
                badness: if is_build { cpu.max(size) } else { cpu },
            }
        };
        Ok(jobs[1..].iter().zip(theirs).map(row).collect())
    }

    /// Compares each preset with the other one that comes closest to beating it in size and in
    /// time, and both with what `--estimate` says.
    fn presets(&self, tree: &Tree, rounds: usize) -> Result<Vec<Row>> {
        let jobs = charts::PRESETS.map(|(_, options)| Job::Build(Tool::Ferofs, options));
        let costs = self.take_turns(&jobs, rounds)?;
        let estimate = ferofs_tests::Run::limited(&self.programs.ferofs, None, TIMEOUT)
            .args(["build", "--estimate", "--json", "--quiet"])
            .arg(&self.tree);
        let said: Value =
            serde_json::from_slice(&succeed("ferofs build --estimate", estimate)?.stdout)?;
        let (mut rows, presets) = (Vec::new(), charts::PRESETS.iter().zip(&costs));
        let mut add = |contest, peer: String, ours, theirs, badness| {
            rows.push(Row { contest, tree: tree.name.to_owned(), peer, ours, theirs, badness });
        };
        for ((name, options), ours) in presets.clone() {
            let others = presets.clone().filter(|((other, _), _)| other != name);
            let beaten = |theirs: &Cost| (ours.cpu / theirs.cpu).min(ours.size / theirs.size);
            let nearest = others.max_by(|(_, a), (_, b)| beaten(a).total_cmp(&beaten(b)));
            let ((_, other), theirs) = nearest.context("one preset")?;
            add(PRESETS, format!("{options} / {other}"), *ours, *theirs, beaten(theirs));
            let mut estimates = said["estimates"].as_array().into_iter().flatten();
            let estimate = estimates.find(|estimate| estimate["name"] == *name);
            let number = |key: &str| {
                estimate.and_then(|estimate| estimate[key].as_f64()).context("no estimate")
            };
            let said = Cost {
                cpu: number("processor_seconds")?,
                wall: number("seconds")?,
                size: number("bytes_out")?,
                ..*ours
            };
            let wrong = (said.cpu / ours.cpu - 1.0).abs().max((said.size / ours.size - 1.0).abs());
            add(ESTIMATE, format!("{options}: estimated / built"), said, *ours, 1.0 + wrong);
        }
        Ok(rows)
    }

    /// Does the jobs in turns, and returns the medians.
    fn take_turns(&self, jobs: &[Job], rounds: usize) -> Result<Vec<Cost>> {
        let mut sources = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let image = self.into.join(format!("image{number}"));
            sources.push(match job {
                Job::Build(..) => self.tree.clone(),
                Job::Extract(_, tool, options) => {
                    self.programs.build(*tool, options, &self.tree, &image)?;
                    image
                }
            });
        }
        let mut runs: Vec<Vec<(Outcome, u64)>> = jobs.iter().map(|_| Vec::new()).collect();
        let to = self.into.join("output");
        for round in 0..rounds {
            for number in rotated_order(jobs.len(), round) {
                let outcome = jobs[number].run(self.programs, &sources[number], &to)?;
                let line = format!(
                    "{}: {}: {:.2?}",
                    self.tree.display(),
                    jobs[number].name(),
                    outcome.cpu
                );
                eprintln!("{}", shell::dim(&line, &std::io::stderr()));
                let size = if to.is_file() { fs::metadata(&to)?.len() } else { 0 };
                runs[number].push((outcome, size));
                if to.is_file() { fs::remove_file(&to)? } else { fs::remove_dir_all(&to)? }
            }
        }
        for source in sources.iter().filter(|source| source.is_file()) {
            fs::remove_file(source)?;
        }
        runs.iter().map(|runs| Cost::of(runs)).collect()
    }
}

impl Cost {
    fn of(runs: &[(Outcome, u64)]) -> Result<Self> {
        let median = |value: fn(&(Outcome, u64)) -> f64| {
            Ok::<_, anyhow::Error>(Spread::of(runs.iter().map(value)).context("no rounds")?.median)
        };
        Ok(Self {
            cpu: median(|(outcome, _)| outcome.cpu.as_secs_f64())?,
            wall: median(|(outcome, _)| outcome.wall.as_secs_f64())?,
            memory: median(|(outcome, _)| outcome.peak as f64)?,
            size: median(|(_, size)| *size as f64)?,
        })
    }
}

fn table<'a>(rows: &[Row], trees: impl Iterator<Item = &'a String>) -> Table {
    let cells = |row: &Row| {
        let Row { contest, tree, peer, ours, theirs, .. } = row;
        let ratio = |value: fn(&Cost) -> f64| match (value(ours), value(theirs)) {
            // The memory of a small process is not known, and an extracted tree has no size.
            (ours, theirs) if ours == 0.0 || theirs == 0.0 => "-".to_owned(),
            (ours, theirs) => format!("{:.2}", ours / theirs),
        };
        vec![
            (*contest).to_owned(),
            tree.clone(),
            format!("`{peer}`"),
            ratio(|cost| cost.cpu),
            ratio(|cost| cost.size),
            ratio(|cost| cost.wall),
            ratio(|cost| cost.memory),
            number(ours.cpu),
            number(ours.size / 1e6),
        ]
    };
    let trees: Vec<String> = trees.map(|tree| format!("- {tree}")).collect();
    Table {
        title: "Builds".into(),
        text: format!(
            "The first ratio is that of the processor seconds of all threads: ferofs divided by the other program, so below 1 is better for ferofs. \
             The others are those of the size of the image, of the time from start to end, and of the largest memory. The last columns are the \
             processor seconds and the image of ferofs. The worst line comes first. A preset is compared with the other preset that comes closest \
             to beating it in time and in size: it is beaten only if both ratios are above 1.\n\nThe trees:\n\n{}",
            trees.join("\n")
        ),
        head: vec![
            "contest",
            "tree",
            "compared with",
            "CPU",
            "size",
            "wall",
            "memory",
            "CPU s",
            "MB",
        ],
        rows: rows.iter().map(cells).collect(),
    }
}

/// The trees that `--trees` names, else those of the contest.
fn chosen_trees(chosen: &[String], usual: &[&str]) -> Result<Vec<Tree>> {
    let wanted: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let names = if wanted.is_empty() { usual } else { &wanted };
    names.iter().map(|name| trees::named(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contest_has_known_trees() {
        for Contest { name, trees, .. } in &CONTESTS {
            assert!(!chosen_trees(&[], trees).unwrap().is_empty(), "{name}");
            assert_eq!(chosen_trees(&["part".into()], trees).unwrap()[0].name, "part");
        }
    }
}
