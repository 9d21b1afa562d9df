//! The cells: what is measured.

use std::fs;
use std::path::Path;

use anyhow::Result;
use ferofs_tests::rng::Rng;

use super::trees;
use crate::charts::PRESETS;

/// Settings of `ferofs build`, besides the presets: name, options, source. The name says what is
/// special.
const SETTINGS: [(&str, &str, &str); 15] = [
    ("uncompressed", "-z none", "trees/mixed"),
    ("lz4 tails", "--preset fast -E ztailpacking", "trees/mixed"),
    ("lz4hc 12", "-z lz4hc,12 -C 128K", "trees/mixed"),
    ("zstd 3 blocks", "--preset fast -z zstd,3 -C 64K", "trees/mixed"),
    ("zstd 3 bytes", "-z zstd,3 -C 128K -E 48bit,fragments", "trees/mixed"),
    ("zstd 15 bytes", "-z zstd,15 -C 128K -E 48bit,fragments", "trees/mixed"),
    ("lzma 6", "-z lzma,6 -C 128K", "trees/mixed"),
    ("deflate", "-z deflate -C 64K", "trees/mixed"),
    ("dedupe", "-z lz4 -E dedupe", "trees/copies"),
    ("chunks", "--chunk-size 4096", "trees/copies"),
    ("tar", "-z lz4", "trees/mixed.tar"),
    ("small files", "-z lz4", "trees/small"),
    ("large file", "-z zstd,1 -C 64K", "trees/large"),
    ("like", "-z zstd,3 -C 128K -E all-fragments --like images/zstd", "trees/new"),
    ("2 workers", "-z zstd,3 -C 64K --workers 2", "trees/mixed"),
];

/// The images that the other cells read: name, options, source.
const IMAGES: [(&str, &str, &str); 7] = [
    ("lz4", "-z lz4", "trees/mixed"),
    ("zstd", "-z zstd,3 -C 128K -E all-fragments", "trees/mixed"),
    ("new", "-z zstd,3 -C 128K -E all-fragments", "trees/new"),
    ("lzma", "-z lzma,1 -C 128K", "trees/mixed"),
    ("large", "-z zstd,3 -C 64K", "trees/large"),
    ("small", "-z lz4 -C 64K -E fragments", "trees/small"),
    ("sealed", "-z lz4 --verity --roothash-file images/roothash", "trees/mixed"),
];

/// Makes the patch that another cell applies.
const PATCH: &str = "patch create images/zstd trees/new --output images/patch --workers 1";
/// Makes the delta that another cell applies.
const DELTA: &str =
    "delta create --level 3 images/zstd images/new --output images/delta --workers 1";

/// The output of a command is this word of its arguments. Each run gets another path of the same
/// length.
pub(super) const OUTPUT: &str = "OUTPUT";

/// Something that is measured.
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) job: Job,
}

/// The program alone: its start, and the memory that its own pages take.
pub(super) fn start() -> Cell {
    Cell {
        name: "start".to_owned(),
        job: Job::Command { arguments: vec!["--version".to_owned()], copy_of: None },
    }
}

pub(super) enum Job {
    /// A command of ferofs, which runs in the directory of the benchmark.
    Command {
        arguments: Vec<String>,
        /// The command changes its [`OUTPUT`], which is a copy of this file.
        copy_of: Option<&'static str>,
    },
    /// Reads of a FUSE mount.
    Mount { image: &'static str, reads: Reads },
}

/// What a program reads of a mount.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// All files, one after the other.
    All,
    /// Names and attributes of everything.
    Names,
    /// Pages of the largest file, each the `n`-th of them on average.
    Pages(u64),
}

/// The commands that make what the cells read.
pub(super) fn preparations() -> Vec<Vec<String>> {
    let image = |&(name, options, source): &_| build(options, source, &format!("images/{name}"));
    IMAGES.iter().map(image).chain([words(PATCH), words(DELTA)]).collect()
}

