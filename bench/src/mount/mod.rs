//! `cargo xtask bench mount`: reads through mounts, and compares ferofs with erofsfuse and with the kernel's EROFS, squashfs and ext4.
//!
//! Content: fio reads one large file in pieces of 4 KiB: in sequence, at random, and the first 4 KiB of each 128 KiB; the image is
//! in the page cache (warm) or not (cold). Trees: find, tar and rsync. Memory: the daemon's private dirty memory while all
//! processors read. Each round measures each file system once, in another order; the output is the median.

mod images;
pub(crate) mod random;
mod random_page;
pub(crate) mod sealed;
mod workload;

use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use self::images::Images;
use self::workload::{Measurement, Walk};
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::fio::Pattern;
use crate::common::rounds::{PageCache, Spread, rotated_order};
use ferofs_devtools::install::{self, EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, RSYNC, SQUASHFS, SQUASHFUSE};
use ferofs_devtools::{peers, shell};

const MIB: u64 = 1 << 20;

struct Options {
    quick: bool,
    /// Leave out squashfs and ext4, which take most of the time.
    erofs_only: bool,
    /// Measure only this pattern, by its name.
    pattern: Option<String>,
    rounds: usize,
}

pub(crate) fn mount(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    if !need::is_root() {
        bail!("mounting with the kernel, for comparison, needs root");
    }
    install::install(&[EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, RSYNC, SQUASHFS, SQUASHFUSE])?;
    peers::install_peers()?;
    let ferofs = shell::build_ferofs("release")?;
    let images = Images::new(ferofs, options.quick)?;
    content(&images, &options)?;
    if options.pattern.is_some() {
        return Ok(());
    }
    trees(&images, &options)?;
    memory(&images)
}

fn content(images: &Images, options: &Options) -> Result<()> {
    let size = if options.quick { 256 * MIB } else { 1024 * MIB };
    for (clusters, image) in [("4 KiB", "file-lz4-4k.erofs"), ("64 KiB", "file-lz4-64k.erofs")] {
        let image = images.image(image)?;
        let mut file_systems = vec![
            FileSystem::new("ferofs", &image, Driver::Ferofs(&[])),
            FileSystem::new("erofsfuse", &image, Driver::Erofsfuse),
            FileSystem::new("kernel EROFS, loop", &image, Driver::Kernel("erofs")),
            FileSystem::new("kernel EROFS, file", &image, Driver::KernelFile),
        ];
        if !options.erofs_only && clusters == "4 KiB" {
            file_systems.extend([
                FileSystem::new("squashfuse 128K", &images.image("file-128k.squashfs")?, Driver::Squashfuse),
                FileSystem::new(
                    "kernel squashfs 4K",
                    &images.image("file-4k.squashfs")?,
                    Driver::Kernel("squashfs"),
                ),
                FileSystem::new(
                    "kernel squashfs 8K",
                    &images.image("file-8k.squashfs")?,
                    Driver::Kernel("squashfs"),
                ),
                FileSystem::new(
                    "kernel squashfs 16K",
                    &images.image("file-16k.squashfs")?,
                    Driver::Kernel("squashfs"),
                ),
                FileSystem::new(
                    "kernel squashfs 128K",
                    &images.image("file-128k.squashfs")?,
                    Driver::Kernel("squashfs"),
                ),
                FileSystem::new("kernel ext4", &images.image("file.ext4")?, Driver::Kernel("ext4")),
            ]);
        }
        for cache in [PageCache::Warm, PageCache::Cold] {
            let wanted =
                |pattern: &Pattern| options.pattern.as_ref().is_none_or(|name| *name == pattern.to_string());
            for pattern in Pattern::ALL.into_iter().filter(wanted) {
                let title = format!(
                    "{pattern} 4 KiB, LZ4 in {clusters} clusters, {} image, {} MiB",
                    if cache == PageCache::Warm { "warm" } else { "cold" },
                    size / MIB
                );
                compare(&title, "MiB/s", images, &file_systems, options.rounds, |file_system| {
                    workload::content(images, file_system, pattern, cache, size)
                })?;
            }
        }
    }
    Ok(())
}

