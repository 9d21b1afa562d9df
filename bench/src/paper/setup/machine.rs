//! Describes the machine and the versions of all measured programs, and prepares its memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::record::Machine;
use crate::common::machine;
use crate::common::programs::Programs;
use crate::common::rounds::run_quietly;

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

pub(crate) fn describe(programs: &Programs, out: &Path) -> Result<Machine> {
    let mut versions = programs.versions().to_vec();
    versions.extend([
        ("btrfs-progs", "mkfs.btrfs".into(), "-V"),
        ("e2fsprogs", "mke2fs".into(), "-V"),
        ("fio", "fio".into(), "--version"),
    ]);
    let mut machine = machine::describe("paper", &versions)?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown");
    for (name, text) in [("memory", memory), ("storage", &storage(out))] {
        machine.insert(name.to_owned(), text.trim().to_owned());
    }
    Ok(machine)
}

/// The file system and the device that contain `dir`.
fn storage(dir: &Path) -> String {
    let options = [dir.as_os_str(), "--output=fstype,source".as_ref()];
    let text = Command::new("df").args(options).output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last = text.lines().last().unwrap_or("unknown");
    last.split_whitespace().collect::<Vec<_>>().join(" on ")
}
