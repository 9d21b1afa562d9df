//! Trees with many versions of the same files: releases that are fetched, and generated ones, which
//! follow from a seed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::{Content, Rng};

use super::packages::{debian, wheel};
use super::set_times;

/// Releases of Python packages, as `pip download` names them.
const PYTHON: &str = "django==5.0.1 django==5.0.2 django==5.0.3 django==5.0.4 django==5.0.6 django==5.0.7 numpy==2.0.1 numpy==2.0.2";
const SQLALCHEMY: &str = "sqlalchemy==2.0.20 sqlalchemy==2.0.22 sqlalchemy==2.0.24 sqlalchemy==2.0.26 \
    sqlalchemy==2.0.28 sqlalchemy==2.0.30 sqlalchemy==2.0.32 sqlalchemy==2.0.34";

/// Nights of the snapshots.
const NIGHTS: u64 = 30;
/// Files of a snapshot, and of a layer.
const FILES: u64 = 600;
/// Layers of the images of containers.
const LAYERS: u64 = 8;

/// Releases of the kernel's headers: the newest that apt knows. Debian's archive keeps only some.
const HEADERS: usize = 6;
/// The packages of these headers, as a regular expression of apt.
const HEADERS_PACKAGES: &str = "^linux-headers-6.1.0-[0-9]+-common$";

pub(super) fn python_releases(dir: &Path) -> Result<()> {
    wheels(dir, PYTHON)
}

pub(super) fn sqlalchemy(dir: &Path) -> Result<()> {
    wheels(dir, SQLALCHEMY)
}

/// Unpacks each wheel into a directory below `dir`.
fn wheels(dir: &Path, packages: &str) -> Result<()> {
    for package in packages.split(' ') {
        wheel(package, "3.12", &dir.join(package.replace("==", "-")))?;
    }
    set_times(dir)
}

/// Fetches the newest packages of headers and unpacks each below `dir`.
pub(super) fn headers(dir: &Path) -> Result<()> {
    let output =
        Command::new("apt-cache").args(["search", "--names-only", HEADERS_PACKAGES]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    if names.len() < HEADERS {
        bail!(
            "apt knows {} packages {HEADERS_PACKAGES}, {HEADERS} are needed: apt-get update",
            names.len()
        );
    }
    for name in names.iter().rev().take(HEADERS) {
        debian(&[name], &dir.join(name))?;
    }
    set_times(dir)
}

/// A tree as it is on thirty nights: each night one file in fifty changes in a few places, one file
/// is new, and one is gone.
pub(super) fn nightly(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(1);
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        (0..FILES).map(|number| new_file(number, &mut rng)).collect();
    for night in 0..NIGHTS {
        if night > 0 {
            for (_, content) in &mut files {
                if rng.below(50) == 0 {
                    edit(content, &mut rng);
                }
            }
            let gone = rng.below(files.len() as u64) as usize;
            files.swap_remove(gone);
            files.push(new_file(FILES + night, &mut rng));
        }
        write_all(&dir.join(format!("night-{:02}", night + 1)), files.iter())?;
    }
    set_times(dir)
}

/// Layers of images that were built again each month: most files have a few changes, some are new.
pub(super) fn layers(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(2);
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        (0..FILES).map(|number| new_file(number, &mut rng)).collect();
    for layer in 0..LAYERS {
        for (_, content) in &mut files {
            edit(content, &mut rng);
        }
        files.push(new_file(FILES + layer, &mut rng));
        write_all(&dir.join(format!("layer-{}", layer + 1)), files.iter())?;
    }
    set_times(dir)
}

fn new_file(number: u64, rng: &mut Rng) -> (PathBuf, Vec<u8>) {
    let path = format!("dir{}/sub{}/file{number}", number % 7, number % 61);
    // One file in a hundred has a megabyte, the others some KiB.
    let len = if rng.below(100) == 0 { 1 << 20 } else { 1 + rng.below(40_000) as usize };
    (path.into(), Content::Text.bytes(len, rng))
}

/// Replaces some bytes in three places of a file, and adds a line.
fn edit(content: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..3 {
        let at = rng.below(content.len().max(1) as u64) as usize;
        if let Some(byte) = content.get_mut(at) {
            *byte = b'#';
        }
    }
    let at = rng.below(content.len().max(1) as u64) as usize;
    let line = format!("\nchange {}\n", rng.next_u64());
    content.splice(at..at, line.into_bytes());
}

fn write_all<'a>(dir: &Path, files: impl Iterator<Item = &'a (PathBuf, Vec<u8>)>) -> Result<()> {
    for (path, content) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        File::create(&path)
            .and_then(|mut file| file.write_all(content))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}
