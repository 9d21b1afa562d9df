//! The source archive: all files of the last commit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use flate2::{Compression, GzBuilder};

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

/// Unpacks the archive below `work`, and returns the directory of the sources. Does nothing if it
/// was unpacked before.
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
    // Files get the time of now instead of that of the commit: cargo compiles only what is newer
    // than its last build.
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--touch", "--strip-components=1", "--file"]).arg(archive);
    shell::run(tar.arg("--directory").arg(&sources))?;
    fs::write(&complete, &version.commit)?;
    Ok(sources)
}

/// The version of a release.
pub(super) struct Version {
    pub(super) commit: String,
    /// The time of the commit, in seconds since 1970: the time of all files of the release.
    pub(super) time: u64,
    /// The time of the commit, as Debian's changelogs have it.
    pub(super) date: String,
    /// The name and the address of the author of the commit.
    pub(super) author: String,
    text: String,
}

impl Version {
    /// The version of the last commit: that of Cargo.toml if the commit has the tag `vVERSION`,
    /// else an earlier one with date and commit. $SOURCE_DATE_EPOCH replaces the time of the
    /// commit.
    pub(super) fn of_head() -> Result<Self> {
        let manifest =
            fs::read_to_string(shell::repository().join("Cargo.toml")).context("Cargo.toml")?;
        let number = manifest
            .lines()
            .find_map(|line| line.strip_prefix("version = "))
            .map(|version| version.trim_matches('"'))
            .context("Cargo.toml: no version")?;
        let commit = git(&["rev-parse", "HEAD"])?;
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(time) => time.parse().context("$SOURCE_DATE_EPOCH is not a number of seconds")?,
            Err(_) => git(&["log", "-1", "--format=%ct"])?
                .parse()
                .context("the time of the last commit")?,
        };
        let is_release =
            git(&["tag", "--points-at", "HEAD"])?.lines().any(|tag| tag == format!("v{number}"));
        let day = git(&["log", "-1", "--date=format:%Y%m%d", "--format=%cd"])?;
        let text = match is_release {
            true => number.to_owned(),
            // Debian sorts `~` before the end: the release is newer.
            false => format!("{number}~git{day}.{}", commit.get(..8).unwrap_or(&commit)),
        };
        Ok(Self {
            time,
            date: git(&["log", "-1", "--date=rfc2822", "--format=%cd"])?,
            author: git(&["log", "-1", "--format=%cn <%ce>"])?,
            commit,
            text,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The output of git, without the end of the last line.
pub(super) fn git(args: &[&str]) -> Result<String> {
    let output = shell::output(Command::new("git").args(args).current_dir(shell::repository()));
    let output = output.context("a release is made of a commit")?;
    Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
}
