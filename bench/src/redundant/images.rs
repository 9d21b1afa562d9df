//! Images of a tree with many versions: sizes, processor time and memory of each program and setting.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::common::programs::{Programs, Tool};

/// Options of mksquashfs that fit the settings below.
const SQUASHFS_OPTIONS: &str = "-comp zstd -Xcompression-level 15 -b 1M";

/// Options of `ferofs build`, each a line of the table. Each `48bit` follows the same options without it.
const SETTINGS: [&str; 4] = [
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
pub(super) fn measure(tree: &Path, image: &Path, programs: &Programs) -> Result<Images> {
    let built = |tool: Tool, options: &str| -> Result<Built> {
        let _ = fs::remove_file(image);
        let outcome = programs.build(tool, options, tree, image)?;
        let size = fs::metadata(image)?.len();
        let what = format!("{} `{options}`", tool.name());
        Ok(Built { what, size, cpu: outcome.cpu.as_secs_f64(), peak: outcome.peak })
    };
    let squashfs = built(Tool::Mksquashfs, SQUASHFS_OPTIONS)?;
    let ferofs = SETTINGS.iter().map(|options| built(Tool::Ferofs, options)).collect::<Result<_>>()?;
    fs::remove_file(image)?;
    Ok(Images { squashfs, ferofs })
}
