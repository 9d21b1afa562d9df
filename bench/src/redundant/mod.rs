//! `cargo xtask bench redundant [--only FAMILY]...`: the smallest images of trees with many versions of the same files, compared with
//! mksquashfs, mkfs.erofs and compressed archives. The sizes do not depend on the machine.

mod content;
mod families;
mod snapshots;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, EROFS_UTILS, SQUASHFS, ZSTD};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{Run, scratch};

/// A command that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Options of mksquashfs and mkfs.erofs that fit the settings below.
const SQUASHFS_OPTIONS: &str = "-comp zstd -Xcompression-level 15 -b 1M";
const EROFS_OPTIONS: &str = "-zzstd,level=15 -C1048576 -Eall-fragments";

/// Options of `ferofs build`, each a line of the table.
const SETTINGS: [&str; 6] = [
    "-z zstd,15 -C 1M -E all-fragments --order tree",
    "-z zstd,15 -C 1M -E all-fragments,dedupe --order tree",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order tree",
    "-z zstd,15 -C 1M -E all-fragments --order similar",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order similar",
    PRESET,
];
const PRESET: &str = "--preset backup";

pub(crate) fn redundant(options: &[&str]) -> Result<()> {
    let mut only = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--only" => only.push(*options.next().context("--only needs a family")?),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    if let Some(unknown) =
        only.iter().find(|name| families::FAMILIES.iter().all(|(family, _)| family != *name))
    {
        bail!("no such family: {unknown}");
    }
    install::install(&[EROFS_UTILS, SQUASHFS, ZSTD])?;
    let ferofs = shell::build_ferofs("release")?;
    let trees = scratch::target_dir().join("bench-redundant");
    let work_dir = scratch();
    let image = work_dir.path().join("image");
    for (name, make) in families::FAMILIES {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        let tree = trees.join(name);
        let complete = trees.join(format!("{name}.complete"));
        if !complete.exists() {
            let _ = fs::remove_dir_all(&tree);
            fs::create_dir_all(&tree)?;
            make(&tree)?;
            fs::write(&complete, "")?;
        }
        println!("\n| {name} | bytes | CPU s | peak MB |\n|---|---|---|---|");
        sizes(&tree, &image, &ferofs)?;
        content::print(&tree)?;
        if name == families::NIGHTLY {
            snapshots::print(&tree, work_dir.path(), &ferofs)?;
        }
    }
    Ok(())
}

/// Prints the sizes of images of `tree`.
fn sizes(tree: &Path, image: &Path, ferofs: &Path) -> Result<()> {
    let bin = peers::installed(&scratch::target_dir());
    let bin = bin.context("mksquashfs and mkfs.erofs are missing: run `cargo xtask peers` first")?;
    let peer = |name: &str| bin.join(name);
    let line = |what: &str, run: Run| -> Result<()> {
        let outcome = succeed(what, run)?;
        let size = fs::metadata(image).with_context(|| what.to_owned())?.len();
        let (cpu, peak) = (outcome.cpu.as_secs_f64(), outcome.peak as f64 / 1e6);
        println!("| {what} | {size} | {cpu:.1} | {peak:.0} |");
        Ok(())
    };
    let run = Run::limited(peer("mksquashfs"), None, TIMEOUT).args([tree, image]);
    let run = run.args(SQUASHFS_OPTIONS.split(' ')).args(["-noappend", "-no-progress", "-quiet"]);
    line(&format!("mksquashfs `{SQUASHFS_OPTIONS}`"), run)?;
    fs::remove_file(image)?;
    let run = Run::limited(peer("mkfs.erofs"), None, TIMEOUT).args(EROFS_OPTIONS.split(' '));
    line(&format!("mkfs.erofs `{EROFS_OPTIONS}`"), run.arg("--quiet").args([image, tree]))?;
    for settings in SETTINGS {
        let run = Run::limited(ferofs, None, TIMEOUT).arg("build").args(settings.split(' '));
        line(&format!("ferofs build `{settings}`"), run.args([tree, image]))?;
    }
    // The last image is that of the preset.
    parts(image, ferofs)?;
    fs::remove_file(image)?;
    Ok(())
}

/// Prints what an image consists of.
fn parts(image: &Path, ferofs: &Path) -> Result<()> {
    let inspect = Run::limited(ferofs, None, TIMEOUT).args(["inspect", "--json"]).arg(image);
    let report: serde_json::Value = serde_json::from_slice(&succeed("ferofs inspect", inspect)?.stdout)?;
    let (mut encoded, mut stored) = (0, 0);
    for (kind, bytes) in report["storage"].as_object().into_iter().flatten() {
        let bytes = bytes["encoded"].as_u64().unwrap_or(0);
        match kind.as_str() {
            // Parts of fragments are in the clusters of the packed inode, which are counted.
            "fragment" | "inline" | "hole" => {}
            "stored" => stored += bytes,
            _ => encoded += bytes,
        }
    }
    println!("| of the last image: content in compressed clusters | {encoded} | | |");
    println!("| of the last image: stored content | {stored} | | |");
    let rest = fs::metadata(image)?.len().saturating_sub(encoded + stored);
    println!("| of the last image: inodes, directories, indexes, padding | {rest} | | |");
    Ok(())
}

/// Runs a command that must succeed; `what` names it in the error.
fn succeed(what: &str, run: Run) -> Result<ferofs_tests::Outcome> {
    let outcome = run.try_run()?;
    if outcome.code != 0 {
        bail!("{what}: {}", outcome.stderr);
    }
    Ok(outcome)
}
