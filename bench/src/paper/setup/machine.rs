//! Describes the machine and the versions of all measured programs, and prepares its memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::record::Machine;
use super::scale::Scale;
use super::workspace::Tools;
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

pub(crate) fn describe(scale: &Scale, tools: &Tools, out: &Path, data: &[std::path::PathBuf]) -> Machine {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let processor = line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let memory = line("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into());
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    let names = data.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let mut machine = Machine::new();
    let mut set = |name: &str, text: &str| machine.insert(name.to_owned(), text.trim().to_owned());
    set("processor", &format!("{processor}, {cores} cores"));
    set("memory", &memory);
    set("kernel", &output("uname", &["-sr"]));
    set("system", system.trim_matches('"'));
    set("storage", &storage(out));
    set("date", &output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    set("scale", scale.name);
    set("data", if names.is_empty() { "none was given" } else { &names });
    set("ferofs", &ferofs_version());
    set("load at the start", &fs::read_to_string("/proc/loadavg").unwrap_or_default());
    for (name, program, option) in [
        ("erofs-utils", tools.mkfs_erofs.as_deref(), "-V"),
        ("squashfs-tools", tools.mksquashfs.as_deref(), "-version"),
        ("btrfs-progs", tools.mkfs_btrfs.as_deref(), "-V"),
        ("e2fsprogs", tools.mke2fs.as_deref(), "-V"),
        ("fio", tools.fio.as_deref(), "--version"),
    ] {
        let version = program.map_or("missing".into(), |program| output(program, &[option]));
        set(name, version.lines().next().unwrap_or("?"));
    }
    machine
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

fn line(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a program prints on standard output and standard error.
fn output(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let both = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&both).trim().to_owned()
}
