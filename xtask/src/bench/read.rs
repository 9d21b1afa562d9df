//! `cargo xtask bench read`: what the read engine reads, decodes, holds and allocates, and how fast it is.
//!
//! The table comes from `crates/ferofs/benches/read.rs`; here its inputs are made, from Debian's kernel sources: an
//! image of large text in LZ4 clusters of 4 KiB, as in the EROFS paper's evaluation, and two of 50,000 small files in
//! LZMA fragments, one by ferofs and one by erofs-utils. All are kept from one run to the next.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ferofs_tests::{need, scratch};

use crate::{peers, shell};

/// As much of the text as is taken.
const TEXT: u64 = 512 << 20;
/// As many files as are taken for the tree.
const FILES: usize = 50_000;
const SOURCES: &str = "/usr/src";

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
    let room = scratch::target_dir().join("bench-read");
    let source = room.join("source");
    fs::create_dir_all(&source)?;
    match file {
        Some(file) => drop(fs::copy(&file, source.join("file")).with_context(|| file.display().to_string())?),
        None => linux_source(&source.join("file"), TEXT)?,
    }
    let image = room.join("image.erofs");
    let ferofs = shell::build_ferofs("release")?;
    shell::run(Command::new(&ferofs).args(["build", "--compress", "lz4"]).args([&source, &image]))?;
    if with_tree && trees.is_empty() {
        trees = trees_of_fragments(&room, &ferofs)?;
    }
    let mut bench = shell::cargo();
    bench.args(["bench", "--package", "ferofs", "--bench", "read", "--"]).arg(fs::canonicalize(image)?);
    for tree in trees {
        bench.arg(fs::canonicalize(tree)?);
    }
    shell::run(&mut bench)
}

/// The start of the tar of Debian's kernel sources, kept from one run to the next.
pub(super) fn linux_source(to: &Path, len: u64) -> Result<()> {
    if to.metadata().is_ok_and(|metadata| metadata.len() == len) {
        return Ok(());
    }
    let mut xz =
        Command::new("xz").arg("-dc").arg(linux_archive()?).stdout(Stdio::piped()).spawn().context("xz")?;
    let mut out = File::create(to)?;
    let text = xz.stdout.take().context("xz has no output")?;
    if io::copy(&mut text.take(len), &mut out)? != len {
        bail!("the kernel's sources have less than {len} bytes");
    }
    out.flush()?;
    // The rest is not wanted.
    xz.kill()?;
    xz.wait()?;
    Ok(())
}

/// Debian's kernel sources.
pub(super) fn linux_archive() -> Result<PathBuf> {
    let archives = fs::read_dir(SOURCES)?.flatten().map(|entry| entry.path());
    archives
        .filter(|path| path.to_string_lossy().contains("linux-source-"))
        .find(|path| path.extension().is_some_and(|extension| extension == "xz"))
        .context("no /usr/src/linux-source-*.tar.xz: apt-get install linux-source, or name a file")
}

/// Images of 50,000 files, all of them fragments in clusters of 1 MiB, by ferofs and by the newest mkfs.erofs that there
/// is. It takes minutes to make them.
fn trees_of_fragments(room: &Path, ferofs: &Path) -> Result<Vec<PathBuf>> {
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join("mkfs.erofs"));
    let mkfs = peer.or_else(|| need::find_tool("mkfs.erofs")).context("no mkfs.erofs: cargo xtask peers")?;
    let images = ["by-ferofs.erofs", "by-erofs-utils.erofs"].map(|name| room.join(name));
    if images.iter().all(|image| image.is_file()) {
        return Ok(images.to_vec());
    }
    let tree = room.join("tree");
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

/// 50,000 files of Debian's kernel sources, in their directories.
fn source_tree(tree: &Path) -> Result<()> {
    let archive = linux_archive()?;
    let listed = Command::new("tar").arg("-tJf").arg(&archive).output().context("tar")?;
    ensure!(listed.status.success(), "tar cannot list {}", archive.display());
    let names: Vec<&[u8]> = listed
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|name| !name.is_empty() && !name.ends_with(b"/"))
        .collect();
    // Two of three, so that all parts of the tree are there.
    let picked =
        names.iter().enumerate().filter(|(number, _)| number % 3 != 2).map(|(_, name)| *name).take(FILES);
    let list = tree.with_extension("list");
    fs::write(&list, picked.collect::<Vec<_>>().join(&b'\n'))?;
    fs::create_dir_all(tree)?;
    shell::run(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(tree).arg("-T").arg(&list))
}
