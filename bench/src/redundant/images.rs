//! Images of a tree with many versions: sizes, processor time and memory of each program and setting.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ferofs_devtools::peers;
use ferofs_tests::{Run, scratch};

use super::{TIMEOUT, succeed};

/// Options of mksquashfs and mkfs.erofs that fit the settings below.
const SQUASHFS_OPTIONS: &str = "-comp zstd -Xcompression-level 15 -b 1M";
const EROFS_OPTIONS: &str = "-zzstd,level=15 -C1048576 -Eall-fragments";

/// Options of `ferofs build`, each a line of the table. Each `48bit` follows the same options without it.
const SETTINGS: [&str; 7] = [
    "-z zstd,15 -C 1M -E all-fragments --order tree",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order tree",
    "-z zstd,15 -C 1M -E all-fragments,dedupe --order tree",
    "-z zstd,15 -C 1M -E all-fragments --order similar",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order similar",
    "--preset backup --order tree",
    PRESET,
];
pub(super) const PRESET: &str = "--preset backup";

/// One image.
pub(super) struct Built {
    /// The program and its options.
    pub(super) what: String,
    pub(super) size: u64,
    pub(super) cpu: f64,
    pub(super) peak: u64,
}

/// All images of a tree.
pub(super) struct Images {
    pub(super) squashfs: Built,
    pub(super) erofs: Built,
    /// In the order of [`SETTINGS`].
    pub(super) ferofs: Vec<Built>,
}

impl Images {
    /// Sizes without and with `48bit`, of settings that are else the same.
    pub(super) fn with_48bit(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ferofs
            .windows(2)
            .filter(|pair| pair[1].what.contains("48bit"))
            .map(|pair| (pair[0].size, pair[1].size))
    }

    /// The images of the preset: in the order of the tree, and in the similar order.
    pub(super) fn preset(&self) -> Result<(&Built, &Built)> {
        match self.ferofs.as_slice() {
            [.., tree, similar] => Ok((tree, similar)),
            _ => anyhow::bail!("the preset was not measured"),
        }
    }
}

/// Builds all images of `tree`, one after the other at `image`.
pub(super) fn measure(tree: &Path, image: &Path, ferofs: &Path) -> Result<Images> {
    let bin = peers::installed(&scratch::target_dir());
    let bin = bin.context("mksquashfs and mkfs.erofs are missing: run `cargo xtask peers` first")?;
    let built = |what: String, run: Run| -> Result<Built> {
        let _ = fs::remove_file(image);
        let outcome = succeed(&what, run)?;
        let size = fs::metadata(image).with_context(|| what.clone())?.len();
        Ok(Built { what, size, cpu: outcome.cpu.as_secs_f64(), peak: outcome.peak })
    };
    let run = Run::limited(bin.join("mksquashfs"), None, TIMEOUT).args([tree, image]);
    let run = run.args(SQUASHFS_OPTIONS.split(' ')).args(["-noappend", "-no-progress", "-quiet"]);
    let squashfs = built(format!("mksquashfs `{SQUASHFS_OPTIONS}`"), run)?;
    let run = Run::limited(bin.join("mkfs.erofs"), None, TIMEOUT).args(EROFS_OPTIONS.split(' '));
    let erofs = built(format!("mkfs.erofs `{EROFS_OPTIONS}`"), run.arg("--quiet").args([image, tree]))?;
    let mut images = Vec::new();
    for settings in SETTINGS {
        let run = Run::limited(ferofs, None, TIMEOUT).args(["build", "--quiet"]).args(settings.split(' '));
        images.push(built(format!("ferofs build `{settings}`"), run.args([tree, image]))?);
    }
    fs::remove_file(image)?;
    Ok(Images { squashfs, erofs, ferofs: images })
}
