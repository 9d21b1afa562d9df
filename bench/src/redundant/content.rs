//! What general compression makes of a tree: compressed archives, and the content of different files for several windows. A window finds
//! what is repeated within its size, so that the difference of two sizes is what repetitions at the distances between them save.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::common::walk;

/// Windows of zstd for archives, as powers of two.
const ARCHIVE_WINDOWS: [u32; 2] = [23, 30];
/// Windows for content: Linux's limit for Zstandard, that for LZMA, and two beyond.
const CONTENT_WINDOWS: [u32; 4] = [20, 23, 27, 30];

/// Prints the sizes for `tree`, whose versions are its directories.
pub(super) fn print(tree: &Path) -> Result<()> {
    let mut files = Vec::new();
    walk::each_file(tree, &mut |path, len| {
        files.push((path.strip_prefix(tree)?.to_owned(), len));
        Ok(())
    })?;
    let mut by_path: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    let total: u64 = files.iter().map(|(_, len)| len).sum();
    for order in ["of the tree", "of paths without the version"] {
        if order != "of the tree" {
            by_path.sort_by_key(|path| path.components().skip(1).collect::<PathBuf>());
        }
        for window in ARCHIVE_WINDOWS {
            let pack = "tar --null --no-recursion -cf - -T -";
            let size = compressed(tree, &by_path, pack, window)?;
            println!("| tar in the order {order}, `zstd -15 --long={window}` | {size} | | |");
        }
    }
    println!("| content of all files | {total} | | |");
    let (different, bytes) = different_files(tree, &by_path)?;
    println!("| content of different files | {bytes} | | |");
    for window in CONTENT_WINDOWS {
        let size = compressed(tree, &different, "xargs -0 cat", window)?;
        println!(
            "| content of different files, by paths without the version, `zstd -15 --long={window}` | {size} | | |"
        );
    }
    Ok(())
}

/// The first file of each content, and the bytes of these.
fn different_files(tree: &Path, paths: &[PathBuf]) -> Result<(Vec<PathBuf>, u64)> {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let (mut different, mut bytes) = (Vec::new(), 0);
    for path in paths {
        let content = fs::read(tree.join(path)).with_context(|| path.display().to_string())?;
        let len = content.len() as u64;
        if seen.insert(content) {
            bytes += len;
            different.push(path.clone());
        }
    }
    Ok((different, bytes))
}

/// Bytes of what `pack` makes of a list of paths, compressed.
fn compressed(tree: &Path, paths: &[PathBuf], pack: &str, window: u32) -> Result<u64> {
    let script = format!("{pack} | zstd -q -15 --long={window} -c | wc -c");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_os_str().as_encoded_bytes());
        list.push(0);
    }
    child.stdin.take().context("sh has no input")?.write_all(&list)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().with_context(|| format!("{script} printed {text}"))
}
