//! Building images of a tree, with each tool's algorithms, and reading the whole tree file by file.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ferofs_tests::Run;

use super::super::contestant::Way;
use super::super::extract::each_file;
use super::super::measure::set_warm;
use super::Bench;
use super::content::busy;
use super::record::{Values, values};
use super::stage::{Entrant, Form, Stage, leading_entrants};

const MIB: f64 = 1_048_576.0;
/// A build that takes longer is not worth waiting for.
const LIMIT: Duration = Duration::from_secs(300);

/// Settings that are built: who, unit, algorithm and level, and whether it takes minutes.
fn builders() -> Vec<(Entrant, bool)> {
    let mut all = Vec::new();
    let fragments = [
        ("4K", "lz4", "lz4", false),
        ("4K", "lz4hc 12", "lz4hc,12", false),
        ("64K", "lz4hc 12", "lz4hc,12", true),
        ("64K", "zstd 3", "zstd,3", false),
        ("64K", "deflate 6", "deflate,6", true),
        ("128K", "zstd 15", "zstd,15", true),
        ("64K", "lzma 6", "lzma,6", true),
    ];
    for (unit, title, method, slow) in fragments {
        let bytes = unit.trim_end_matches('K').parse::<u64>().unwrap_or(4) << 10;
        let ours = Form::Ferofs(format!("-z {method} -C {unit} -E fragments"));
        let theirs = Form::MkfsErofs(format!("-z{method} -C{bytes} -Efragments"));
        all.push((Entrant::new(format!("ferofs {unit} {title}"), &ours, Way::Ferofs(&[])), slow));
        all.push((Entrant::new(format!("erofs-utils {unit} {title}"), &theirs, Way::Kernel("erofs")), slow));
    }
    for (unit, title, options, slow) in [
        ("128K", "lz4", "-comp lz4", false),
        ("128K", "lz4hc 12", "-comp lz4 -Xhc", true),
        ("128K", "zstd 3", "-comp zstd -Xcompression-level 3", false),
        ("128K", "zstd 15", "-comp zstd -Xcompression-level 15", true),
        ("128K", "xz", "-comp xz", true),
    ] {
        let form = Form::Squashfs(format!("{options} -b {unit}"));
        all.push((
            Entrant::new(format!("squashfs-tools {unit} {title}"), &form, Way::Kernel("squashfs")),
            slow,
        ));
    }
    all
}

pub(super) fn build(bench: &mut Bench) -> Result<()> {
    let (slow, fast): (Vec<_>, Vec<_>) = builders().into_iter().partition(|(_, slow)| *slow);
    let fast: Vec<Entrant> = fast.into_iter().map(|(entrant, _)| entrant).collect();
    let slow: Vec<Entrant> = slow.into_iter().map(|(entrant, _)| entrant).collect();
    let tree = bench.stage.tree();
    bench.compete("build", bench.stage.scale.rounds, &[tree], &fast, built)?;
    bench.compete("walk", bench.stage.scale.rounds, &["cold", "warm"], &leading_entrants(), walked)?;
    if bench.stage.scale.slow_builds {
        bench.compete("build", 1, &[tree], &slow, built)?;
    }
    Ok(())
}

fn built(stage: &Stage, subject: &&str, entrant: &Entrant) -> Result<Values> {
    let source = stage.subject(subject)?;
    let image = stage.room.join("built");
    if image.exists() {
        fs::remove_file(&image)?;
    }
    let builder = stage.builder(&entrant.form, &source, &image)?;
    let outcome = Run::limited(builder.get_program(), None, LIMIT).args(builder.get_args()).try_run()?;
    if outcome.code != 0 {
        bail!("exit code {}: {}", outcome.code, outcome.stderr.trim());
    }
    let mut bytes = 0;
    each_file(&source, &mut |_, len| {
        bytes += len;
        Ok(())
    })?;
    let size = fs::metadata(&image)?.len();
    fs::remove_file(&image)?;
    let mut all = values([
        ("mib", size as f64 / MIB),
        ("percent", size as f64 / bytes as f64 * 100.0),
        ("seconds", outcome.wall.as_secs_f64()),
        ("cpu_s", outcome.cpu.as_secs_f64()),
    ]);
    // 0 where it cannot be told.
    if outcome.peak > 0 {
        all.extend(values([("peak_mib", outcome.peak as f64 / MIB)]));
    }
    Ok(all)
}

fn walked(stage: &Stage, case: &&str, entrant: &Entrant) -> Result<Values> {
    let contestant = stage.contestant(stage.tree(), entrant)?;
    set_warm(&contestant.image, *case == "warm")?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point()?)?;
    let (start, before) = (Instant::now(), busy()?);
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
        ("cpu_s", busy()? - before),
    ]);
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_s", cpu)]));
    }
    Ok(all)
}
