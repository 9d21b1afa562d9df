//! Fetches and unpacks packages of Debian and of Python.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_devtools::shell;

/// Unpacks all archives of the directory `$0` into `$1`, whose /lib may be a link to /usr/lib.
const UNPACK: &str = "for deb in \"$0\"/*.deb; do \
    dpkg-deb --fsys-tarfile \"$deb\" | tar -x -p -C \"$1\" --keep-directory-symlink || exit; done";

/// Fetches a wheel (`name==version`) and unpacks it into `to`.
pub(crate) fn wheel(package: &str, python: &str, to: &Path) -> Result<()> {
    let fetched = fetch_dir(to)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"])
        .arg(&fetched);
    // For one platform, so that all machines measure the same files.
    pip.args(["--python-version", python, "--platform", "any", "--platform", "manylinux2014_x86_64"]);
    shell::run(pip.args(["--platform", "manylinux_2_17_x86_64", package]))?;
    let file = fs::read_dir(&fetched)?.next().context("pip fetched nothing")??.path();
    fs::create_dir_all(to)?;
    shell::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(file).arg(to))?;
    Ok(fs::remove_dir_all(&fetched)?)
}

/// Fetches packages of Debian (`name` or `name=version`) and unpacks them into `to`, without what they depend on.
pub(crate) fn debian(packages: &[impl AsRef<str>], to: &Path) -> Result<()> {
    let fetched = fetch_dir(to)?;
    let packages = packages.iter().map(AsRef::as_ref);
    shell::run(Command::new("apt-get").current_dir(&fetched).args(["download", "--quiet"]).args(packages))?;
    unpack(&fetched, to)
}

/// Unpacks packages of Debian with all that they need and `root` does not have. Their scripts do not run: users, caches and the files that
/// scripts make are missing, and the result does not depend on them.
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
    apt.args(["-o", "Debug::NoLocking=1", "-o", &format!("Dir::State::status={}", status.display())]);
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
