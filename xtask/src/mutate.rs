//! `cargo xtask mutate`: images of every feature, changed in one place each, checked and read in memory.
//!
//! The work is done by `crates/ferofs/examples/mutate`; here the images are made, by ferofs and by erofs-utils, and
//! the processes' counts added up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::scratch;
use ferofs_tests::tree::Plot;

use crate::{peers, shell};

/// What `ferofs build` makes.
const OURS: [(&str, &[&str]); 2] = [("ferofs-plain", &[]), ("ferofs-lz4", &["--compress", "lz4"])];

/// What `mkfs.erofs` 1.9 makes.
const THEIRS: [(&str, &[&str]); 23] = [
    ("plain", &[]),
    ("lz4", &["-zlz4"]),
    ("lz4hc", &["-zlz4hc,level=12"]),
    ("lzma", &["-zlzma"]),
    ("deflate", &["-zdeflate"]),
    ("zstd", &["-zzstd"]),
    ("two-algorithms", &["-zlz4:lzma"]),
    ("big-pclusters", &["-zlz4hc", "-C65536"]),
    ("full-index", &["-zlz4", "-Elegacy-compress"]),
    ("ztailpacking", &["-zlz4hc", "-Eztailpacking"]),
    ("ztailpacking-lzma", &["-zlzma", "-C65536", "-Eztailpacking"]),
    ("fragments", &["-zlz4hc", "-C65536", "-Efragments"]),
    ("all-fragments", &["-zlzma", "-Eall-fragments"]),
    ("all-fragments-dedupe", &["-zlz4hc", "-C16384", "-Eall-fragments,dedupe"]),
    ("dedupe", &["-zlz4", "-Ededupe"]),
    ("chunks", &["--chunksize=4096"]),
    ("48bit", &["-zlz4", "-E48bit"]),
    ("48bit-zstd", &["-zzstd", "-C65536", "-E48bit"]),
    ("metabox", &["-zlz4hc", "-m4096", "--MZ=id"]),
    ("xattr-prefixes", &["-x1", "--xattr-prefix=user.long.prefix."]),
    ("extended-inodes", &["-Eforce-inode-extended"]),
    ("blocks-of-512", &["-b512"]),
    ("compressed-directories", &["-zlz4hc", "--zD=1"]),
];

pub(crate) fn mutate(options: &[&str]) -> Result<()> {
    let (mut images, mut seed, mut options) = (20_000u64, 1u64, options.iter());
    while let Some(option) = options.next() {
        let value = options.next().with_context(|| format!("{option} needs a number"))?;
        match *option {
            "--images" => images = value.parse().context("--images")?,
            "--seed" => seed = value.parse().context("--seed")?,
            unknown => bail!("unknown option {unknown}"),
        }
    }
    let room = scratch::target_dir().join("mutate");
    let subjects = subjects(&room)?;
    shell::run(shell::cargo().args([
        "build",
        "--profile",
        "checked",
        "--package",
        "ferofs",
        "--example",
        "mutate",
    ]))?;
    let program = scratch::target_dir().join("checked/examples/mutate");
    let processes = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    println!("{images} images of {} feature sets, {processes} processes, seed {seed}", subjects.len());
    let running: Vec<_> = (0..processes)
        .map(|n| {
            let mut command = Command::new(&program);
            command.args(["--images", &images.div_ceil(processes).to_string()]);
            command.args(["--seed", &(seed * 1000 + n).to_string()]).arg("--keep").arg(room.join("kept"));
            command.args(&subjects).stdout(Stdio::piped()).spawn().context("mutate")
        })
        .collect::<Result<_>>()?;
    let mut total = Total::default();
    for process in running {
        let output = process.wait_with_output()?;
        total.add(&String::from_utf8_lossy(&output.stdout), output.status.success());
    }
    total.print();
    match total.failed {
        false => Ok(()),
        true => bail!("failures, kept in {}", room.join("kept").display()),
    }
}

