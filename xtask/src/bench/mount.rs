//! `cargo xtask bench mount`: reading through mounts, ours against erofsfuse, the kernel's EROFS, squashfs and ext4.
//!
//! Content: 4 KiB reads of one large file by fio, in sequence, at random, and the first 4 KiB of each 128 KiB; from a
//! cold image (out of the page cache) and a warm one. Trees: find, tar and rsync. Memory: what the daemon keeps to itself
//! while all processors read. The contestants take turns, in another order each round; medians are given.

mod discipline;
mod stage;

use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use self::discipline::{Cell, Walk};
use self::stage::Stage;
use super::contestant::{Contestant, Way};
use super::fio::Pattern;
use super::measure::{Spread, turns};
use crate::install::{self, EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, RSYNC, SQUASHFS, SQUASHFUSE};
use crate::{peers, shell};

const MIB: u64 = 1 << 20;

struct Options {
    quick: bool,
    /// Without squashfs and ext4, which take most of the time.
    erofs_only: bool,
    /// Just this pattern of reading content, by its name.
    pattern: Option<String>,
    rounds: usize,
}

pub(crate) fn mount(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    if !need::is_root() {
        bail!("mounting by the kernel, for comparison, needs root");
    }
    install::install(&[EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, RSYNC, SQUASHFS, SQUASHFUSE])?;
    peers::peers()?;
    let ferofs = shell::build_ferofs("release")?;
    let stage = Stage::new(ferofs, options.quick)?;
    content(&stage, &options)?;
    if options.pattern.is_some() {
        return Ok(());
    }
    trees(&stage, &options)?;
    memory(&stage)
}

fn content(stage: &Stage, options: &Options) -> Result<()> {
    let size = if options.quick { 256 * MIB } else { 1024 * MIB };
    for (clusters, image) in [("4 KiB", "file-lz4-4k.erofs"), ("64 KiB", "file-lz4-64k.erofs")] {
        let image = stage.image(image)?;
        let mut contestants = vec![
            Contestant::new("ferofs", &image, Way::Ferofs(&[])),
            Contestant::new("erofsfuse", &image, Way::Erofsfuse),
            Contestant::new("kernel EROFS, loop", &image, Way::Kernel("erofs")),
            Contestant::new("kernel EROFS, file", &image, Way::KernelFile),
        ];
        if !options.erofs_only && clusters == "4 KiB" {
            contestants.extend([
                Contestant::new("squashfuse 128K", &stage.image("file-128k.squashfs")?, Way::Squashfuse),
                Contestant::new(
                    "kernel squashfs 4K",
                    &stage.image("file-4k.squashfs")?,
                    Way::Kernel("squashfs"),
                ),
                Contestant::new(
                    "kernel squashfs 8K",
                    &stage.image("file-8k.squashfs")?,
                    Way::Kernel("squashfs"),
                ),
                Contestant::new(
                    "kernel squashfs 16K",
                    &stage.image("file-16k.squashfs")?,
                    Way::Kernel("squashfs"),
                ),
                Contestant::new(
                    "kernel squashfs 128K",
                    &stage.image("file-128k.squashfs")?,
                    Way::Kernel("squashfs"),
                ),
                Contestant::new("kernel ext4", &stage.image("file.ext4")?, Way::Kernel("ext4")),
            ]);
        }
        for warm in [true, false] {
            let wanted =
                |pattern: &Pattern| options.pattern.as_ref().is_none_or(|name| *name == pattern.to_string());
            for pattern in Pattern::ALL.into_iter().filter(wanted) {
                let title = format!(
                    "{pattern} 4 KiB, LZ4 in {clusters} clusters, {} image, {} MiB",
                    if warm { "warm" } else { "cold" },
                    size / MIB
                );
                compete(&title, "MiB/s", stage, &contestants, options.rounds, |contestant| {
                    discipline::content(stage, contestant, pattern, warm, size)
                })?;
            }
        }
    }
    Ok(())
}

