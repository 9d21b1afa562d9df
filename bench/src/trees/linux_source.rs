//! Large real text for benchmarks: the Linux source code, from Debian's package linux-source.

use std::fs::{self, File};
use std::io::{self, Read, Write};
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
    let mut xz =
        Command::new("xz").arg("-dc").arg(archive()?).stdout(Stdio::piped()).spawn().context("xz")?;
    let mut out = File::create(to)?;
    let text = xz.stdout.take().context("xz has no output")?;
    if io::copy(&mut text.take(len), &mut out)? != len {
        bail!("the Linux source archive has less than {len} bytes");
    }
    out.flush()?;
    // xz would wait for a reader of the rest.
    xz.kill()?;
    xz.wait()?;
    Ok(())
}

/// The path of the archive.
pub(crate) fn archive() -> Result<PathBuf> {
    let archives = fs::read_dir(SOURCES)?.flatten().map(|entry| entry.path());
    archives
        .filter(|path| path.to_string_lossy().contains("linux-source-"))
        .find(|path| path.extension().is_some_and(|extension| extension == "xz"))
        .context("no /usr/src/linux-source-*.tar.xz: apt-get install linux-source, or name a file")
}
