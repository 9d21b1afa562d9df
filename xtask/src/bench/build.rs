//! `cargo xtask bench build`: building an image of a real tree with a warm cache, against mksquashfs and mkfs.erofs.
//!
//! The tools take turns, so that a change in the machine's mood meets all of them; the median of the rounds is given,
//! with the fastest and the slowest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::{Outcome, Run, need, scratch};

use crate::install::{self, EROFS_UTILS, SQUASHFS};
use crate::{peers, picture, shell};

/// A build that takes longer than this is not worth waiting for.
const LIMIT: Duration = Duration::from_secs(3600);

pub(crate) fn build(options: &[&str]) -> Result<()> {
    let Options { dir, rounds, mkfs } = Options::parse(options)?;
    install::install(if mkfs { &[SQUASHFS, EROFS_UTILS] } else { &[SQUASHFS] })?;
    let room = scratch::scratch();
    let mut contestants = vec![
        Contestant::new("ferofs", shell::build_ferofs("release")?, room.path(), |program, dir, image| {
            Run::limited(program, None, LIMIT).args(["build", "--compress", "lz4"]).args([dir, image])
        }),
        Contestant::new("mksquashfs", tool("mksquashfs")?, room.path(), |program, dir, image| {
            let options = ["-comp", "lz4", "-b", "128K", "-noappend", "-no-progress", "-quiet"];
            Run::limited(program, None, LIMIT).args([dir, image]).args(options)
        }),
    ];
    if mkfs {
        contestants.push(Contestant::new(
            "mkfs.erofs",
            tool("mkfs.erofs")?,
            room.path(),
            |program, dir, image| {
                Run::limited(program, None, LIMIT).args(["--quiet", "-zlz4"]).args([image, dir])
            },
        ));
    }
    // Round 0 warms the cache and is not counted.
    for round in 0..=rounds {
        for contestant in &mut contestants {
            let outcome = contestant.build(&dir)?;
            eprintln!("{}", shell::dim(&format!("round {round}: {} {:.2?}", contestant.name, outcome.wall)));
            if round > 0 {
                contestant.outcomes.push(outcome);
            }
        }
    }
    println!("{}, warm cache, {rounds} rounds: median (fastest - slowest)", dir.display());
    println!("{:<12}{:>26}{:>10}{:>14}{:>14}", "", "seconds", "CPU s", "peak memory", "image");
    contestants.iter().try_for_each(Contestant::print)
}

/// The newest that is there.
fn tool(name: &str) -> Result<PathBuf> {
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join(name));
    peer.or_else(|| need::find_tool(name)).with_context(|| format!("no {name}"))
}

struct Options {
    dir: PathBuf,
    rounds: usize,
    mkfs: bool,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { dir: "/usr".into(), rounds: 3, mkfs: false };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match *option {
                "--mkfs" => parsed.mkfs = true,
                "--rounds" => {
                    parsed.rounds =
                        options.next().context("--rounds needs a number")?.parse().context("--rounds")?;
                    if parsed.rounds == 0 {
                        bail!("--rounds needs at least 1");
                    }
                }
                dir if !dir.starts_with('-') => parsed.dir = dir.into(),
                unknown => bail!("unknown option {unknown}"),
            }
        }
        Ok(parsed)
    }
}

/// The command line of one tool, given its program, the source and the image.
type CommandLine = fn(&Path, &Path, &Path) -> Run;

struct Contestant {
    name: &'static str,
    program: PathBuf,
    image: PathBuf,
    command: CommandLine,
    outcomes: Vec<Outcome>,
}

impl Contestant {
    fn new(name: &'static str, program: PathBuf, room: &Path, command: CommandLine) -> Self {
        Self { name, program, image: room.join(name), command, outcomes: Vec::new() }
    }

    fn build(&self, dir: &Path) -> Result<Outcome> {
        if self.image.exists() {
            fs::remove_file(&self.image)?;
        }
        let outcome = (self.command)(&self.program, dir, &self.image).try_run()?;
        if outcome.code != 0 {
            bail!("{}: exit code {}: {}", self.name, outcome.code, outcome.stderr);
        }
        Ok(outcome)
    }

    fn print(&self) -> Result<()> {
        let walls = sorted(self.outcomes.iter().map(|outcome| outcome.wall.as_secs_f64()));
        let cpus = sorted(self.outcomes.iter().map(|outcome| outcome.cpu.as_secs_f64()));
        let peaks = sorted(self.outcomes.iter().map(|outcome| outcome.peak as f64));
        let (Some(fastest), Some(slowest), Some(peak)) = (walls.first(), walls.last(), peaks.last()) else {
            bail!("no rounds");
        };
        let wall = format!("{:.2} ({fastest:.2} - {slowest:.2})", median(&walls));
        let image = picture::size(fs::metadata(&self.image)?.len());
        let peak = picture::size(*peak as u64);
        println!("{:<12}{wall:>26}{:>10.2}{peak:>14}{image:>14}", self.name, median(&cpus));
        Ok(())
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Of sorted values, at least one.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&sorted([3.0, 1.0, 2.0].into_iter())), 2.0);
        assert_eq!(median(&sorted([4.0, 1.0, 2.0, 3.0].into_iter())), 2.5);
    }

    #[test]
    fn options_come_in_any_order() {
        let options = Options::parse(&["--rounds", "5", "/opt", "--mkfs"]).unwrap();
        assert_eq!((options.dir, options.rounds, options.mkfs), ("/opt".into(), 5, true));
        assert!(Options::parse(&["--rounds", "0"]).is_err());
        assert!(Options::parse(&["--unknown"]).is_err());
    }
}
