//! `cargo xtask bench extract`: extracts images with a warm page cache, and compares ferofs with `fsck.erofs --extract` on the same
//! image and `unsquashfs` on the same data.
//!
//! Three images: a tree of more than 50,000 files and about 2 GB, one file of 1 GiB, and the tree again with all data in
//! fragments of 1 MiB clusters. The newest mkfs.erofs builds the EROFS images. Each round runs each tool once; the output is the
//! median of the rounds.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{Outcome, Run, scratch};

use crate::common::rounds::Spread;
use crate::common::walk::{each_file, size_of_tree};

/// An extraction that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Large directories of a Debian system. They are copied in this order until the tree has [`TREE_BYTES`].
const SOURCES: [&str; 6] = [
    "/usr/share",
    "/usr/bin",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/gcc",
    "/usr/lib/llvm-14",
    "/usr/include",
];
const TREE_BYTES: u64 = 2 << 30;
const FILE_BYTES: u64 = 1 << 30;

pub(crate) fn extract(options: &[&str]) -> Result<()> {
    let (mut rounds, mut target) = (5, scratch::target_dir().join("bench-extract/target"));
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--rounds" => rounds = options.next().context("--rounds needs a number")?.parse()?,
            "--target" => target = PathBuf::from(options.next().context("--target needs a directory")?),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    let bin = peers::installed(&scratch::target_dir()).context("no peers: cargo xtask peers")?;
    let work_dir = scratch::target_dir().join("bench-extract");
    fs::create_dir_all(&work_dir)?;
    create_data(&work_dir)?;
    let ferofs = shell::build_ferofs("release")?;
    let target = target.join("extracted");
    for case in CASES {
        let image = case.erofs_image(&bin, &work_dir)?;
        let squashfs = case.squashfs_image(&bin, &work_dir)?;
        let mut candidates = vec![
            Candidate::new("ferofs", |target| {
                Run::limited(&ferofs, None, TIMEOUT).arg("extract").args([&image, target])
            }),
            Candidate::new("fsck.erofs", |target| {
                let mut extract = std::ffi::OsString::from("--extract=");
                extract.push(target);
                let fsck = Run::limited(bin.join("fsck.erofs"), None, TIMEOUT).arg(extract);
                fsck.args(["--preserve", "--xattrs"]).arg(&image)
            }),
        ];
        if let Some(image) = &squashfs {
            candidates.push(Candidate::new("unsquashfs", |target| {
                let unsquashfs = Run::limited(bin.join("unsquashfs"), None, TIMEOUT);
                unsquashfs.args(["-quiet", "-no-progress", "-dest"]).args([target, image])
            }));
        }
        // Round 0 warms the page cache and does not count.
        for round in 0..=rounds {
            for candidate in &mut candidates {
                let outcome = candidate.extract(&target)?;
                eprintln!(
                    "{}",
                    shell::dim(&format!("{}: {} {:.2?}", case.name, candidate.name, outcome.wall))
                );
                if round > 0 {
                    candidate.outcomes.push(outcome);
                }
            }
        }
        println!("{}, warm cache, median of {rounds} rounds", case.title);
        println!("{:<12}{:>20}{:>8}{:>22}{:>8}", "", "seconds (fastest)", "", "CPU s (min)", "");
        let first = candidates.first().and_then(Candidate::spreads).context("no rounds")?;
        for candidate in &candidates {
            candidate.print(first)?;
        }
    }
    Ok(())
}

/// One image to extract.
struct Case {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    options: &'static [&'static str],
    with_squashfs: bool,
}

const CASES: [Case; 3] = [
    Case { name: "tree", title: "A tree of 2 GB", source: "tree", options: &["-zlz4"], with_squashfs: true },
    Case {
        name: "file",
        title: "One file of 1 GiB",
        source: "file",
        options: &["-zlz4"],
        with_squashfs: true,
    },
    Case {
        name: "fragments",
        title: "The tree, all in fragments of 1 MiB clusters",
        source: "tree",
        options: &["-zlz4", "-C1048576", "-Eall-fragments"],
        with_squashfs: false,
    },
];

