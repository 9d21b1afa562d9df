//! Trees of whole systems and of programs with their libraries: from Debian's packages and
//! Python's.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_devtools::{install, peers, shell};

use super::packages::{self, debian_with_dependencies, wheel};
use super::{complete, set_times};

/// Debian's release.
const SUITE: &str = "bookworm";
/// What a desktop has besides a minimal Debian: 2.8 GB with what these packages need.
const DESKTOP: &str = "cups evince firefox-esr fonts-noto-core gcc gimp git libreoffice-calc libreoffice-writer \
    linux-image-amd64 python3 vim vlc xfce4 xz-utils";
const PROGRAMS: &str = "gcc git libc6-dev perl python3 vim";
/// Of the minimal Debian, small enough for slow compressors: settings, programs, scripts with
/// libraries, translations.
const PART: [&str; 5] = [
    "etc",
    "usr/sbin",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/share/locale/de",
    "usr/share/locale/ru",
];
/// What debootstrap leaves behind that no image contains: downloaded packages and lists of
/// packages.
const LEFT_OUT: [&str; 3] = ["var/cache/apt", "var/lib/apt/lists", "var/log"];
/// The release of Python in Debian, and where it searches modules.
const PYTHON: (&str, &str) = ("3.11", "usr/lib/python3/dist-packages");
const WHEELS: [&str; 2] = ["numpy==2.0.2", "scipy==1.14.1"];

pub(super) fn container(root: &Path) -> Result<()> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", SUITE]).arg(root).arg(peers::debian_mirror()?);
    shell::run(&mut debootstrap)?;
    for name in LEFT_OUT {
        fs::remove_dir_all(root.join(name))?;
    }
    Ok(())
}

pub(super) fn part(dir: &Path) -> Result<()> {
    let container = complete("container", container)?;
    shell::run(
        Command::new("cp").current_dir(container).args(["-a", "--parents"]).args(PART).arg(dir),
    )
}

pub(super) fn desktop(root: &Path) -> Result<()> {
    let container = complete("container", container)?;
    shell::run(Command::new("cp").args(["-a", "-T"]).arg(container).arg(root))?;
    debian_with_dependencies(DESKTOP, root)
}

/// A tree in which `chroot` can start Python.
pub(super) fn numpy(root: &Path) -> Result<()> {
    debian_with_dependencies("python3 libstdc++6", root)?;
    for package in WHEELS {
        wheel(package, PYTHON.0, &root.join(PYTHON.1))?;
    }
    set_times(root)
}

/// A tree in which `chroot` can start these programs.
pub(super) fn programs(root: &Path) -> Result<()> {
    debian_with_dependencies(PROGRAMS, root)?;
    fs::create_dir_all(root.join("dev"))?;
    // /dev/null of the machine is bound to this file.
    fs::write(root.join("dev/null"), "")?;
    set_times(root)
}

pub(super) fn kernel(dir: &Path) -> Result<()> {
    if packages::archive().is_err() {
        install::install_package("linux-source")?;
    }
    shell::run(Command::new("tar").arg("-xf").arg(packages::archive()?).arg("-C").arg(dir))
}

/// Libraries, programs that take the place of compiled applications, and archives with stored
/// pictures and libraries and deflated other files: what the system partition of a telephone
/// consists of, from the packages of the desktop.
pub(super) fn android(dir: &Path) -> Result<()> {
    let desktop = complete("desktop", desktop)?;
    let script = Command::new("python3")
        .args(["-c", include_str!("android.py")])
        .args([&desktop, dir])
        .status();
    anyhow::ensure!(script.context("python3")?.success(), "android.py failed");
    set_times(dir)
}
