//! The images of the benchmark: trees that users have, compressed with LZ4, with a hash tree.
//!
//! Each is made when it is first needed; later runs use it again.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_test_server::Server;

use crate::trees::{self, each_file};

/// Where the bytes of the large file come from: no other image has them.
const LARGE_SOURCE: &str = "sqlalchemy";
/// The large file of [`Which::Container`].
pub(crate) const LARGE_FILE: &str = "large";

/// An image, and what a benchmark must know of it.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The file. Its name is also its name on servers.
    pub(crate) path: PathBuf,
    pub(crate) root: String,
    /// Its regular files in the order of the tree, without the large one, relative to the root.
    pub(crate) files: Vec<(PathBuf, u64)>,
    /// Bytes of the image with its hash tree.
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// About 2 GB, for programs that read a small part: a desktop.
    Tree,
    /// About 0.5 GB of data, for complete reads: Python with libraries, and one large file of half
    /// of the bytes.
    Container,
}

impl Which {
    /// Name, tree, and bytes of the large file.
    const fn plan(self, quick: bool) -> (&'static str, &'static str, u64) {
        match (self, quick) {
            (Self::Tree, false) => ("desktop", "desktop", 0),
            (Self::Tree, true) => ("quick-tree", "container", 0),
            (Self::Container, false) => ("numpy", "numpy", 300 << 20),
            (Self::Container, true) => ("quick-container", "container", 100 << 20),
        }
    }
}

impl Image {
    /// The image in `dir`, which is built if it does not exist.
    pub(crate) fn get(ferofs: &Path, dir: &Path, which: Which, quick: bool) -> Result<Self> {
        let (name, tree, large) = which.plan(quick);
        let path = dir.join(format!("{name}.erofs"));
        let (root, list) =
            (dir.join(format!("{name}.roothash")), dir.join(format!("{name}.files")));
        if !list.exists() {
            let tree = trees::named(tree)?.get()?;
            let mut source = tree.clone();
            let copy = dir.join("unfinished-tree");
            if large > 0 {
                source.clone_from(&copy);
                shell::run(Command::new("cp").args(["-a", "-T"]).args([&tree, &copy]))?;
                join_files(&trees::named(LARGE_SOURCE)?.get()?, &copy.join(LARGE_FILE), large)?;
            }
            let mut build = Command::new(ferofs);
            build
                .args(["build", "--quiet", "--preset", "fast", "--verity", "--roothash-file"])
                .arg(&root);
            shell::run(build.args([&source, &path]))?;
            if large > 0 {
                fs::remove_dir_all(&copy)?;
            }
            let mut files = Vec::new();
            each_file(&tree, &mut |path, len| {
                files.push((path.strip_prefix(&tree)?.to_owned(), len));
                Ok(())
            })?;
            // Last: it says that the image is complete.
            let mut text = BufWriter::new(File::create(dir.join("unfinished-files"))?);
            for (file, len) in &files {
                let file = file.to_str().context("a name that is not UTF-8")?;
                writeln!(text, "{len} {file}")?;
            }
            text.flush()?;
            fs::rename(dir.join("unfinished-files"), &list)?;
        }
        let mut files = Vec::new();
        for line in fs::read_to_string(&list)?.lines() {
            let (len, file) = line.split_once(' ').context("the list of files is damaged")?;
            files.push((PathBuf::from(file), len.parse()?));
        }
        if files.len() < 100 {
            bail!("{tree} has too few files");
        }
        let size = fs::metadata(&path)?.len();
        Ok(Self { path, root: fs::read_to_string(&root)?.trim().to_owned(), files, size })
    }

    /// Its address on a server.
    pub(crate) fn url(&self, server: &Server) -> String {
        server.url(&format!("/{}", self.path.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// `count` small files that lie far apart; other files for each `number`.
    pub(crate) fn sample(&self, count: usize, number: usize) -> Vec<PathBuf> {
        let small: Vec<&PathBuf> = self
            .files
            .iter()
            .filter(|(_, len)| (4096..256 << 10).contains(len))
            .map(|(file, _)| file)
            .collect();
        let count = count.min(small.len());
        let step = (small.len() / count.max(1)).max(1);
        // A prime, so that numbers that follow each other choose distant files.
        let start = number * 7919;
        (0..count)
            .filter_map(|index| small.get((start + index * step) % small.len().max(1)))
            .map(|file| (*file).clone())
            .collect()
    }
}

/// Joins files of `source`, from the last one on, into one file of `len` bytes.
fn join_files(source: &Path, to: &Path, len: u64) -> Result<()> {
    let mut files = Vec::new();
    each_file(source, &mut |path, _| {
        files.push(path.to_owned());
        Ok(())
    })?;
    let mut output = BufWriter::with_capacity(1 << 20, File::create(to)?);
    let mut left = len;
    for file in files.iter().rev().cycle() {
        left -= io::copy(&mut File::open(file)?.take(left), &mut output)?;
        if left == 0 {
            break;
        }
    }
    Ok(output.flush()?)
}