fn trees(images: &Images, options: &Options) -> Result<()> {
    let image = images.image("tree-lz4-4k.erofs")?;
    let mut file_systems = vec![
        FileSystem::new("ferofs", &image, Driver::Ferofs(&[])),
        FileSystem::new("erofsfuse", &image, Driver::Erofsfuse),
        FileSystem::new("kernel EROFS, loop", &image, Driver::Kernel("erofs")),
    ];
    if !options.erofs_only {
        let squashfs = images.image("tree-128k.squashfs")?;
        file_systems.extend([
            FileSystem::new("squashfuse 128K", &squashfs, Driver::Squashfuse),
            FileSystem::new("kernel squashfs 128K", &squashfs, Driver::Kernel("squashfs")),
            FileSystem::new("kernel ext4", &images.image("tree.ext4")?, Driver::Kernel("ext4")),
        ]);
    }
    for walk in [Walk::Find, Walk::Tar, Walk::Rsync] {
        let title = format!("{walk} of {} files, warm image", images.tree_files()?);
        compare(&title, "runs/s", images, &file_systems, options.rounds, |file_system| {
            workload::walk(images, file_system, walk)
        })?;
    }
    Ok(())
}

fn memory(images: &Images) -> Result<()> {
    let readers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    println!("\nlargest private dirty memory of the daemon, {readers} readers of 1 GiB");
    let image = images.image("file-lz4-4k.erofs")?;
    for (name, way) in [
        ("ferofs", Driver::Ferofs(&[])),
        ("ferofs --low-memory", Driver::Ferofs(&["--low-memory"])),
        ("erofsfuse", Driver::Erofsfuse),
    ] {
        let file_system = FileSystem::new(name, &image, way);
        let bytes = workload::memory(images, &file_system, readers)?;
        println!("{name:<22}{:>8.1} MiB", bytes as f64 / MIB as f64);
    }
    Ok(())
}

/// Measures each file system with one workload, in `rounds` rounds, and prints a table.
fn compare(
    title: &str,
    unit: &str,
    images: &Images,
    file_systems: &[FileSystem],
    rounds: usize,
    mut run: impl FnMut(&FileSystem) -> Result<Measurement>,
) -> Result<()> {
    let mut cells: Vec<Vec<Measurement>> = vec![Vec::new(); file_systems.len()];
    for round in 0..rounds {
        for number in rotated_order(file_systems.len(), round) {
            images.touch_memory();
            let cell = run(&file_systems[number]).with_context(|| file_systems[number].name.clone())?;
            cells[number].push(cell);
        }
    }
    println!("\n{title}: median (min - max) of {rounds} rounds");
    println!("{:<22}{:>32}{:>14}{:>13}{:>13}", "", unit, "daemon CPU s", "x erofsfuse", "its CPU x");
    let peer = file_systems.iter().position(|file_system| matches!(file_system.driver, Driver::Erofsfuse));
    let peer = peer.map(|number| &cells[number]);
    let speed = |cells: &[Measurement]| Spread::of(cells.iter().map(|cell| cell.speed));
    let cpu = |cells: &[Measurement]| Spread::of(cells.iter().filter_map(|cell| cell.cpu));
    for (file_system, cells) in file_systems.iter().zip(&cells) {
        let Some(Spread { min, median, max }) = speed(cells) else { continue };
        let range = format!("{median:.1} ({min:.1} - {max:.1})");
        let seconds = cpu(cells).map_or("-".into(), |cpu| format!("{:.2}", cpu.median));
        let times = peer
            .and_then(|peer| speed(peer))
            .map_or("-".into(), |peer| format!("{:.2}", median / peer.median));
        let cpu_times = peer.and_then(|peer| cpu(peer)).zip(cpu(cells));
        let cpu_times =
            cpu_times.map_or("-".into(), |(peer, own)| format!("{:.2}", own.median / peer.median));
        println!("{:<22}{range:>32}{seconds:>14}{times:>13}{cpu_times:>13}", file_system.name);
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