fn trees(stage: &Stage, options: &Options) -> Result<()> {
    let image = stage.image("tree-lz4-4k.erofs")?;
    let mut contestants = vec![
        Contestant::new("ferofs", &image, Way::Ferofs(&[])),
        Contestant::new("erofsfuse", &image, Way::Erofsfuse),
        Contestant::new("kernel EROFS, loop", &image, Way::Kernel("erofs")),
    ];
    if !options.erofs_only {
        let squashfs = stage.image("tree-128k.squashfs")?;
        contestants.extend([
            Contestant::new("squashfuse 128K", &squashfs, Way::Squashfuse),
            Contestant::new("kernel squashfs 128K", &squashfs, Way::Kernel("squashfs")),
            Contestant::new("kernel ext4", &stage.image("tree.ext4")?, Way::Kernel("ext4")),
        ]);
    }
    for walk in [Walk::Find, Walk::Tar, Walk::Rsync] {
        let title = format!("{walk} of {} files, warm image", stage.tree_files()?);
        compete(&title, "runs/s", stage, &contestants, options.rounds, |contestant| {
            discipline::walk(stage, contestant, walk)
        })?;
    }
    Ok(())
}

fn memory(stage: &Stage) -> Result<()> {
    let readers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    println!("\nmost private dirty memory of the daemon, {readers} readers of 1 GiB");
    let image = stage.image("file-lz4-4k.erofs")?;
    for (name, way) in [
        ("ferofs", Way::Ferofs(&[])),
        ("ferofs --low-memory", Way::Ferofs(&["--low-memory"])),
        ("erofsfuse", Way::Erofsfuse),
    ] {
        let contestant = Contestant::new(name, &image, way);
        let bytes = discipline::memory(stage, &contestant, readers)?;
        println!("{name:<22}{:>8.1} MiB", bytes as f64 / MIB as f64);
    }
    Ok(())
}

/// Lets the contestants take turns at one discipline, and prints what came of it.
fn compete(
    title: &str,
    unit: &str,
    stage: &Stage,
    contestants: &[Contestant],
    rounds: usize,
    mut run: impl FnMut(&Contestant) -> Result<Cell>,
) -> Result<()> {
    let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        for number in turns(contestants.len(), round) {
            stage.touch_memory();
            let cell = run(&contestants[number]).with_context(|| contestants[number].name.clone())?;
            cells[number].push(cell);
        }
    }
    println!("\n{title}: median (least - most) of {rounds} rounds");
    println!("{:<22}{:>32}{:>14}{:>13}{:>13}", "", unit, "daemon CPU s", "x erofsfuse", "its CPU x");
    let peer = contestants.iter().position(|contestant| matches!(contestant.way, Way::Erofsfuse));
    let peer = peer.map(|number| &cells[number]);
    let speed = |cells: &[Cell]| Spread::of(cells.iter().map(|cell| cell.speed));
    let cpu = |cells: &[Cell]| Spread::of(cells.iter().filter_map(|cell| cell.cpu));
    for (contestant, cells) in contestants.iter().zip(&cells) {
        let Some(Spread { least, middle, most }) = speed(cells) else { continue };
        let range = format!("{middle:.1} ({least:.1} - {most:.1})");
        let seconds = cpu(cells).map_or("-".into(), |cpu| format!("{:.2}", cpu.middle));
        let times = peer
            .and_then(|peer| speed(peer))
            .map_or("-".into(), |peer| format!("{:.2}", middle / peer.middle));
        let cpu_times = peer.and_then(|peer| cpu(peer)).zip(cpu(cells));
        let cpu_times =
            cpu_times.map_or("-".into(), |(peer, own)| format!("{:.2}", own.middle / peer.middle));
        println!("{:<22}{range:>32}{seconds:>14}{times:>13}{cpu_times:>13}", contestant.name);
    }
    Ok(())
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { quick: false, erofs_only: false, pattern: None, rounds: 0 };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match *option {
                "--quick" => (parsed.quick, parsed.erofs_only) = (true, true),
                "--erofs-only" => parsed.erofs_only = true,
                "--pattern" => {
                    let name = options.next().context("--pattern needs a name")?;
                    if !Pattern::ALL.iter().any(|pattern| pattern.to_string() == **name) {
                        bail!("--pattern: no such pattern: {name}");
                    }
                    parsed.pattern = Some((*name).to_owned());
                }
                "--rounds" => {
                    parsed.rounds =
                        options.next().context("--rounds needs a number")?.parse().context("--rounds")?;
                }
                unknown => bail!("unknown option {unknown}"),
            }
        }
        if parsed.rounds == 0 {
            parsed.rounds = if parsed.quick { 3 } else { 5 };
        }
        Ok(parsed)
    }
}
