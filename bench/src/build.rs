//! `cargo xtask bench build [DIR] [--into DIR] [--rounds N] [--contest NAME]...`: builds an image of a real tree with a warm page
//! cache, and compares ferofs with mksquashfs and mkfs.erofs at the same settings; or extracts images of the tree, and compares with
//! fsck.erofs and unsquashfs.
//!
//! Each round runs each tool once, so that slow changes of the machine's speed affect all of them alike. The output is the median
//! of the rounds with the fastest and the slowest round. `cargo xtask peers` installs the newest versions of the other tools.

use std::fs;
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::{Outcome, Run, need, scratch};

use crate::common::rounds::Spread;
use ferofs_devtools::install::{self, EROFS_UTILS, SQUASHFS};
use ferofs_devtools::{peers, shell, units};

/// A build that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Tools that do the same: each with its name in the table and its arguments, without source and image.
struct Comparison {
    name: &'static str,
    entries: &'static [(&'static str, Tool, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Ferofs,
    MkfsErofs,
    Mksquashfs,
    /// These extract an image that mkfs.erofs or mksquashfs has built.
    Extract,
    FsckErofs,
    Unsquashfs,
}

const COMPARISONS: [Comparison; 7] = [
    Comparison {
        name: "lz4",
        entries: &[
            ("ferofs", Tool::Ferofs, "--preset fast"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4"),
            ("mksquashfs 128K", Tool::Mksquashfs, "-comp lz4 -b 128K"),
        ],
    },
    Comparison {
        name: "lz4hc",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z lz4hc,12 -C 128K -E fragments"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4hc,12 -C131072 -Efragments"),
        ],
    },
    Comparison {
        name: "zstd",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z zstd,3 -C 128K -E fragments"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zzstd,3 -C131072 -Efragments"),
        ],
    },
    Comparison {
        name: "48bit",
        entries: &[
            ("ferofs", Tool::Ferofs, "-z zstd,3 -C 128K -E 48bit,fragments"),
            ("mksquashfs", Tool::Mksquashfs, "-comp zstd -Xcompression-level 3 -b 128K"),
        ],
    },
    Comparison {
        name: "dedupe",
        entries: &[
            ("ferofs, without", Tool::Ferofs, "--preset fast"),
            ("ferofs", Tool::Ferofs, "--preset fast -E dedupe"),
            ("mkfs.erofs", Tool::MkfsErofs, "--quiet -zlz4 -Ededupe"),
        ],
    },
    Comparison {
        name: "extract",
        entries: &[
            ("ferofs", Tool::Extract, "--quiet -zlz4"),
            ("fsck.erofs", Tool::FsckErofs, "--quiet -zlz4"),
            ("unsquashfs", Tool::Unsquashfs, "-comp lz4 -b 128K"),
        ],
    },
    Comparison {
        name: "extract-fragments",
        entries: &[
            ("ferofs", Tool::Extract, "--quiet -zlz4 -C1048576 -Eall-fragments"),
            ("fsck.erofs", Tool::FsckErofs, "--quiet -zlz4 -C1048576 -Eall-fragments"),
        ],
    },
];

impl Tool {
    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Ferofs | Self::Extract => shell::build_ferofs("release"),
            Self::MkfsErofs => tool("mkfs.erofs"),
            Self::Mksquashfs => tool("mksquashfs"),
            Self::FsckErofs => tool("fsck.erofs"),
            Self::Unsquashfs => tool("unsquashfs"),
        }
    }

    /// The tool that builds the image that this one extracts.
    fn builder(self) -> Option<Self> {
        match self {
            Self::Ferofs | Self::MkfsErofs | Self::Mksquashfs => None,
            Self::Extract | Self::FsckErofs => Some(Self::MkfsErofs),
            Self::Unsquashfs => Some(Self::Mksquashfs),
        }
    }

    /// Runs it: from a tree to an image, or from an image to a tree.
    fn run(self, program: &Path, arguments: &str, from: &Path, to: &Path) -> Result<Outcome> {
        let run = Run::limited(program, None, TIMEOUT);
        let arguments = arguments.split(' ');
        let run = match self {
            Self::Ferofs => run.arg("build").args(arguments).args([from, to]),
            Self::MkfsErofs => run.args(arguments).args([to, from]),
            Self::Mksquashfs => {
                let quiet = ["-noappend", "-no-progress", "-quiet"];
                run.args([from, to]).args(arguments).args(quiet)
            }
            Self::Extract => run.arg("extract").args([from, to]),
            Self::FsckErofs => {
                let option = format!("--extract={}", to.display());
                run.args([option.as_str(), "--preserve", "--xattrs"]).arg(from)
            }
            Self::Unsquashfs => run.args(["-quiet", "-no-progress", "-dest"]).args([to, from]),
        };
        let outcome = run.try_run()?;
        if outcome.code != 0 {
            bail!("{}: exit code {}: {}", program.display(), outcome.code, outcome.stderr);
        }
        Ok(outcome)
    }
}

