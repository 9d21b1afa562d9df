//! `cargo xtask bench build [DIR] [--into DIR] [--rounds N] [--contest NAME]...`: building an image of a real tree with a warm cache,
//! against mksquashfs and mkfs.erofs at the same settings.
//!
//! The tools take turns, so that a change in the machine's mood meets all of them; the median of the rounds is given,
//! with the fastest and the slowest. The newest tools that are there are taken: see `cargo xtask peers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::{Outcome, Run, need, scratch};

use super::measure::Spread;
use crate::install::{self, EROFS_UTILS, SQUASHFS};
use crate::{peers, picture, shell};

/// A build that takes longer than this is not worth waiting for.
const LIMIT: Duration = Duration::from_secs(3600);

/// Tools that build the same, each with its name here and its arguments but for source and image.
struct Contest {
    name: &'static str,
    entries: &'static [(&'static str, Tool, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Ferofs,
    MkfsErofs,
    Mksquashfs,
}

const CONTESTS: [Contest; 5] = [
    Contest {
        name: "lz4",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z lz4"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4"),
            ("mksquashfs 128K", Tool::Mksquashfs, "-comp lz4 -b 128K"),
        ],
    },
    Contest {
        name: "lz4hc",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z lz4hc,12 -C 128K -E fragments"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4hc,12 -C131072 -Efragments"),
        ],
    },
    Contest {
        name: "zstd",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z zstd,3 -C 128K -E fragments"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zzstd,3 -C131072 -Efragments"),
        ],
    },
    Contest {
        name: "48bit",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z zstd,3 -C 128K -E 48bit,fragments"),
            ("mksquashfs", Tool::Mksquashfs, "-comp zstd -Xcompression-level 3 -b 128K"),
        ],
    },
    Contest {
        name: "dedupe",
        entries: &[
            ("ferofs, without", Tool::Ferofs, "-z lz4"),
            ("ferofs", Tool::Ferofs, "-z lz4 -E dedupe"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4 -Ededupe"),
        ],
    },
];

impl Tool {
    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Ferofs => shell::build_ferofs("release"),
            Self::MkfsErofs => tool("mkfs.erofs"),
            Self::Mksquashfs => tool("mksquashfs"),
        }
    }
}

pub(crate) fn build(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    install::install(&[SQUASHFS, EROFS_UTILS])?;
    for contest in CONTESTS.iter().filter(|contest| options.contests.contains(&contest.name)) {
        run(contest, &options)?;
    }
    Ok(())
}

fn run(contest: &Contest, Options { dir, into, rounds, .. }: &Options) -> Result<()> {
    let rounds = *rounds;
    let room = match into {
        Some(into) => tempfile::TempDir::new_in(into)?,
        None => scratch::scratch(),
    };
    let mut contestants = Vec::new();
    for (number, (name, tool, arguments)) in contest.entries.iter().enumerate() {
        let image = room.path().join(format!("{number}"));
        let program = tool.program()?;
        contestants.push(Contestant { name, tool: *tool, program, arguments, image, outcomes: Vec::new() });
    }
    // Round 0 warms the cache and is not counted.
    for round in 0..=rounds {
        for contestant in &mut contestants {
            let outcome = contestant.build(dir)?;
            eprintln!("{}", shell::dim(&format!("round {round}: {} {:.2?}", contestant.name, outcome.wall)));
            if round > 0 {
                contestant.outcomes.push(outcome);
            }
        }
    }
    println!("{}: {}, warm cache, {rounds} rounds: median (fastest - slowest)", contest.name, dir.display());
    println!("{:<18}{:>26}{:>10}{:>14}{:>14}", "", "seconds", "CPU s", "peak memory", "image");
    contestants.iter().try_for_each(Contestant::print)
}

/// The newest that is there.
fn tool(name: &str) -> Result<PathBuf> {
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join(name));
    peer.or_else(|| need::find_tool(name)).with_context(|| format!("no {name}"))
}

struct Options {
    dir: PathBuf,
    /// Where images go: on a disk, ferofs alone waits until they are there.
    into: Option<PathBuf>,
    rounds: usize,
    contests: Vec<&'static str>,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { dir: "/usr".into(), into: None, rounds: 3, contests: Vec::new() };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match *option {
                "--contest" => {
                    let name = options.next().context("--contest needs a name")?;
                    let found = CONTESTS.iter().find(|contest| contest.name == *name);
                    let names = || CONTESTS.map(|contest| contest.name).join(", ");
                    parsed.contests.push(found.with_context(|| format!("there are {}", names()))?.name);
                }
                "--into" => parsed.into = Some(options.next().context("--into needs a directory")?.into()),
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
        if parsed.contests.is_empty() {
            parsed.contests.push("lz4");
        }
        Ok(parsed)
    }
}

struct Contestant {
    name: &'static str,
    tool: Tool,
    program: PathBuf,
    arguments: &'static str,
    image: PathBuf,
    outcomes: Vec<Outcome>,
}

impl Contestant {
    fn build(&self, dir: &Path) -> Result<Outcome> {
        if self.image.exists() {
            fs::remove_file(&self.image)?;
        }
        let run = Run::limited(&self.program, None, LIMIT);
        let arguments = self.arguments.split(' ');
        let run = match self.tool {
            Tool::Ferofs => run.args(["build"]).args(arguments).args([dir, &self.image]),
            Tool::MkfsErofs => run.args(arguments).args([&self.image, dir]),
            Tool::Mksquashfs => {
                let quiet = ["-noappend", "-no-progress", "-quiet"];
                run.args([dir, &self.image]).args(arguments).args(quiet)
            }
        };
        let outcome = run.try_run()?;
        if outcome.code != 0 {
            bail!("{}: exit code {}: {}", self.name, outcome.code, outcome.stderr);
        }
        Ok(outcome)
    }

    fn print(&self) -> Result<()> {
        let spread =
            |value: fn(&Outcome) -> f64| Spread::of(self.outcomes.iter().map(value)).context("no rounds");
        let Spread { least, middle, most } = spread(|outcome| outcome.wall.as_secs_f64())?;
        let wall = format!("{middle:.2} ({least:.2} - {most:.2})");
        let cpu = spread(|outcome| outcome.cpu.as_secs_f64())?.middle;
        let peak = picture::size(spread(|outcome| outcome.peak as f64)?.most as u64);
        let image = picture::size(fs::metadata(&self.image)?.len());
        println!("{:<18}{wall:>26}{cpu:>10.2}{peak:>14}{image:>14}", self.name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_any_order() {
        let options = Options::parse(&["--rounds", "5", "/opt", "--contest", "zstd"]).unwrap();
        assert_eq!((options.dir, options.rounds, options.contests), ("/opt".into(), 5, vec!["zstd"]));
        assert!(Options::parse(&["--rounds", "0"]).is_err());
        assert!(Options::parse(&["--unknown"]).is_err());
        assert!(Options::parse(&["--contest", "unknown"]).is_err());
    }
}
