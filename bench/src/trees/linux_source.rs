//! Large real text for benchmarks: the Linux source code, from Debian's package linux-source.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where the package installs its archive.
const SOURCES: &str = "/usr/src";

/// Writes the first `len` bytes of the uncompressed archive to the file `to`, unless it already has that length.
pub(crate) fn write_text(to: &Path, len: u64) -> Result<()> {
    if to.metadata().is_ok_and(|metadata| metadata.len() == len) {
        return Ok(());
    }
    if write_start(Command::new("xz").arg("-dc").arg(archive()?), to, len)? != len {
        bail!("the Linux source archive has less than {len} bytes");
    }
    Ok(())
}

/// Writes the first `len` bytes of what a command prints to the file `to`, and returns their number.
pub(crate) fn write_start(command: &mut Command, to: &Path, len: u64) -> Result<u64> {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("no such program")?;
    let text = child.stdout.take().context("the program has no output")?;
    let written = io::copy(&mut text.take(len), &mut File::create(to)?)?;
    // The program would wait for a reader of the rest.
    child.kill()?;
    child.wait()?;
    Ok(written)
}

/// The path of the archive.
pub(crate) fn archive() -> Result<PathBuf> {
    let archives = fs::read_dir(SOURCES)?.flatten().map(|entry| entry.path());
    archives
        .filter(|path| path.to_string_lossy().contains("linux-source-"))
        .find(|path| path.extension().is_some_and(|extension| extension == "xz"))
        .context("no /usr/src/linux-source-*.tar.xz: apt-get install linux-source, or name a file")
}
