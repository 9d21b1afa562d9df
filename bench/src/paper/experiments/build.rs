//! Builds images of a tree with each tool's algorithms, and reads whole trees file by file.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ferofs_tests::Run;

use super::super::evaluation::Evaluation;
use super::super::record::{Values, values};
use super::super::setup::systems::{ImageFormat, System, main_systems};
use super::super::setup::workspace::Workspace;
use super::reads::cpu_seconds;
use crate::common::filesystem::Driver;
use crate::common::rounds::{PageCache, set_page_cache};
use crate::common::walk::{each_file, size_of_tree};

const MIB: f64 = 1_048_576.0;
/// A build that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The settings to measure, and whether a build with them takes minutes.
fn builders() -> Vec<(System, bool)> {
    let mut all = Vec::new();
    // Cluster size, title, option, whether it takes minutes.
    let erofs_settings = [
        ("4K", "lz4", "lz4", false),
        ("4K", "lz4hc 12", "lz4hc,12", false),
        ("64K", "lz4hc 12", "lz4hc,12", true),
        ("64K", "zstd 3", "zstd,3", false),
        ("64K", "deflate 6", "deflate,6", true),
        ("128K", "zstd 15", "zstd,15", true),
        ("64K", "lzma 6", "lzma,6", true),
    ];
    for (unit, title, method, slow) in erofs_settings {
        let bytes = unit.trim_end_matches('K').parse::<u64>().unwrap_or(4) << 10;
        let ferofs = ImageFormat::Ferofs(format!("-z {method} -C {unit} -E fragments"));
        let erofs_utils = ImageFormat::MkfsErofs(format!("-z{method} -C{bytes} -Efragments"));
        all.push((System::new(format!("ferofs {unit} {title}"), &ferofs, Driver::Ferofs(&[])), slow));
        all.push((
            System::new(format!("erofs-utils {unit} {title}"), &erofs_utils, Driver::Kernel("erofs")),
            slow,
        ));
    }
    for (unit, title, options, slow) in [
        ("128K", "lz4", "-comp lz4", false),
        ("128K", "lz4hc 12", "-comp lz4 -Xhc", true),
        ("128K", "zstd 3", "-comp zstd -Xcompression-level 3", false),
        ("128K", "zstd 15", "-comp zstd -Xcompression-level 15", true),
        ("128K", "xz", "-comp xz", true),
    ] {
        let format = ImageFormat::Squashfs(format!("{options} -b {unit}"));
        all.push((
            System::new(format!("squashfs-tools {unit} {title}"), &format, Driver::Kernel("squashfs")),
            slow,
        ));
    }
    all
}

pub(crate) fn build(evaluation: &mut Evaluation) -> Result<()> {
    let (slow, fast): (Vec<_>, Vec<_>) = builders().into_iter().partition(|(_, slow)| *slow);
    let fast: Vec<System> = fast.into_iter().map(|(system, _)| system).collect();
    let slow: Vec<System> = slow.into_iter().map(|(system, _)| system).collect();
    let tree = evaluation.workspace.tree();
    evaluation.measure_all("build", evaluation.workspace.scale.rounds, &[tree], &fast, measure_build)?;
    evaluation.measure_all(
        "walk",
        evaluation.workspace.scale.rounds,
        &["cold", "warm"],
        &main_systems(),
        measure_walk,
    )?;
    if evaluation.workspace.scale.slow_builds {
        evaluation.measure_all("build", 1, &[tree], &slow, measure_build)?;
    }
    Ok(())
}

fn measure_build(workspace: &Workspace, dataset: &&str, system: &System) -> Result<Values> {
    let source = workspace.dataset(dataset)?;
    let image = workspace.dir.join("built");
    if image.exists() {
        fs::remove_file(&image)?;
    }
    let builder = workspace.builder(&system.format, &source, &image)?;
    let outcome = Run::limited(builder.get_program(), None, TIMEOUT).args(builder.get_args()).try_run()?;
    if outcome.code != 0 {
        bail!("exit code {}: {}", outcome.code, outcome.stderr.trim());
    }
    let bytes = size_of_tree(&source)?;
    let size = fs::metadata(&image)?.len();
    fs::remove_file(&image)?;
    let mut all = values([
        ("mib", size as f64 / MIB),
        ("percent", size as f64 / bytes as f64 * 100.0),
        ("seconds", outcome.wall.as_secs_f64()),
        ("cpu_s", outcome.cpu.as_secs_f64()),
    ]);
    // 0: the peak could not be measured.
    if outcome.peak > 0 {
        all.extend(values([("peak_mib", outcome.peak as f64 / MIB)]));
    }
    Ok(all)
}

fn measure_walk(workspace: &Workspace, case: &&str, system: &System) -> Result<Values> {
    let file_system = workspace.file_system(workspace.tree(), system)?;
    let cache = if *case == "warm" { PageCache::Warm } else { PageCache::Cold };
    set_page_cache(&file_system.image, cache)?;
    let mounted = file_system.mount(&workspace.daemons, &workspace.mount_point()?)?;
    let (start, before) = (Instant::now(), cpu_seconds()?);
    let (mut files, mut bytes) = (0.0, 0);
    each_file(mounted.path(), &mut |path, _| {
        files += 1.0;
        bytes += io::copy(&mut File::open(path)?, &mut io::sink())?;
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut all = values([
        ("seconds", seconds),
        ("files_s", files / seconds),
        ("mib_s", bytes as f64 / MIB / seconds),
        ("cpu_s", cpu_seconds()? - before),
    ]);
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_s", cpu)]));
    }
    Ok(all)
}