/// The images to start from, made anew.
fn subjects(room: &Path) -> Result<Vec<PathBuf>> {
    let source = room.join("source");
    if room.exists() {
        fs::remove_dir_all(room)?;
    }
    fs::create_dir_all(&source)?;
    plant(&source)?;
    let ferofs = shell::build_ferofs("checked")?;
    let mut made = Vec::new();
    for (name, options) in OURS {
        let image = room.join(name).with_extension("erofs");
        shell::run(Command::new(&ferofs).arg("build").args(options).arg(&source).arg(&image))?;
        made.push(image);
    }
    let Some(bin) = peers::installed(&scratch::target_dir()) else {
        eprintln!("no newest erofs-utils (cargo xtask peers): ferofs' own images only");
        return Ok(made);
    };
    for (name, options) in THEIRS {
        let image = room.join(name).with_extension("erofs");
        let mut mkfs = Command::new(bin.join("mkfs.erofs"));
        shell::run(mkfs.args(["--quiet", "-T1700000000"]).args(options).arg(&image).arg(&source))?;
        made.push(image);
    }
    Ok(made)
}

/// A small tree with a bit of everything: metadata shall be a good part of the image.
fn plant(dir: &Path) -> Result<()> {
    let plot = Plot::open(dir, Rng::new(5), false)?;
    let text = |name: &[u8], len: usize| Content::Text.bytes(len, &mut plot.rng(name));
    let long = text(b"text", 40_000);
    plot.file(b"text", &long)?;
    plot.file(b"empty", b"")?;
    plot.file(b"one", b"1")?;
    plot.file(b"zeroes", &[0; 20_000])?;
    plot.symlink(b"link", b"text")?;
    plot.symlink(b"long-link", &[b'x'; 300])?;
    plot.sub(b"dir", |dir| {
        dir.file(b"copy", &long[4096..30_000])?;
        dir.file(b"tail", &text(b"tail", 4500))?;
        dir.file(b"block", &text(b"block", 4096))?;
        let mut noise = vec![0; 6000];
        dir.rng(b"noise").fill(&mut noise);
        dir.file(b"mixed", &[text(b"mixed", 9000), noise.clone(), text(b"end", 3000)].concat())?;
        dir.file(b"noise", &noise)?;
        dir.link(b"tail", dir, b"hard")
    })?;
    plot.sub(b"wide", |dir| {
        (0..30).try_for_each(|n| dir.file(format!("name{n:03}").as_bytes(), &text(b"wide", 10 * n)))
    })?;
    for (name, key, value) in [
        (&b"text"[..], &b"user.short"[..], &b"v"[..]),
        (b"one", b"user.long.prefix.one", b"a value that several files have"),
        (b"dir", b"user.long.prefix.two", b"a value that several files have"),
        (b"wide", b"user.long.prefix.one", b"a value that several files have"),
    ] {
        plot.xattr(name, key, value)?;
    }
    plot.finish()?;
    Ok(())
}

/// The counts of all processes.
#[derive(Default)]
struct Total {
    counts: BTreeMap<String, u64>,
    /// Kinds of findings, and what `check` left unsaid.
    kinds: BTreeMap<String, u64>,
    unnoticed: BTreeMap<String, u64>,
    failed: bool,
}

impl Total {
    fn add(&mut self, text: &str, success: bool) {
        self.failed |= !success;
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words[..] {
                ["runs", ..] => {
                    let words: Vec<&str> = line.split(' ').collect();
                    for pair in words.chunks_exact(2) {
                        let (name, value) = (pair[0], pair[1].parse().unwrap_or(0));
                        let count = self.counts.entry(name.to_owned()).or_default();
                        // The largest of them, or their sum.
                        *count = if name.contains('-') && name != "other-values" {
                            value.max(*count)
                        } else {
                            *count + value
                        };
                    }
                }
                ["kind", count, kind] => {
                    *self.kinds.entry(kind.to_owned()).or_default() += count.parse().unwrap_or(0)
                }
                ["unnoticed", count, kind] => {
                    *self.unnoticed.entry(kind.to_owned()).or_default() += count.parse().unwrap_or(0);
                }
                _ => println!("{line}"),
            }
        }
    }

    fn print(&self) {
        for (kind, count) in &self.kinds {
            println!("{count:8}  reported: {kind}");
        }
        for (kind, count) in &self.unnoticed {
            println!("{count:8}  not reported, {kind}");
        }
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        println!(
            "{} images: {} reported ({} kinds), {} read the same, {} with other values, {} not reported, {} failures",
            count("runs"),
            count("reported"),
            self.kinds.len(),
            count("same"),
            count("other-values"),
            count("unnoticed"),
            count("failures")
        );
        println!(
            "slowest {} ms of CPU, most memory {} KiB",
            count("slowest-us") / 1000,
            count("most-bytes") >> 10
        );
    }
}
