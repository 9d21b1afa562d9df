//! `cargo xtask bench read`: what the read engine reads, decodes, holds and allocates, and how fast it is.
//!
//! The table comes from `crates/ferofs/benches/read.rs`; here its input is made: an image by `mkfs.erofs`, with large
//! text as in the paper's evaluation.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, scratch};

use crate::install::{self, EROFS_UTILS};
use crate::{peers, shell};

/// As much of the text as is taken by default.
const TEXT: u64 = 512 << 20;
const SOURCES: &str = "/usr/src";

pub(crate) fn read(options: &[&str]) -> Result<()> {
    let (mut file, mut tree) = (None, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--tree" => tree = Some(options.next().context("--tree needs an image")?),
            name if !name.starts_with('-') => file = Some(PathBuf::from(name)),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    install::install(&[EROFS_UTILS])?;
    let room = scratch::target_dir().join("bench-read");
    let source = room.join("source");
    fs::create_dir_all(&source)?;
    match file {
        Some(file) => drop(fs::copy(&file, source.join("file")).with_context(|| file.display().to_string())?),
        None => linux_source(&source.join("file"), TEXT)?,
    }
    let image = room.join("image.erofs");
    let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join("mkfs.erofs"));
    let mkfs = peer.or_else(|| need::find_tool("mkfs.erofs")).context("no mkfs.erofs")?;
    shell::run(Command::new(mkfs).args(["--quiet", "-zlz4hc"]).args([&image, &source]))?;
    let mut bench = shell::cargo();
    bench.args(["bench", "--package", "ferofs", "--bench", "read", "--"]).arg(fs::canonicalize(image)?);
    shell::run(bench.args(tree.map(fs::canonicalize).transpose()?))
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
