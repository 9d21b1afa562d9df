//! Describes the machine and the versions of all measured programs, and prepares its memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::record::Machine;
use super::scale::Scale;
use super::workspace::Tools;
use crate::common::machine;
use crate::common::rounds::run_quietly;
use ferofs_devtools::shell;

/// Writes to nine tenths of the free memory. The host of a virtual machine allocates a page when the guest first writes to it, which
/// takes longer than most measurements here; the first measured system would pay for all. A separate process (dd) writes, because
/// Linux adds the peak memory of this process to that of the measured ones.
pub(crate) fn touch_memory() -> Result<()> {
    let buffer = format!("bs={}M", (free_memory()? >> 20) / 10 * 9);
    run_quietly(Command::new("dd").args([
        "if=/dev/zero",
        "of=/dev/null",
        "count=1",
        "iflag=fullblock",
        &buffer,
    ]))
}

/// Bytes of unused memory; the page cache counts as used.
pub(crate) fn free_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:")).context("no MemFree")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

pub(crate) fn describe(scale: &Scale, tools: &Tools, out: &Path, data: &[PathBuf]) -> Result<Machine> {
    let programs = [
        ("erofs-utils", tools.mkfs_erofs.as_deref(), "-V"),
        ("squashfs-tools", tools.mksquashfs.as_deref(), "-version"),
        ("btrfs-progs", tools.mkfs_btrfs.as_deref(), "-V"),
        ("e2fsprogs", tools.mke2fs.as_deref(), "-V"),
        ("fio", tools.fio.as_deref(), "--version"),
    ];
    let installed = programs.into_iter().filter_map(|(name, program, option)| Some((name, program?, option)));
    let mut machine = machine::describe(&installed.collect::<Vec<_>>())?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown");
    let names = data.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    for (name, text) in [
        ("memory", memory),
        ("storage", &storage(out)),
        ("scale", scale.name),
        ("data", if names.is_empty() { "none was given" } else { &names }),
        ("ferofs", &ferofs_version()),
    ] {
        machine.insert(name.to_owned(), text.trim().to_owned());
    }
    Ok(machine)
}

/// The version of ferofs: git's hash of the folder `crates`, which changes of other folders do not affect.
fn ferofs_version() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(shell::repository()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(tree) = git(&["rev-parse", "--short", "HEAD:crates"]) else { return "unknown".into() };
    let changed = git(&["status", "--porcelain", "crates"]).is_some_and(|changes| !changes.is_empty());
    format!("crates as in tree {tree}{}", if changed { ", changed" } else { "" })
}

/// The file system and the device that contain `dir`.
fn storage(dir: &Path) -> String {
    let options = [dir.as_os_str(), "--output=fstype,source".as_ref()];
    let text = Command::new("df").args(options).output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last = text.lines().last().unwrap_or("unknown");
    last.split_whitespace().collect::<Vec<_>>().join(" on ")
}
