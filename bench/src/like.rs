//! `cargo xtask bench like [--only NAME]... [--publish]`: how much of an image programs fetch that
//! have the earlier one, with `build --like` and without. The updates are those of [`updates`]; all
//! files have the same time, as in reproducible images: new times change every inode.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_devtools::install::{self, CASYNC};
use ferofs_tests::{Run, scratch};

use crate::common::deltas::{TIMEOUT, casync, size};
use crate::common::options::SizeArgs;
use crate::common::programs::{self, succeed};
use crate::common::report::{Report, Table, number};
use crate::trees::updates;

/// Options of `ferofs build`.
const FORMS: [&str; 3] = ["--preset default", "--preset fast", "--preset fast -z zstd,9 -C 64K"];
/// RAUC's block-hash-index and dm-verity compare blocks of this many bytes.
const BLOCK: usize = 4096;

/// Measures the updates that `--only` names, or all of them.
pub(crate) fn like(parts: &SizeArgs) -> Result<()> {
    parts.check(&updates::names())?;
    install::install(&[CASYNC])?;
    let ferofs = programs::ferofs()?;
    let report = Report::new("like", &[("ferofs", ferofs.as_path(), "--version")])?;
    let work_dir = scratch();
    let mut rows = Vec::new();
    for name in updates::names().into_iter().filter(|name| parts.has(name)) {
        let trees = updates::trees(name)?;
        for form in FORMS {
            let figures = measure(&ferofs, work_dir.path(), form, &trees).context(name)?;
            let cells = figures.cells();
            rows.push((
                ratio(figures.chunks),
                [&[name.to_owned(), format!("`{form}`")], &cells[..]].concat(),
            ));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let table = Table {
        title: "Images like earlier ones".into(),
        text: "Bytes that a device fetches which has the old image: chunks of casync, and blocks of 4 KiB. “Ratio” is with `--like` / \
               without. The worst ratios come first."
            .into(),
        head: vec![
            "update",
            "form",
            "casync, ratio",
            "blocks, ratio",
            "size, ratio",
            "casync",
            "casync, like",
            "blocks",
            "blocks, like",
            "image",
        ],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    };
    report.add(&table);
    if parts.publish {
        report.publish("sizes, which do not depend on the machine.", table, 1, 2)?;
    }
    Ok(())
}

/// Bytes of one update and form, without `--like` and with it.
struct Figures {
    chunks: [u64; 2],
    blocks: [u64; 2],
    sizes: [u64; 2],
}

impl Figures {
    /// The cells of a line, in the order of the table's head.
    fn cells(&self) -> Vec<String> {
        let Self { chunks, blocks, sizes } = *self;
        let ratios = [chunks, blocks, sizes].map(ratio);
        let bytes =
            [chunks[0], chunks[1], blocks[0], blocks[1], sizes[0]].map(|bytes| bytes as f64);
        ratios.into_iter().chain(bytes).map(number).collect()
    }
}

fn ratio([without, with]: [u64; 2]) -> f64 {
    with as f64 / without.max(1) as f64
}

fn measure(
    ferofs: &Path,
    dir: &Path,
    form: &str,
    [old_tree, new_tree]: &[PathBuf; 2],
) -> Result<Figures> {
    let [old, fresh, like] = ["old.erofs", "fresh.erofs", "like.erofs"].map(|name| dir.join(name));
    let build = |tree: &Path, options: &[&Path], image: &Path| {
        let run = Run::limited(ferofs, None, TIMEOUT).args([
            "build",
            "--quiet",
            "-T",
            "0",
            "--all-time=0",
            "-U",
            "clear",
        ]);
        succeed("ferofs build", run.args(form.split(' ')).args(options).arg(tree).arg(image))
    };
    build(old_tree, &[], &old)?;
    build(new_tree, &[], &fresh)?;
    build(new_tree, &["--like".as_ref(), &old], &like)?;
    Ok(Figures {
        chunks: [casync(&old, &fresh, dir)?, casync(&old, &like, dir)?],
        blocks: [blocks(&old, &fresh)?, blocks(&old, &like)?],
        sizes: [size(&fresh)?, size(&like)?],
    })
}

/// Bytes of the blocks of the new image that the old one does not have.
fn blocks(old: &Path, new: &Path) -> Result<u64> {
    let (old, new) = (fs::read(old)?, fs::read(new)?);
    let known: HashSet<&[u8]> = old.chunks(BLOCK).collect();
    Ok(new
        .chunks(BLOCK)
        .filter(|block| !known.contains(block))
        .map(|block| block.len() as u64)
        .sum())
}
