//! `cargo xtask bench extract`: taking images apart, against `fsck.erofs --extract` on the same image and `unsquashfs`
//! on the same data, with a warm cache.
//!
//! Three images: a tree of more than 50,000 files and about 2 GB, one file of 1 GiB, and the tree again with all data in
//! fragments of 1 MiB clusters. All but squashfs's are made by the peers' mkfs.erofs. The tools take turns; the median of
//! the rounds is given.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::{Outcome, Run, scratch};

use super::measure::Spread;
use crate::{peers, shell};

const LIMIT: Duration = Duration::from_secs(1800);
/// Directories that a Debian has much in; as many as make up the tree.
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
    let room = scratch::target_dir().join("bench-extract");
    fs::create_dir_all(&room)?;
    plant(&room)?;
    let ferofs = shell::build_ferofs("release")?;
    let target = target.join("extracted");
    for set in SETS {
        let image = set.image(&bin, &room)?;
        let squashed = set.squashed(&bin, &room)?;
        let mut contestants = vec![
            Contestant::new("ferofs", |target| {
                Run::limited(&ferofs, None, LIMIT).arg("extract").args([&image, target])
            }),
            Contestant::new("fsck.erofs", |target| {
                let mut extract = std::ffi::OsString::from("--extract=");
                extract.push(target);
                let fsck = Run::limited(bin.join("fsck.erofs"), None, LIMIT).arg(extract);
                fsck.args(["--preserve", "--xattrs"]).arg(&image)
            }),
        ];
        if let Some(image) = &squashed {
            contestants.push(Contestant::new("unsquashfs", |target| {
                let unsquashfs = Run::limited(bin.join("unsquashfs"), None, LIMIT);
                unsquashfs.args(["-quiet", "-no-progress", "-dest"]).args([target, image])
            }));
        }
        // Round 0 warms the cache and is not counted.
        for round in 0..=rounds {
            for contestant in &mut contestants {
                let outcome = contestant.extract(&target)?;
                eprintln!(
                    "{}",
                    shell::dim(&format!("{}: {} {:.2?}", set.name, contestant.name, outcome.wall))
                );
                if round > 0 {
                    contestant.outcomes.push(outcome);
                }
            }
        }
        println!("{}, warm cache, median of {rounds} rounds", set.title);
        println!("{:<12}{:>20}{:>8}{:>22}{:>8}", "", "seconds (fastest)", "", "CPU s (least)", "");
        let first = contestants.first().and_then(Contestant::spreads).context("no rounds")?;
        for contestant in &contestants {
            contestant.print(first)?;
        }
    }
    Ok(())
}

/// Something to extract.
struct Set {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    options: &'static [&'static str],
    squash: bool,
}

const SETS: [Set; 3] = [
    Set { name: "tree", title: "A tree of 2 GB", source: "tree", options: &["-zlz4"], squash: true },
    Set { name: "file", title: "One file of 1 GiB", source: "file", options: &["-zlz4"], squash: true },
    Set {
        name: "fragments",
        title: "The tree, all in fragments of 1 MiB clusters",
        source: "tree",
        options: &["-zlz4", "-C1048576", "-Eall-fragments"],
        squash: false,
    },
];

impl Set {
    fn image(&self, bin: &Path, room: &Path) -> Result<PathBuf> {
        let image = room.join(self.name).with_extension("erofs");
        if !image.exists() {
            let made = image.with_extension("part");
            let mut mkfs = Command::new(bin.join("mkfs.erofs"));
            shell::run(mkfs.arg("--quiet").args(self.options).args([&made, &room.join(self.source)]))?;
            fs::rename(made, &image)?;
        }
        Ok(image)
    }

    fn squashed(&self, bin: &Path, room: &Path) -> Result<Option<PathBuf>> {
        let image = room.join(self.name).with_extension("squashfs");
        if self.squash && !image.exists() {
            let made = image.with_extension("part");
            let mut squash = Command::new(bin.join("mksquashfs"));
            squash.args([&room.join(self.source), &made]);
            shell::run(squash.args(["-comp", "lz4", "-b", "128K", "-noappend", "-no-progress", "-quiet"]))?;
            fs::rename(made, &image)?;
        }
        Ok(self.squash.then_some(image))
    }
}

/// Makes the tree and the file, once.
fn plant(room: &Path) -> Result<()> {
    let (tree, file) = (room.join("tree"), room.join("file/file"));
    if !tree.exists() {
        let part = room.join("tree.part");
        fs::create_dir_all(&part)?;
        let mut bytes = 0;
        for source in SOURCES.iter().filter(|source| Path::new(source).exists()) {
            if bytes < TREE_BYTES {
                // From the root on: with absolute names some releases of cp look for the parents' attributes elsewhere.
                let name = source.trim_start_matches('/');
                shell::run(Command::new("cp").args(["-a", "--parents", name]).arg(&part).current_dir("/"))?;
                bytes = size_of_tree(&part)?;
            }
        }
        fs::rename(part, &tree)?;
    }
    if file.metadata().map_or(0, |file| file.len()) != FILE_BYTES {
        fs::create_dir_all(room.join("file"))?;
        let mut out = BufWriter::new(File::create(&file)?);
        let mut left = FILE_BYTES;
        each_file(&tree, &mut |path, len| {
            // Real content, in the order of its names, but no bits of small files.
            if len >= 100 << 10 && left > 0 {
                left -= std::io::copy(&mut File::open(path)?.take(left), &mut out)?;
            }
            Ok(())
        })?;
        out.flush()?;
        if left > 0 {
            bail!("{} has no {FILE_BYTES} bytes in large files", tree.display());
        }
    }
    Ok(())
}

fn size_of_tree(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    each_file(dir, &mut |_, len| {
        bytes += len;
        Ok(())
    })?;
    Ok(bytes)
}

/// Tells of each regular file below `dir`, in the order of names.
pub(super) fn each_file(dir: &Path, tell: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let meta = entry.metadata()?;
        if meta.is_dir() {
            each_file(&entry.path(), tell)?;
        } else if meta.is_file() {
            tell(&entry.path(), meta.len())?;
        }
    }
    Ok(())
}

struct Contestant<'a> {
    name: &'static str,
    command: Box<dyn Fn(&Path) -> Run + 'a>,
    outcomes: Vec<Outcome>,
}

impl<'a> Contestant<'a> {
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

    /// Of wall and processor seconds.
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
            format!("{:.2} ({:.2})", wall.middle, wall.least),
            format!("x {:.2}", wall.middle / first_wall.middle),
            format!("{:.2} ({:.2})", cpu.middle, cpu.least),
            format!("x {:.2}", cpu.middle / first_cpu.middle),
        );
        Ok(())
    }
}
