//! `cargo xtask bench scale`: how time and memory grow with the number of names, cold sources,
//! images onto disks, more workers, and the smallest image. docs/results/scale.md has the figures.

mod names;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ferofs_devtools::install::{self, FIO, MOUNT};
use ferofs_tests::{need, scratch};

use crate::common::fio;
use crate::common::options::PartArgs;
use crate::common::programs::{self, Programs};
use crate::common::report::{Report, Table, Wanted, number, spread};
use crate::trees::{self, each_file};
use ferofs_devtools::shell::run_quietly;

/// What all parts share.
struct Bench {
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
const PARTS: [(&str, Measure); 5] = [
    ("names", names::names),
    ("cold", cold),
    ("output", output),
    ("workers", workers::workers),
    ("tiny", tiny),
];

#[derive(Args)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    common: PartArgs,
    /// The most names of a tree
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = RangedU64ValueParser::<usize>::new().range(10_000..))]
    names: usize,
}

pub(crate) fn scale(ScaleArgs { common, names }: ScaleArgs) -> Result<()> {
    let PartArgs { parts, rounds, dir } = common;
    parts.check(&PARTS.map(|(name, _)| name))?;
    if !need::is_root() {
        bail!("dropping caches and mounting need root");
    }
    install::install(&[FIO, MOUNT])?;
    let memory = dir.as_deref().unwrap_or(Path::new("/dev/shm")).join("ferofs-scale");
    let disk = scratch::target_dir().join("bench-scale");
    let (trees, images) = (memory.join("trees"), memory.join("images"));
    for dir in [&trees, &images, &disk] {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let programs = Programs::install()?;
    let report = Report::new("scale", &programs.versions())?;
    let mut bench =
        Bench { rounds: rounds.unwrap_or(3), names, programs, trees, images, disk, report };
    for (name, measure) in PARTS {
        if parts.has(name) {
            measure(&mut bench).with_context(|| name.to_owned())?;
        }
    }
    bench.report.print_aims();
    if parts.publish {
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

/// The tree: many files, on the disk of the target directory.
const TREE: &str = "kernel";
/// Bytes of fio's file.
const FIO_BYTES: u64 = 1 << 30;

fn cold(bench: &mut Bench) -> Result<()> {
    let source = trees::named(TREE)?.get()?;
    let (mut files, mut bytes) = (0, 0);
    each_file(&source, &mut |_, len| {
        (files, bytes) = (files + 1, bytes + len);
        Ok(())
    })?;
    let image = bench.images.join("cold");
    let (mut cold, mut theirs, mut warm, mut sequential, mut random) =
        <(Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>)>::default();
    for _ in 0..bench.rounds {
        let build = |bench: &Bench| {
            let ferofs = &mut Command::new(&bench.programs.ferofs);
            programs::run(
                ferofs.args(["build", "--quiet", "--preset", "fast"]).args([&source, &image]),
            )
        };
        drop_caches()?;
        cold.push(build(bench)?.seconds);
        warm.push(build(bench)?.seconds);
        drop_caches()?;
        let mkfs = &mut Command::new(bench.programs.peer("mkfs.erofs"));
        theirs
            .push(programs::run(mkfs.args(["--quiet", "-zlz4"]).args([&image, &source]))?.seconds);
        sequential.push(disk(bench, &["--rw=read", "--bs=1M", "--iodepth=8"])?);
        let size = format!("--bs={}", (bytes / files).next_multiple_of(4096));
        random.push(disk(bench, &["--rw=randread", &size, "--iodepth=16"])?);
    }
    fs::remove_file(&image)?;
    let mb = bytes as f64 / 1e6;
    let speeds = |seconds: &[f64]| spread(seconds.iter().map(|seconds| mb / seconds));
    let rows = [
        ("ferofs, source on disk", speeds(&cold)?),
        ("ferofs, source in memory", speeds(&warm)?),
        ("mkfs.erofs, source on disk", speeds(&theirs)?),
        ("fio, 1 MiB in sequence, 8 at a time", spread(sequential)?),
        ("fio, random reads of the average file, 16 at a time", spread(random)?),
    ];
    let [(_, (own, _)), (_, (in_memory, _)), (_, (mkfs, _)), _, (_, (disk, _))] = &rows;
    bench.report.aim(
        "cold build / the slower of the disk (random reads of the average file) and a warm build",
        own / disk.min(*in_memory),
        Wanted::AtLeast(0.8),
        "",
    );
    bench.report.aim("cold build / mkfs.erofs", own / mkfs, Wanted::AtLeast(2.0), "");
    bench.report.add(&Table {
        title: "Sources that are not in memory".into(),
        text: format!(
            "The table shows MB of source in each second: {files} files, {} MB of the kernel's source on a disk; the image goes into memory, `-z lz4`. \
             All caches were dropped before each build.",
            number(mb)
        ),
        head: vec!["", "MB/s"],
        rows: rows.iter().map(|(name, (_, speed))| vec![(*name).to_owned(), speed.clone()]).collect(),
    });
    Ok(())
}

/// Builds onto the disk and into memory.
fn output(bench: &mut Bench) -> Result<()> {
    let source = trees::named(TREE)?.get()?;
    let mut rows = Vec::new();
    for algorithm in ["lz4", "none"] {
        let (mut on_disk, mut in_memory) = (Vec::new(), Vec::new());
        for round in 0..=bench.rounds {
            for (dir, seconds) in [(&bench.disk, &mut on_disk), (&bench.images, &mut in_memory)] {
                let image = dir.join("output");
                let ferofs = &mut Command::new(&bench.programs.ferofs);
                let cost = programs::run(
                    ferofs
                        .args(["build", "--quiet", "--preset", "fast", "-z", algorithm])
                        .args([&source, &image]),
                )?;
                fs::remove_file(&image)?;
                // Round 0 reads the source into memory.
                if round > 0 {
                    seconds.push(cost.seconds);
                }
            }
        }
        let ratio = spread(on_disk.iter().zip(&in_memory).map(|(disk, memory)| disk / memory))?;
        if algorithm == "lz4" {
            bench.report.aim("build onto a disk / into memory", ratio.0, Wanted::AtMost(1.15), "");
        }
        rows.push(vec![
            format!("`-z {algorithm}`"),
            spread(on_disk)?.1,
            spread(in_memory)?.1,
            ratio.1,
        ]);
    }
    bench.report.add(&Table {
        title: "Images onto a disk".into(),
        text: "The table shows seconds of builds of the same tree from memory, onto the disk with the wait until all is there, and into memory.".into(),
        head: vec!["", "onto the disk", "into memory", "ratio"],
        rows,
    });
    Ok(())
}

fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")
}

/// The speed of direct reads from the disk, in MB a second.
fn disk(bench: &Bench, options: &[&str]) -> Result<f64> {
    let file = bench.disk.join("fio");
    if fs::metadata(&file).map_or(0, |file| file.len()) < FIO_BYTES {
        run_quietly(
            Command::new("dd")
                .arg("if=/dev/urandom")
                .arg(format!("of={}", file.display()))
                .args(["bs=1M", "count=1024"]),
        )?;
        rustix::fs::sync();
    }
    let mut command = Command::new("fio");
    command.args([
        "--name=disk",
        "--readonly",
        "--ioengine=libaio",
        "--direct=1",
        "--output-format=json",
        "--runtime=3",
    ]);
    command
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={FIO_BYTES}"))
        .args(options);
    let reading = fio::run(&mut command)?;
    if reading.seconds <= 0.0 {
        bail!("fio took no time");
    }
    Ok(reading.bytes as f64 / 1e6 / reading.seconds)
}