pub(crate) fn build(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    install::install(&[SQUASHFS, EROFS_UTILS])?;
    for comparison in COMPARISONS.iter().filter(|comparison| options.comparisons.contains(&comparison.name)) {
        run(comparison, &options)?;
    }
    Ok(())
}

fn run(comparison: &Comparison, Options { dir, into, rounds, .. }: &Options) -> Result<()> {
    let rounds = *rounds;
    let dir_of_images = match into {
        Some(into) => tempfile::TempDir::new_in(into)?,
        None => scratch::scratch(),
    };
    let mut candidates = Vec::new();
    for (number, (name, tool, arguments)) in comparison.entries.iter().enumerate() {
        let result = dir_of_images.path().join(format!("{number}"));
        let program = tool.program()?;
        let source = match tool.builder() {
            None => dir.clone(),
            Some(builder) => {
                let image = dir_of_images.path().join(format!("{number}.image"));
                builder.run(&builder.program()?, arguments, dir, &image)?;
                image
            }
        };
        let outcomes = Vec::new();
        candidates.push(Candidate { name, tool: *tool, program, arguments, source, result, outcomes });
    }
    // Round 0 warms the page cache and does not count.
    for round in 0..=rounds {
        for candidate in &mut candidates {
            let outcome = candidate.run()?;
            eprintln!(
                "{}",
                shell::dim(&format!("round {round}: {} {:.2?}", candidate.name, outcome.wall), &stderr())
            );
            if round > 0 {
                candidate.outcomes.push(outcome);
            }
        }
    }
    println!(
        "{}: {}, warm cache, {rounds} rounds: median (fastest - slowest)",
        comparison.name,
        dir.display()
    );
    println!("{:<18}{:>26}{:>10}{:>14}{:>14}", "", "seconds", "CPU s", "peak memory", "image");
    candidates.iter().try_for_each(Candidate::print)
}

/// The newest installed version.
fn tool(name: &str) -> Result<PathBuf> {
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join(name));
    peer.or_else(|| need::find_tool(name)).with_context(|| format!("no {name}"))
}

struct Options {
    dir: PathBuf,
    /// Where the tools write the images. On a disk, only ferofs waits until the image is written back.
    into: Option<PathBuf>,
    rounds: usize,
    comparisons: Vec<&'static str>,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { dir: "/usr".into(), into: None, rounds: 3, comparisons: Vec::new() };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match *option {
                "--contest" => {
                    let name = options.next().context("--contest needs a name")?;
                    let found = COMPARISONS.iter().find(|comparison| comparison.name == *name);
                    let names = || COMPARISONS.map(|comparison| comparison.name).join(", ");
                    parsed.comparisons.push(found.with_context(|| format!("there are {}", names()))?.name);
                }
                "--into" => parsed.into = Some(options.next().context("--into needs a directory")?.into()),
                "--rounds" => {
                    parsed.rounds =
                        options.next().context("--rounds needs a number")?.parse().context("--rounds")?;
                    if parsed.rounds == 0 {
                        bail!("--rounds needs at min 1");
                    }
                }
                dir if !dir.starts_with('-') => parsed.dir = dir.into(),
                unknown => bail!("unknown option {unknown}"),
            }
        }
        if parsed.comparisons.is_empty() {
            parsed.comparisons.push("lz4");
        }
        Ok(parsed)
    }
}

struct Candidate {
    name: &'static str,
    tool: Tool,
    program: PathBuf,
    arguments: &'static str,
    source: PathBuf,
    /// An image, or the directory with what was extracted.
    result: PathBuf,
    outcomes: Vec<Outcome>,
}

impl Candidate {
    fn run(&self) -> Result<Outcome> {
        if self.result.is_dir() {
            fs::remove_dir_all(&self.result)?;
        } else if self.result.exists() {
            fs::remove_file(&self.result)?;
        }
        self.tool.run(&self.program, self.arguments, &self.source, &self.result).context(self.name)
    }

    fn print(&self) -> Result<()> {
        let spread =
            |value: fn(&Outcome) -> f64| Spread::of(self.outcomes.iter().map(value)).context("no rounds");
        let Spread { min, median, max } = spread(|outcome| outcome.wall.as_secs_f64())?;
        let wall = format!("{median:.2} ({min:.2} - {max:.2})");
        let cpu = spread(|outcome| outcome.cpu.as_secs_f64())?.median;
        let peak = units::size(spread(|outcome| outcome.peak as f64)?.max as u64);
        let image = if self.result.is_file() { &self.result } else { &self.source };
        let image = units::size(fs::metadata(image)?.len());
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
        assert_eq!((options.dir, options.rounds, options.comparisons), ("/opt".into(), 5, vec!["zstd"]));
        assert!(Options::parse(&["--rounds", "0"]).is_err());
        assert!(Options::parse(&["--unknown"]).is_err());
        assert!(Options::parse(&["--contest", "unknown"]).is_err());
    }
}
