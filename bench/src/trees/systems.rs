//! The tree that the charts measure: a small Debian, as people put it into system images and containers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use ferofs_devtools::{peers, shell};
use ferofs_tests::scratch;

/// Debian's release.
const SUITE: &str = "bookworm";
/// A part of it, small enough for slow compressors: settings, programs, scripts with libraries, translations.
const PART: [&str; 5] =
    ["etc", "usr/sbin", "usr/lib/x86_64-linux-gnu/perl-base", "usr/share/locale/de", "usr/share/locale/ru"];
/// What debootstrap leaves behind that no image contains: downloaded packages and lists of packages.
const LEFT_OUT: [&str; 3] = ["var/cache/apt", "var/lib/apt/lists", "var/log"];

/// The directory, made when a run first needs it, and what it is.
pub(crate) fn debian() -> Result<(PathBuf, String)> {
    let dir = scratch::target_dir().join("bench-charts");
    let root = dir.join("debian");
    if !root.exists() {
        let unfinished = dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        fs::create_dir_all(&dir)?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", SUITE]).arg(&unfinished).arg(peers::debian_mirror()?);
        shell::run(&mut debootstrap)?;
        for name in LEFT_OUT {
            fs::remove_dir_all(unfinished.join(name))?;
        }
        fs::rename(&unfinished, &root)?;
    }
    let version = fs::read_to_string(root.join("etc/debian_version"))?;
    Ok((root, format!("a Debian {} as debootstrap --variant=minbase makes it", version.trim())))
}

/// The directory with a part of the Debian, and what it is.
pub(super) fn part_of_debian() -> Result<(PathBuf, String)> {
    let (root, title) = debian()?;
    let dir = scratch::target_dir().join("bench-charts");
    let part = dir.join("part");
    if !part.exists() {
        let unfinished = dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        fs::create_dir_all(&unfinished)?;
        let mut cp = Command::new("cp");
        cp.current_dir(root).args(["-a", "--parents"]).args(PART).arg(&unfinished);
        shell::run(&mut cp)?;
        fs::rename(&unfinished, &part)?;
    }
    Ok((part, format!("/{} of {title}", PART.join(", /"))))
}
