//! `cargo xtask bench scale`: how time and memory grow with the number of names, cold sources, images onto disks, the smallest image, and the index of
//! equal extents. docs/results/scale.md has the figures.

mod cold;
mod dedupe;
mod names;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, FIO, MOUNT};
use ferofs_devtools::{shell, units};
use ferofs_tests::{need, scratch};

use crate::common::report::{Report, Wanted};
use crate::common::rounds::run_quietly;

/// What all parts share.
struct Bench {
    options: Options,
    ferofs: PathBuf,
    peers: PathBuf,
    /// Where trees of small files are: in memory.
    trees: PathBuf,
    /// Where images are: in memory.
    images: PathBuf,
    /// A directory on a disk.
    disk: PathBuf,
    report: Report,
}

type Measure = fn(&mut Bench) -> Result<()>;

/// The parts, by the names that `--only` selects.
const PARTS: [(&str, Measure); 5] = [
    ("names", names::names),
    ("cold", cold::cold),
    ("output", cold::output),
    ("tiny", tiny),
    ("dedupe", dedupe::dedupe),
];

pub(crate) fn scale(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    if !need::is_root() {
        bail!("dropping caches and mounting need root");
    }
    install::install(&[FIO, MOUNT])?;
    let memory = options.dir.join("ferofs-scale");
    let disk = scratch::target_dir().join("bench-scale");
    let (trees, images) = (memory.join("trees"), memory.join("images"));
    for dir in [&trees, &images, &disk] {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let (ferofs, peers) = (shell::build_ferofs("release")?, names::peers()?);
    let report = Report::new("scale");
    let mut bench = Bench { options, ferofs, peers, trees, images, disk, report };
    for (name, measure) in PARTS {
        if bench.options.has_part(name) {
            measure(&mut bench).with_context(|| name.to_owned())?;
        }
    }
    bench.report.print_aims();
    if bench.options.publish {
        bench.report.publish(&shell::repository().join("docs/results/scale.md"), bench.options.rounds)?;
    }
    fs::remove_dir_all(memory)?;
    Ok(())
}

/// The size of an image of one small file.
fn tiny(bench: &mut Bench) -> Result<()> {
    let (source, image) = (bench.images.join("one"), bench.images.join("tiny"));
    fs::create_dir_all(&source)?;
    fs::write(source.join("file"), "Hello\n")?;
    let mut build = Command::new(&bench.ferofs);
    run_quietly(build.args(["build", "--quiet"]).args([&source, &image]))?;
    let size = fs::metadata(&image)?.len();
    bench.report.aim("image of one small file", size as f64, Wanted::AtMost(4096.0), " bytes");
    Ok(())
}

struct Options {
    /// The most names of a tree.
    names: usize,
    rounds: usize,
    only: Vec<String>,
    publish: bool,
    /// Whether each tree is removed after its measurements.
    removes: bool,
    /// Where trees and images are: a file system in memory.
    dir: PathBuf,
    dedupe_bytes: u64,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self {
            names: 1_000_000,
            rounds: 3,
            only: Vec::new(),
            publish: false,
            removes: false,
            dir: "/dev/shm".into(),
            dedupe_bytes: 100_000_000_000,
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--names" => parsed.names = value()?.parse().context("--names")?,
                "--rounds" => parsed.rounds = value()?.parse().context("--rounds")?,
                "--only" => parsed.only.push((*value()?).to_owned()),
                "--dir" => parsed.dir = Path::new(value()?).to_owned(),
                "--dedupe-gb" => {
                    parsed.dedupe_bytes = 1_000_000_000 * value()?.parse::<u64>().context("--dedupe-gb")?
                }
                "--publish" => parsed.publish = true,
                unknown => bail!("unknown option {unknown}"),
            }
        }
        if let Some(part) = parsed.only.iter().find(|part| PARTS.iter().all(|(name, _)| name != part)) {
            bail!("--only: no such part: {part}; the parts are {}", PARTS.map(|(name, _)| name).join(", "));
        }
        if parsed.publish && !parsed.only.is_empty() {
            bail!("--publish needs all parts: it cannot be combined with --only");
        }
        if parsed.rounds == 0 || parsed.names < 10_000 {
            bail!("--rounds needs at least 1, and --names at least 10,000");
        }
        if parsed.dedupe_bytes < 1_000_000_000 {
            bail!("--dedupe-gb needs at least 1, not {}", units::size(parsed.dedupe_bytes));
        }
        parsed.removes = parsed.names > 1_000_000;
        Ok(parsed)
    }

    fn has_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| part == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_exclude_each_other() {
        assert!(Options::parse(&["--only", "tiny", "--rounds", "2"]).unwrap().has_part("tiny"));
        assert!(!Options::parse(&["--only", "tiny"]).unwrap().has_part("names"));
        for wrong in [
            &["--only", "x"][..],
            &["--only"],
            &["--rounds", "0"],
            &["--publish", "--only", "tiny"],
            &["--x"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
