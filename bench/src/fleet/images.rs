//! The images of the benchmark: copies of this machine's /usr, compressed with LZ4, with a hash tree.
//!
//! Each is made when it is first needed; later runs use it again.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_test_server::Server;

/// Where the files come from: real programs, libraries and documents.
const SOURCE: &str = "/usr";
/// The largest file that is copied, in bytes: larger ones would make up most of an image.
const MAX_FILE: u64 = 256 << 20;
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
    /// About 2 GB, for programs that read a small part.
    Tree,
    /// About 0.5 GB, for complete reads: small files, and one large file of half of the bytes.
    Container,
}

impl Which {
    /// Name, bytes of small files, and bytes of the large file. LZ4 makes them a little more than half as large.
    const fn plan(self, quick: bool) -> (&'static str, u64, u64) {
        match (self, quick) {
            (Self::Tree, false) => ("tree", 3600 << 20, 0),
            (Self::Tree, true) => ("quick-tree", 600 << 20, 0),
            (Self::Container, false) => ("container", 400 << 20, 400 << 20),
            (Self::Container, true) => ("quick-container", 100 << 20, 100 << 20),
        }
    }
}

impl Image {
    /// The image in `dir`, which is built if it does not exist.
    pub(crate) fn get(ferofs: &Path, dir: &Path, which: Which, quick: bool) -> Result<Self> {
        let (name, small, large) = which.plan(quick);
        let path = dir.join(format!("{name}.erofs"));
        let (root, list) = (dir.join(format!("{name}.roothash")), dir.join(format!("{name}.files")));
        if !list.exists() {
            let tree = dir.join("unfinished-tree");
            if tree.exists() {
                fs::remove_dir_all(&tree)?;
            }
            fs::create_dir_all(&tree)?;
            println!("copying {} MiB of {SOURCE} for the image {name}", (small + large) >> 20);
            let files = copy_tree(&tree, small)?;
            if large > 0 {
                join_files(&tree.join(LARGE_FILE), large)?;
            }
            let mut build = Command::new(ferofs);
            build.args(["build", "--quiet", "--preset", "fast", "--verity", "--roothash-file"]).arg(&root);
            shell::run(build.arg(&tree).arg(&path))?;
            fs::remove_dir_all(&tree)?;
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
            bail!("{SOURCE} has too few files");
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

/// The regular files of [`SOURCE`] in the order of the tree.
fn source_files() -> Result<Vec<(PathBuf, u64)>> {
    let device = fs::metadata(SOURCE)?.dev();
    let mut files = Vec::new();
    let mut pending = vec![PathBuf::from(SOURCE)];
    while let Some(dir) = pending.pop() {
        let mut entries = fs::read_dir(&dir)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in &entries {
            let meta = entry.metadata()?;
            let path = entry.path();
            if meta.is_file()
                && meta.len() <= MAX_FILE
                && path.to_str().is_some_and(|name| !name.contains('\n'))
            {
                files.push((path, meta.len()));
            }
        }
        let dirs = entries
            .iter()
            .filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.dev() == device));
        let mut dirs: Vec<PathBuf> = dirs.map(fs::DirEntry::path).collect();
        dirs.reverse();
        pending.append(&mut dirs);
    }
    Ok(files)
}

/// Copies `bytes` of the source below `tree`. If the source has fewer, further copies have other contents: equal files would be
/// stored once. Returns the files.
fn copy_tree(tree: &Path, bytes: u64) -> Result<Vec<(PathBuf, u64)>> {
    let source = source_files()?;
    let mut copied = Vec::new();
    let mut left = bytes;
    for copy in 0..=u8::MAX {
        let before = left;
        for (file, _) in &source {
            if left == 0 {
                return Ok(copied);
            }
            let Ok(name) = file.strip_prefix(SOURCE) else { continue };
            let name = Path::new(&format!("copy-{copy}")).join(name);
            let to = tree.join(&name);
            fs::create_dir_all(to.parent().context("a file without a directory")?)?;
            let len = if copy == 0 {
                // The mode would let programs of the system run with rights from the copy.
                io::copy(&mut File::open(file)?, &mut File::create(&to)?)?
            } else {
                copy_changed(file, &to, copy)?
            };
            copied.push((name, len));
            left = left.saturating_sub(len.max(1));
        }
        if left == before {
            break;
        }
    }
    bail!("{SOURCE} has too few files")
}

/// Copies a file with each byte changed in the same way: LZ4 finds as much as in the file itself.
fn copy_changed(from: &Path, to: &Path, number: u8) -> Result<u64> {
    let mut bytes = fs::read(from)?;
    bytes.iter_mut().for_each(|byte| *byte ^= number);
    fs::write(to, &bytes)?;
    Ok(bytes.len() as u64)
}

/// Joins files of the source, from the last one on, into one file of `len` bytes. They are changed, so that the image stores them
/// beside the copies.
fn join_files(to: &Path, len: u64) -> Result<()> {
    let source = source_files()?;
    let mut output = BufWriter::with_capacity(1 << 20, File::create(to)?);
    let mut left = len;
    let mut buf = vec![0; 1 << 20];
    for (file, _) in source.iter().rev().cycle() {
        let mut file = BufReader::with_capacity(0, File::open(file)?).take(left);
        loop {
            let len = file.read(&mut buf)?;
            if len == 0 {
                break;
            }
            buf[..len].iter_mut().for_each(|byte| *byte = !*byte);
            output.write_all(&buf[..len])?;
            left -= len as u64;
        }
        if left == 0 {
            break;
        }
    }
    Ok(output.flush()?)
}