impl Case {
    fn erofs_image(&self, bin: &Path, work_dir: &Path) -> Result<PathBuf> {
        let image = work_dir.join(self.name).with_extension("erofs");
        if !image.exists() {
            let made = image.with_extension("part");
            let mut mkfs = Command::new(bin.join("mkfs.erofs"));
            shell::run(mkfs.arg("--quiet").args(self.options).args([&made, &work_dir.join(self.source)]))?;
            fs::rename(made, &image)?;
        }
        Ok(image)
    }

    fn squashfs_image(&self, bin: &Path, work_dir: &Path) -> Result<Option<PathBuf>> {
        let image = work_dir.join(self.name).with_extension("squashfs");
        if self.with_squashfs && !image.exists() {
            let made = image.with_extension("part");
            let mut squash = Command::new(bin.join("mksquashfs"));
            squash.args([&work_dir.join(self.source), &made]);
            shell::run(squash.args(["-comp", "lz4", "-b", "128K", "-noappend", "-no-progress", "-quiet"]))?;
            fs::rename(made, &image)?;
        }
        Ok(self.with_squashfs.then_some(image))
    }
}

/// Creates the tree and the file, unless an earlier run has created them.
fn create_data(work_dir: &Path) -> Result<()> {
    let (tree, file) = (work_dir.join("tree"), work_dir.join("file/file"));
    if !tree.exists() {
        let part = work_dir.join("tree.part");
        fs::create_dir_all(&part)?;
        let mut bytes = 0;
        for source in SOURCES.iter().filter(|source| Path::new(source).exists()) {
            if bytes < TREE_BYTES {
                // Relative to the root directory: with absolute names some releases of cp do not find the attributes of the
                // parent directories.
                let name = source.trim_start_matches('/');
                shell::run(Command::new("cp").args(["-a", "--parents", name]).arg(&part).current_dir("/"))?;
                bytes = size_of_tree(&part)?;
            }
        }
        fs::rename(part, &tree)?;
    }
    if file.metadata().map_or(0, |file| file.len()) != FILE_BYTES {
        fs::create_dir_all(work_dir.join("file"))?;
        let mut out = BufWriter::new(File::create(&file)?);
        let mut missing = FILE_BYTES;
        each_file(&tree, &mut |path, len| {
            // Large real files, joined in the order of their names.
            if len >= 100 << 10 && missing > 0 {
                missing -= std::io::copy(&mut File::open(path)?.take(missing), &mut out)?;
            }
            Ok(())
        })?;
        out.flush()?;
        if missing > 0 {
            bail!("{} has no {FILE_BYTES} bytes in large files", tree.display());
        }
    }
    Ok(())
}

struct Candidate<'a> {
    name: &'static str,
    command: Box<dyn Fn(&Path) -> Run + 'a>,
    outcomes: Vec<Outcome>,
}

impl<'a> Candidate<'a> {
    fn new(name: &'static str, command: impl Fn(&Path) -> Run + 'a) -> Self {
        Self { name, command: Box::new(command), outcomes: Vec::new() }
    }

    fn extract(&self, target: &Path) -> Result<Outcome> {
        fs::create_dir_all(target.parent().context("the target has no parent")?)?;
        let outcome = (self.command)(target).try_run()?;
        fs::remove_dir_all(target)?;
        if outcome.code != 0 {
            bail!("{}: exit code {}: {}", self.name, outcome.code, outcome.stderr);
        }
        Ok(outcome)
    }

    /// Of wall-clock seconds and of processor seconds.
    fn spreads(&self) -> Option<[Spread; 2]> {
        Some([
            Spread::of(self.outcomes.iter().map(|outcome| outcome.wall.as_secs_f64()))?,
            Spread::of(self.outcomes.iter().map(|outcome| outcome.cpu.as_secs_f64()))?,
        ])
    }

    fn print(&self, [first_wall, first_cpu]: [Spread; 2]) -> Result<()> {
        let [wall, cpu] = self.spreads().context("no rounds")?;
        println!(
            "{:<12}{:>20}{:>8}{:>22}{:>8}",
            self.name,
            format!("{:.2} ({:.2})", wall.median, wall.min),
            format!("x {:.2}", wall.median / first_wall.median),
            format!("{:.2} ({:.2})", cpu.median, cpu.min),
            format!("x {:.2}", cpu.median / first_cpu.median),
        );
        Ok(())
    }
}
