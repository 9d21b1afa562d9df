//! `cargo xtask bench read`: how fast the read engine is, how much it reads and decodes, and how much memory it uses.
//!
//! This module makes the images and then starts `crates/ferofs/benches/read.rs`, which measures and prints the table. The images
//! contain Debian's Linux source: one large text in LZ4 clusters of 4 KiB, as in the EROFS paper's evaluation, and 50,000
//! small files in LZMA fragments, built once by ferofs and once by erofs-utils. Later runs use the same images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{need, scratch};

use crate::common::linux_source;

/// Bytes of the large text.
const TEXT: u64 = 512 << 20;
/// Files in the tree.
const FILES: usize = 50_000;

pub(crate) fn read(options: &[&str]) -> Result<()> {
    let (mut file, mut trees, mut with_tree) = (None, Vec::new(), true);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--tree" => trees.push(PathBuf::from(options.next().context("--tree needs an image")?)),
            "--no-tree" => with_tree = false,
            name if !name.starts_with('-') => file = Some(PathBuf::from(name)),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    let work_dir = scratch::target_dir().join("bench-read");
    let source = work_dir.join("source");
    fs::create_dir_all(&source)?;
    match file {
        Some(file) => drop(fs::copy(&file, source.join("file")).with_context(|| file.display().to_string())?),
        None => linux_source::write_text(&source.join("file"), TEXT)?,
    }
    let image = work_dir.join("image.erofs");
    let ferofs = shell::build_ferofs("release")?;
    shell::run(Command::new(&ferofs).args(["build", "--compress", "lz4"]).args([&source, &image]))?;
    if with_tree && trees.is_empty() {
        trees = fragment_images(&work_dir, &ferofs)?;
    }
    let mut bench = shell::cargo();
    // With liblz4, as the command decodes.
    bench
        .args(["bench", "--package", "ferofs", "--features", "liblz4", "--bench", "read", "--"])
        .arg(fs::canonicalize(image)?);
    for tree in trees {
        bench.arg(fs::canonicalize(tree)?);
    }
    shell::run(&mut bench)
}

/// Images of 50,000 files, all stored as fragments in clusters of 1 MiB: one built by ferofs, one by the newest mkfs.erofs on this
/// machine. Building them takes minutes.
fn fragment_images(work_dir: &Path, ferofs: &Path) -> Result<Vec<PathBuf>> {
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join("mkfs.erofs"));
    let mkfs = peer.or_else(|| need::find_tool("mkfs.erofs")).context("no mkfs.erofs: cargo xtask peers")?;
    let images = ["by-ferofs.erofs", "by-erofs-utils.erofs"].map(|name| work_dir.join(name));
    if images.iter().all(|image| image.is_file()) {
        return Ok(images.to_vec());
    }
    let tree = work_dir.join("tree");
    source_tree(&tree)?;
    let [unfinished, other] = images.each_ref().map(|image| image.with_extension("unfinished"));
    let options = ["--quiet", "-zlzma", "-C1048576", "-Eall-fragments"];
    shell::run(Command::new(ferofs).arg("build").args(options).args([&tree, &unfinished]))?;
    shell::run(Command::new(mkfs).args(options).args([&other, &tree]))?;
    for (unfinished, image) in [unfinished, other].iter().zip(&images) {
        fs::rename(unfinished, image)?;
    }
    fs::remove_dir_all(&tree)?;
    Ok(images.to_vec())
}

/// Extracts 50,000 files of Debian's Linux source, with their directories.
fn source_tree(tree: &Path) -> Result<()> {
    let archive = linux_source::archive()?;
    let listed = Command::new("tar").arg("-tJf").arg(&archive).output().context("tar")?;
    ensure!(listed.status.success(), "tar cannot list {}", archive.display());
    let names: Vec<&[u8]> = listed
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|name| !name.is_empty() && !name.ends_with(b"/"))
        .collect();
    // Two of three files, so that the sample covers the whole tree.
    let picked =
        names.iter().enumerate().filter(|(number, _)| number % 3 != 2).map(|(_, name)| *name).take(FILES);
    let list = tree.with_extension("list");
    fs::write(&list, picked.collect::<Vec<_>>().join(&b'\n'))?;
    fs::create_dir_all(tree)?;
    shell::run(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(tree).arg("-T").arg(&list))
}
