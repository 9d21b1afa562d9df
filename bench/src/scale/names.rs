//! Time and memory by the number of names: build, check, extract, and `find` through mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Bench;
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::programs::{self, Cost};
use crate::common::report::{Table, Wanted, number};

/// The most bytes for each name that a build may take.
const BUILD_BYTES: f64 = 250.0;
/// The most bytes that a check may take: for all images, and for each name.
const CHECK_BYTES: (f64, f64) = (64e6, 16.0);
/// How much a figure for each name may differ from that of a tree of a tenth.
const SLOPE: f64 = 1.1;

/// Costs by number of names, of one job by one tool.
struct Line {
    job: &'static str,
    tool: &'static str,
    costs: Vec<Option<Cost>>,
}

pub(super) fn names(bench: &mut Bench) -> Result<()> {
    let sizes: Vec<usize> =
        (4..).map(|power| 10usize.pow(power)).take_while(|size| *size <= bench.names).collect();
    let mut lines: Vec<Line> = Vec::new();
    for (column, size) in sizes.iter().enumerate() {
        let source = small_files(&bench.trees, *size)?;
        let mut add = |job, tool, cost: Option<Cost>| {
            eprintln!("{size} names: {job} by {tool}: {cost:?}");
            match lines.iter_mut().find(|line| (line.job, line.tool) == (job, tool)) {
                Some(line) => line.costs.push(cost),
                None => {
                    let mut costs = vec![None; column];
                    costs.push(cost);
                    lines.push(Line { job, tool, costs });
                }
            }
        };
        measure(bench, &source, *size, &mut add)?;
        if *size > 100_000 || bench.names > 1_000_000 {
            fs::remove_dir_all(&source)?;
        }
    }
    report(bench, &sizes, &lines);
    Ok(())
}

/// Runs all jobs on a tree of `size` names.
fn measure(
    bench: &Bench,
    source: &Path,
    size: usize,
    add: &mut impl FnMut(&'static str, &'static str, Option<Cost>),
) -> Result<()> {
    let image = |name: &str| bench.images.join(format!("{name}-{size}"));
    let (own, theirs, squashfs) = (image("ferofs"), image("erofs-utils"), image("squashfs"));
    let build = |bench: &Bench| {
        let command = &mut Command::new(&bench.programs.ferofs);
        programs::run(command.args(["build", "--quiet", "--preset", "fast"]).args([source, &own]))
    };
    // The first run reads the tree into memory.
    build(bench)?;
    add("build", "ferofs", Some(build(bench)?));
    let mkfs = &mut Command::new(bench.programs.peer("mkfs.erofs"));
    add(
        "build",
        "mkfs.erofs",
        Some(programs::run(mkfs.args(["--quiet", "-zlz4"]).args([&theirs, source]))?),
    );
    let mksquashfs = &mut Command::new(bench.programs.peer("mksquashfs"));
    mksquashfs.args([source, &squashfs]).args([
        "-comp",
        "lz4",
        "-noappend",
        "-no-progress",
        "-quiet",
    ]);
    // Its search for identical files compares each file with all files of the same size: more than
    // ten minutes for a million.
    if size >= 1_000_000 {
        mksquashfs.arg("-no-duplicates");
    }
    add("build", "mksquashfs", Some(programs::run(mksquashfs)?));
    fs::remove_file(&squashfs)?;
    let check = &mut Command::new(&bench.programs.ferofs);
    add("check", "ferofs", Some(programs::run(check.arg("check").arg(&own))?));
    let fsck = &mut Command::new(bench.programs.peer("fsck.erofs"));
    add("check", "fsck.erofs", Some(programs::run(fsck.arg(&theirs))?));
    let target = bench.images.join("extracted");
    // Two more trees of ten million files do not fit into memory.
    if size <= 1_000_000 {
        let extract = &mut Command::new(&bench.programs.ferofs);
        add(
            "extract",
            "ferofs",
            Some(programs::run(extract.arg("extract").args([&own, &target]))?),
        );
        fs::remove_dir_all(&target)?;
        let fsck = &mut Command::new(bench.programs.peer("fsck.erofs"));
        let option = format!("--extract={}", target.display());
        add(
            "extract",
            "fsck.erofs",
            Some(programs::run(fsck.arg(option).arg("--preserve").arg(&theirs))?),
        );
        fs::remove_dir_all(&target)?;
    } else {
        add("extract", "ferofs", None);
        add("extract", "fsck.erofs", None);
    }
    for (job, tool, image, driver) in [
        ("find, FUSE", "ferofs", &own, Driver::Ferofs(&[])),
        ("find, FUSE", "erofsfuse", &theirs, Driver::Erofsfuse),
        ("find, kernel", "image of ferofs", &own, Driver::Kernel("erofs")),
        ("find, kernel", "image of mkfs.erofs", &theirs, Driver::Kernel("erofs")),
    ] {
        add(job, tool, Some(find(bench, image, driver, size)?));
    }
    fs::remove_file(own)?;
    fs::remove_file(theirs)?;
    Ok(())
}

