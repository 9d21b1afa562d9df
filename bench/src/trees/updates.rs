//! Two versions of trees that are updated: releases of Python packages, of Debian's packages, and
//! of Linux.
//!
//! Debian's archive keeps only some versions of a package: the two newest that apt knows are taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_tests::Run;

use super::complete;
use super::packages::{debian, wheel};
use crate::common::programs::succeed;

/// apt-cache takes less.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A name, and the versions.
const UPDATES: [(&str, Pair); 13] = [
    ("Django", Pair::Wheels("Django", ["5.0.1", "5.0.2"])),
    ("SQLAlchemy", Pair::Wheels("sqlalchemy", ["2.0.32", "2.0.34"])),
    ("cryptography", Pair::Wheels("cryptography", ["43.0.0", "43.0.1"])),
    ("pillow", Pair::Wheels("pillow", ["10.3.0", "10.4.0"])),
    ("numpy", Pair::Wheels("numpy", ["2.0.0", "2.0.1"])),
    ("pandas", Pair::Wheels("pandas", ["2.2.2", "2.2.3"])),
    ("scipy", Pair::Wheels("scipy", ["1.14.0", "1.14.1"])),
    // A program in Rust of 30 MB.
    ("ruff", Pair::Wheels("ruff", ["0.6.8", "0.6.9"])),
    ("Debian", Pair::Debian(DEBIAN)),
    // Most updates of a system change little.
    ("stdlib", Pair::Debian("libpython3.11-stdlib")),
    ("kernel", Pair::Kernel(&["fs", "kernel", "mm", "net", "include"])),
    ("headers", Pair::Releases("^linux-headers-6.1.0-[0-9]+-common$")),
    ("modules", Pair::Releases("^linux-image-6.1.0-[0-9]+-cloud-amd64$")),
];

pub(crate) fn names() -> [&'static str; UPDATES.len()] {
    UPDATES.map(|(name, _)| name)
}

/// The trees before and after the update of this name.
pub(crate) fn trees(name: &str) -> Result<[PathBuf; 2]> {
    let (name, pair) = UPDATES.iter().find(|(known, _)| *known == name).context(name.to_owned())?;
    let trees = complete(&format!("update-{name}"), |dir| pair.make(dir))?;
    Ok(["old", "new"].map(|part| trees.join(part)))
}

/// Where the trees before and after an update come from.
enum Pair {
    /// Two wheels of a Python package.
    Wheels(&'static str, [&'static str; 2]),
    /// A small Debian with the two newest versions of these packages.
    Debian(&'static str),
    /// The two newest Debian packages whose names match this regular expression of apt: each
    /// release of Linux has names of its own.
    Releases(&'static str),
    /// These directories of the two newest versions of Debian's kernel source: the complete source
    /// takes an hour.
    Kernel(&'static [&'static str]),
}

/// Packages of Debian that many systems have.
const DEBIAN: &str = "openssl libssl3 perl-base libc6 systemd curl libcurl4 python3.11-minimal libpython3.11-minimal \
    libpython3.11-stdlib libxml2";

impl Pair {
    /// Makes the trees before and after the update, `old` and `new` in `dir`.
    fn make(&self, dir: &Path) -> Result<()> {
        for (number, tree) in ["old", "new"].map(|part| dir.join(part)).iter().enumerate() {
            match self {
                Self::Wheels(package, versions) => {
                    wheel(&format!("{package}=={}", versions[number]), "3.12", tree)?;
                }
                Self::Debian(updated) => {
                    let is_updated = |package: &str| updated.split(' ').any(|name| name == package);
                    debian(&versions(DEBIAN, |package| number == 1 && is_updated(package))?, tree)?;
                }
                Self::Releases(names) => debian(&[release(names, number)?], tree)?,
                Self::Kernel(dirs) => {
                    let package = dir.join("package");
                    debian(&versions("linux-source-6.1", |_| number == 1)?, &package)?;
                    fs::create_dir(tree)?;
                    let mut tar = Command::new("tar");
                    tar.arg("-xf")
                        .arg(package.join("usr/src/linux-source-6.1.tar.xz"))
                        .arg("-C")
                        .arg(tree);
                    shell::run(tar.args(dirs.iter().map(|dir| format!("linux-source-6.1/{dir}"))))?;
                    fs::remove_dir_all(&package)?;
                }
            }
        }
        Ok(())
    }
}

/// The packages with their newest version if they are `updated`, else with the one before it.
fn versions(packages: &str, updated: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let named = |package: &str| {
        let madison = Run::limited("apt-cache", None, TIMEOUT).args(["madison", package]);
        let known = succeed("apt-cache", madison)?.stdout;
        let known = String::from_utf8_lossy(&known).into_owned();
        let mut versions: Vec<&str> =
            known.lines().filter_map(|line| Some(line.split('|').nth(1)?.trim())).collect();
        // The newest comes first.
        versions.dedup();
        let version = match (updated(package), &versions[..]) {
            (false, [_, before, ..]) => before,
            (_, [newest, ..]) => newest,
            _ => bail!("apt knows no package {package}: apt-get update"),
        };
        Ok(format!("{package}={version}"))
    };
    packages.split(' ').map(named).collect()
}

/// The newest package whose name matches (`number` 1), or the one before it.
fn release(names: &str, number: usize) -> Result<String> {
    let search = Run::limited("apt-cache", None, TIMEOUT).args(["search", "--names-only", names]);
    let known = succeed("apt-cache", search)?.stdout;
    let known = String::from_utf8_lossy(&known).into_owned();
    let mut known: Vec<&str> = known.lines().filter_map(|line| line.split(' ').next()).collect();
    known.sort_unstable();
    match (number, &known[..]) {
        (0, [.., before, _]) => Ok((*before).to_owned()),
        (1, [.., newest]) => Ok((*newest).to_owned()),
        _ => bail!("apt knows fewer than two packages {names}: apt-get update"),
    }
}
