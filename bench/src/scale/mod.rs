//! `cargo xtask bench scale`: how time and memory grow with the number of names, cold sources, images onto disks, and the smallest image. docs/results/scale.md has the figures.

mod cold;
mod names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, FIO, MOUNT};
use ferofs_tests::{need, scratch};

use crate::common::options::Options;
use crate::common::programs::Programs;
use crate::common::report::{Report, Wanted};
use crate::common::rounds::run_quietly;

/// What all parts share.
struct Bench {
    options: Options,
    rounds: usize,
    /// The most names of a tree.
    names: usize,
    programs: Programs,
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
const PARTS: [(&str, Measure); 4] =
    [("names", names::names), ("cold", cold::cold), ("output", cold::output), ("tiny", tiny)];

pub(crate) fn scale(options: &[&str]) -> Result<()> {
    let mut names = 1_000_000;
    let takes = ["--rounds", "--names", "--dir"];
    let options = Options::parse(options, &PARTS.map(|(name, _)| name), &takes, |_, number| {
        names = number;
    })?;
    if names < 10_000 {
        bail!("--names needs at least 10,000");
    }
    if !need::is_root() {
        bail!("dropping caches and mounting need root");
    }
    install::install(&[FIO, MOUNT])?;
    let memory = options.dir.as_deref().unwrap_or(Path::new("/dev/shm")).join("ferofs-scale");
    let disk = scratch::target_dir().join("bench-scale");
    let (trees, images) = (memory.join("trees"), memory.join("images"));
    for dir in [&trees, &images, &disk] {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let programs = Programs::install()?;
    let report = Report::new("scale", &programs.versions())?;
    let mut bench = Bench {
        rounds: options.rounds.unwrap_or(3),
        names: usize::try_from(names)?,
        options,
        programs,
        trees,
        images,
        disk,
        report,
    };
    for (name, measure) in PARTS {
        if bench.options.has_part(name) {
            measure(&mut bench).with_context(|| name.to_owned())?;
        }
    }
    bench.report.print_aims();
    if bench.options.publish {
        bench.report.publish_aims(bench.rounds, "")?;
    }
    fs::remove_dir_all(memory)?;
    Ok(())
}

/// The size of an image of one small file.
fn tiny(bench: &mut Bench) -> Result<()> {
    let (source, image) = (bench.images.join("one"), bench.images.join("tiny"));
    fs::create_dir_all(&source)?;
    fs::write(source.join("file"), "Hello\n")?;
    let mut build = Command::new(&bench.programs.ferofs);
    run_quietly(build.args(["build", "--quiet"]).args([&source, &image]))?;
    let size = fs::metadata(&image)?.len();
    bench.report.aim("image of one small file", size as f64, Wanted::AtMost(4096.0), " bytes");
    Ok(())
}
