//! Fetches and unpacks packages of Debian and of Python, and large real text: the Linux source
//! code, from Debian's package linux-source.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;

/// Unpacks all archives of the directory `$0` into `$1`, whose /lib may be a link to /usr/lib.
const UNPACK: &str = "for deb in \"$0\"/*.deb; do \
    dpkg-deb --fsys-tarfile \"$deb\" | tar -x -p -C \"$1\" --keep-directory-symlink || exit; done";

/// Unpacks the wheel `argv[1]` into `argv[2]`. Files keep the archive's times and directories have
/// those of their newest entries, as in an image that is built reproducibly: `python3 -m zipfile`
/// gives each of them the time of now, which no two images share.
const UNPACK_WHEEL: &str = "
import calendar, os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for entry in wheel.infolist():
        time = calendar.timegm(entry.date_time)
        os.utime(wheel.extract(entry, sys.argv[2]), (time, time))
for path, dirs, files in os.walk(sys.argv[2], topdown=False):
    times = [os.stat(os.path.join(path, name)).st_mtime for name in dirs + files]
    if times:
        os.utime(path, (max(times), max(times)))
";

/// Fetches a wheel (`name==version`) and unpacks it into `to`.
pub(crate) fn wheel(package: &str, python: &str, to: &Path) -> Result<()> {
    let fetched = fetch_dir(to)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"])
        .arg(&fetched);
    // For one platform, so that all machines measure the same files.
    pip.args([
        "--python-version",
        python,
        "--platform",
        "any",
        "--platform",
        "manylinux2014_x86_64",
    ]);
    shell::run(pip.args(["--platform", "manylinux_2_17_x86_64", package]))?;
    let file = fs::read_dir(&fetched)?.next().context("pip fetched nothing")??.path();
    fs::create_dir_all(to)?;
    shell::run(Command::new("python3").args(["-c", UNPACK_WHEEL]).arg(file).arg(to))?;
    Ok(fs::remove_dir_all(&fetched)?)
}

/// Fetches packages of Debian (`name` or `name=version`) and unpacks them into `to`, without what
/// they depend on.
pub(crate) fn debian(packages: &[impl AsRef<str>], to: &Path) -> Result<()> {
    let fetched = fetch_dir(to)?;
    let packages = packages.iter().map(AsRef::as_ref);
    shell::run(
        Command::new("apt-get").current_dir(&fetched).args(["download", "--quiet"]).args(packages),
    )?;
    unpack(&fetched, to)
}

/// Unpacks packages of Debian with all that they need and `root` does not have. Their scripts do
/// not run: users, caches and the files that scripts make are missing, and the result does not
/// depend on them.
pub(super) fn debian_with_dependencies(packages: &str, root: &Path) -> Result<()> {
    let fetched = fetch_dir(root)?;
    fs::create_dir_all(fetched.join("partial"))?;
    let mut status = root.join("var/lib/dpkg/status");
    if !status.exists() {
        // An empty tree: nothing is installed, and the directories are those of a new Debian.
        status = fetched.join("status");
        fs::write(&status, "")?;
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(name))?;
            symlink(format!("usr/{name}"), root.join(name))?;
        }
    }
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--quiet=2", "--download-only", "--no-install-recommends"]);
    apt.args([
        "-o",
        "Debug::NoLocking=1",
        "-o",
        &format!("Dir::State::status={}", status.display()),
    ]);
    apt.args(["-o", &format!("Dir::Cache::archives={}", fetched.display())]);
    shell::run(apt.args(packages.split(' ')))?;
    unpack(&fetched, root)
}

/// An empty directory beside `to`.
fn fetch_dir(to: &Path) -> Result<std::path::PathBuf> {
    let dir = to.with_extension("fetched");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn unpack(fetched: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    shell::run(Command::new("sh").args(["-c", UNPACK]).arg(fetched).arg(to))?;
    Ok(fs::remove_dir_all(fetched)?)
}

/// Where the package installs its archive.
const SOURCES: &str = "/usr/src";

/// Writes the first `len` bytes of the uncompressed archive to the file `to`, unless it already has
/// that length.
pub(crate) fn write_text(to: &Path, len: u64) -> Result<()> {
    if to.metadata().is_ok_and(|metadata| metadata.len() == len) {
        return Ok(());
    }
    if write_start(Command::new("xz").arg("-dc").arg(archive()?), to, len)? != len {
        bail!("the Linux source archive has less than {len} bytes");
    }
    Ok(())
}

/// Writes the first `len` bytes of what a command prints to the file `to`, and returns their
/// number.
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

pub(crate) fn archive() -> Result<PathBuf> {
    let archives = fs::read_dir(SOURCES)?.flatten().map(|entry| entry.path());
    archives
        .filter(|path| path.to_string_lossy().contains("linux-source-"))
        .find(|path| path.extension().is_some_and(|extension| extension == "xz"))
        .context("no /usr/src/linux-source-*.tar.xz: apt-get install linux-source, or name a file")
}
