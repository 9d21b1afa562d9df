//! Source trees of many small files. The same number of files gives the same tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Files of a directory.
const PER_DIRECTORY: usize = 1000;

/// A random number for each `n`: SplitMix64.
fn random(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A tree of `files` small files below `dir`, in directories of 1,000. Their names have 16 bytes, and their content has up to 24 words.
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
            at = unfinished.join(format!("d{:03}/s{:05}", file / PER_DIRECTORY / 100, file / PER_DIRECTORY));
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
