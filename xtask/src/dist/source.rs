//! The source archive: all files of the last commit.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use flate2::{Compression, GzBuilder};

use super::version::{Version, git};

/// Writes the archive to `dir`.
pub(super) fn archive(version: &Version, dir: &Path) -> Result<PathBuf> {
    if !git(&["status", "--porcelain"])?.is_empty() {
        eprintln!("not in the release: changes that are not committed");
    }
    let path = dir.join(format!("ferofs-{version}.tar.gz"));
    let mut git = Command::new("git");
    // The mode of files does not depend on the umask of this machine.
    git.args(["-c", "tar.umask=0022", "archive", "--format=tar"])
        .args([&format!("--prefix=ferofs-{version}/"), &version.commit])
        .current_dir(shell::repository())
        .stdout(Stdio::piped());
    let mut git = git.spawn().context("starting git")?;
    let mut tar = git.stdout.take().context("the output of git")?;
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    let time = u32::try_from(version.time).unwrap_or(u32::MAX);
    let mut gzip = GzBuilder::new().mtime(time).write(file, Compression::best());
    io::copy(&mut tar, &mut gzip).with_context(|| path.display().to_string())?;
    gzip.finish().with_context(|| path.display().to_string())?;
    let status = git.wait().context("git archive")?;
    if !status.success() {
        bail!("git archive: {status}");
    }
    Ok(path)
}

/// Unpacks the archive below `work`, and returns the directory of the sources. Does nothing if it was unpacked before.
pub(super) fn unpack(archive: &Path, version: &Version, work: &Path) -> Result<PathBuf> {
    let dir = work.join("source");
    let (sources, complete) = (dir.join("ferofs"), dir.join("complete"));
    if fs::read_to_string(&complete).is_ok_and(|commit| commit == version.commit) {
        return Ok(sources);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).context("removing the sources of another commit")?;
    }
    fs::create_dir_all(&sources)?;
    // Files get the time of now instead of that of the commit: cargo compiles only what is newer than its last build.
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--touch", "--strip-components=1", "--file"]).arg(archive);
    shell::run(tar.arg("--directory").arg(&sources))?;
    fs::write(&complete, &version.commit)?;
    Ok(sources)
}