/// All cells. `dir` is the directory of the benchmark, with the trees and the images.
pub(super) fn all(dir: &Path) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for (name, options) in PRESETS {
        cells.push(Cell::command(
            format!("build preset {name}"),
            build(options, "trees/mixed", OUTPUT),
        ));
    }
    for (name, options, source) in SETTINGS {
        cells.push(Cell::command(format!("build {name}"), build(options, source, OUTPUT)));
    }
    for image in ["lz4", "zstd", "small"] {
        cells.push(Cell::command(
            format!("check {image}"),
            words(&format!("check --workers 1 images/{image}")),
        ));
    }
    for image in ["lz4", "zstd", "lzma"] {
        let check = format!("check --deep --workers 1 images/{image}");
        cells.push(Cell::command(format!("check deep {image}"), words(&check)));
        let extract = format!("extract --workers 1 images/{image} {OUTPUT}");
        cells.push(Cell::command(format!("extract {image}"), words(&extract)));
    }
    let files = trees::files(&dir.join("trees/mixed"))?;
    let mut shuffled = files.clone();
    shuffle(&mut shuffled);
    let few = &shuffled[..files.len() / 16];
    for image in ["lz4", "zstd"] {
        for (name, files) in [("all", &files[..]), ("shuffled", &shuffled), ("few", few)] {
            cells.push(Cell::command(format!("read {name} {image}"), cat(image, files)));
        }
    }
    let create = format!("patch create images/zstd trees/new --output {OUTPUT} --workers 1");
    let apply = format!("patch apply {OUTPUT} images/patch");
    let create_delta =
        format!("delta create --level 3 images/zstd images/new --output {OUTPUT} --workers 1");
    let apply_delta = format!("delta apply images/zstd images/delta {OUTPUT}");
    let format = format!("verity format --threads 1 {OUTPUT}");
    let verify = format!("verity verify --threads 1 images/sealed {}", root_hash(dir)?);
    cells.push(Cell::command("patch create".into(), words(&create)));
    cells.push(Cell::change("patch apply", &apply, "images/zstd"));
    cells.push(Cell::command("delta create".into(), words(&create_delta)));
    cells.push(Cell::command("delta apply".into(), words(&apply_delta)));
    cells.push(Cell::change("verity format", &format, "images/zstd"));
    cells.push(Cell::command("verity verify".into(), words(&verify)));
    for (name, image, reads) in [
        ("mount all lz4", "lz4", Reads::All),
        ("mount all zstd", "zstd", Reads::All),
        ("mount names", "small", Reads::Names),
        ("mount sparse", "large", Reads::Pages(50)),
        ("mount dense", "large", Reads::Pages(2)),
    ] {
        cells.push(Cell { name: name.into(), job: Job::Mount { image, reads } });
    }
    Ok(cells)
}

impl Cell {
    fn command(name: String, arguments: Vec<String>) -> Self {
        Self { name, job: Job::Command { arguments, copy_of: None } }
    }

    pub(super) fn is_mount(&self) -> bool {
        matches!(self.job, Job::Mount { .. })
    }

    /// A command that changes a copy of a file.
    fn change(name: &str, command: &str, file: &'static str) -> Self {
        let job = Job::Command { arguments: words(command), copy_of: Some(file) };
        Self { name: name.into(), job }
    }
}

/// A build of one worker, unless the options say otherwise: its work does not depend on when
/// threads run.
fn build(options: &str, source: &str, image: &str) -> Vec<String> {
    let workers = if options.contains("--workers") { "" } else { "--workers 1" };
    words(&format!("build {options} {workers} {source} {image}"))
}

fn cat(image: &str, files: &[String]) -> Vec<String> {
    ["cat".to_owned(), format!("images/{image}")].into_iter().chain(files.iter().cloned()).collect()
}

/// The root hash of the sealed image.
fn root_hash(dir: &Path) -> Result<String> {
    Ok(fs::read_to_string(dir.join("images/roothash"))?)
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Puts the files into a random order, the same each time.
fn shuffle(files: &mut [String]) {
    let mut rng = Rng::new(1);
    for number in (1..files.len()).rev() {
        files.swap(number, rng.below(number as u64 + 1) as usize);
    }
}