/// Lists all names of a new mount; the memory is that of the daemon.
fn find(bench: &Bench, image: &Path, driver: Driver, size: usize) -> Result<Cost> {
    let dir = bench.images.join("mount");
    fs::create_dir_all(&dir)?;
    let mounted = FileSystem::new("find", image, driver).mount(&bench.programs.daemons(), &dir)?;
    let start = std::time::Instant::now();
    let output =
        Command::new("find").arg(mounted.path()).args(["-type", "f", "-size", "+0"]).output()?;
    let seconds = start.elapsed().as_secs_f64();
    let found = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    if !output.status.success() || found != size {
        bail!("{}: find: {} with {found} of {size} files", image.display(), output.status);
    }
    Ok(Cost { seconds, peak: mounted.peak().unwrap_or(0) })
}

fn report(bench: &mut Bench, sizes: &[usize], lines: &[Line]) {
    let heads: [&str; 8] = ["10^4", "10^5", "10^6", "10^7", "10^8", "10^9", "10^10", "10^11"];
    let head = || ["job", "tool"].into_iter().chain(heads.iter().copied().take(sizes.len()));
    let rows = |cell: fn(&Cost) -> String| {
        let row = |line: &Line| {
            let cells = line.costs.iter().map(|cost| cost.as_ref().map_or("-".into(), cell));
            [line.job.to_owned(), line.tool.to_owned()].into_iter().chain(cells).collect()
        };
        lines.iter().map(row).collect::<Vec<Vec<String>>>()
    };
    bench.report.add(&Table {
        title: "Seconds by number of names".into(),
        text: "The table shows seconds for trees of small files (names of 16 bytes, up to 24 words of content, 1,000 files in a directory), with a \
               warm page cache, sources and images in memory, `-z lz4`. `find` reads all names and inodes of a new mount. From a million names on, mksquashfs runs \
               without its search for identical files, which takes more than ten minutes there. One run each."
            .into(),
        head: head().collect(),
        rows: rows(|cost| number(cost.seconds)),
    });
    let mut memory =
        rows(|cost| if cost.peak == 0 { "-".into() } else { number(cost.peak as f64 / 1e6) });
    memory.retain(|row| row[2..].iter().any(|cell| cell != "-"));
    bench.report.add(&Table {
        title: "Memory by number of names".into(),
        text: "The table shows the largest resident set in MB, for `find` that of the daemon."
            .into(),
        head: head().collect(),
        rows: memory,
    });
    let Some(last) = sizes.len().checked_sub(2) else { return };
    for line in lines.iter().filter(|line| line.tool == "ferofs") {
        let (Some(less), Some(more)) = (line.costs[last], line.costs[last + 1]) else { continue };
        let (few, many) = (sizes[last] as f64, sizes[last + 1] as f64);
        let ratio = more.seconds / less.seconds / (many / few);
        bench.report.aim(
            format!("{}: time for each name, {many:.0} against {few:.0} names", line.job),
            ratio,
            Wanted::AtMost(SLOPE),
            "",
        );
        let bytes = (more.peak as f64 - less.peak as f64).max(0.0) / (many - few);
        match line.job {
            "build" => bench.report.aim(
                "build: memory for each name",
                bytes,
                Wanted::AtMost(BUILD_BYTES),
                " B",
            ),
            "check" => bench.report.aim(
                format!("check: memory for {many:.0} names"),
                more.peak as f64 / 1e6,
                Wanted::AtMost((CHECK_BYTES.0 + CHECK_BYTES.1 * many) / 1e6),
                " MB",
            ),
            "extract" => {
                bench.report.aim("extract: memory for each name", bytes, Wanted::AtMost(1.0), " B")
            }
            _ => {}
        }
    }
}

/// Files of a directory.
const PER_DIRECTORY: usize = 1000;

/// A random number for each `n`: SplitMix64.
fn random(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A tree of `files` small files below `dir`, in directories of 1,000. Their names have 16 bytes,
/// and their content has up to 24 words.
pub(crate) fn small_files(dir: &Path, files: usize) -> Result<PathBuf> {
    let root = dir.join(format!("tree-{files}"));
    if root.is_dir() {
        return Ok(root);
    }
    let unfinished = dir.join("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    let mut at = PathBuf::new();
    for file in 0..files {
        if file % PER_DIRECTORY == 0 {
            at = unfinished.join(format!(
                "d{:03}/s{:05}",
                file / PER_DIRECTORY / 100,
                file / PER_DIRECTORY
            ));
            fs::create_dir_all(&at)?;
        }
        let words = 1 + random(file as u64) % 24;
        let mut text = String::new();
        for word in 0..words {
            let word = random(random(file as u64 * 32 + word) % 2000);
            text.push_str(&format!("{:x} ", word >> 16));
        }
        let path = at.join(format!("file-{file:07}.txt"));
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    fs::rename(unfinished, &root)?;
    Ok(root)
}
