//! `cargo xtask bench like [--only NAME]...`: how much of an image programs transfer that has the earlier one, with `build --like` and without. The
//! updates are those of [`updates`]; all files have the same time, as in reproducible images: new times change every inode.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
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
    if parts.publish {
        bail!("no page has these figures");
    }
    install::install(&[CASYNC])?;
    let ferofs = programs::ferofs()?;
    let report = Report::new("like", &[("ferofs", ferofs.as_path(), "--version")])?;
    let work_dir = scratch();
    let mut rows = Vec::new();
    for name in updates::names().into_iter().filter(|name| parts.has(name)) {
        let trees = updates::trees(name)?;
        for form in FORMS {
            let cells = measure(&ferofs, work_dir.path(), form, &trees).context(name)?;
            rows.push([vec![name.to_owned(), format!("`{form}`")], cells].concat());
        }
    }
    report.add(&Table {
        title: "Images like earlier ones".into(),
        text: "Bytes that a device fetches which has the old image: blocks of 4 KiB, and chunks of casync. “Like” is with `--like`.".into(),
        head: vec![
            "update", "form", "fresh", "like / fresh", "blocks", "blocks, like", "ratio", "casync", "casync, like", "ratio",
        ],
        rows,
    });
    Ok(())
}

/// The cells of one line of the table.
fn measure(
    ferofs: &Path,
    dir: &Path,
    form: &str,
    [old_tree, new_tree]: &[PathBuf; 2],
) -> Result<Vec<String>> {
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
    let mut cells = vec![size(&fresh)? as f64, size(&like)? as f64 / size(&fresh)? as f64];
    let blocks = [blocks(&old, &fresh)?, blocks(&old, &like)?];
    let chunks = [casync(&old, &fresh, dir)?, casync(&old, &like, dir)?];
    for [without, with] in [blocks, chunks] {
        cells.extend([without as f64, with as f64, with as f64 / without as f64]);
    }
    Ok(cells.into_iter().map(number).collect())
}

/// Bytes of the blocks of the new image that the old one does not have.
fn blocks(old: &Path, new: &Path) -> Result<u64> {
    let (old, new) = (fs::read(old)?, fs::read(new)?);
    let known: HashSet<&[u8]> = old.chunks(BLOCK).collect();
    Ok(new.chunks(BLOCK).filter(|block| !known.contains(block)).map(|block| block.len() as u64).sum())
}
