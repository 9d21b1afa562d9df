//! Installs what a command needs and this machine lacks, with Debian's package manager.

use std::process::Command;

use anyhow::{Result, bail};
use ferofs_tests::need;
use ferofs_tests::tools::{self, Tool};

use crate::shell;

/// Lets everybody mount FUSE file systems.
pub(crate) const FUSE: Tool = Tool { program: "fusermount3", package: "fuse3" };
/// Mounts with the kernel.
pub(crate) const MOUNT: Tool = Tool { program: "mount", package: "mount" };
/// Loads the kernel's EROFS.
pub(crate) const MODPROBE: Tool = Tool { program: "modprobe", package: "kmod" };
/// The other EROFS tools.
pub(crate) const EROFS_UTILS: Tool = Tool { program: "mkfs.erofs", package: tools::EROFS_UTILS };
/// What we are timed against.
pub(crate) const SQUASHFS: Tool = Tool { program: "mksquashfs", package: "squashfs-tools" };
/// Mounts squashfs through FUSE.
pub(crate) const SQUASHFUSE: Tool = Tool { program: "squashfuse", package: "squashfuse" };
/// Makes ext4.
pub(crate) const MKE2FS: Tool = Tool { program: "mke2fs", package: "e2fsprogs" };
/// Makes btrfs.
pub(crate) const BTRFS: Tool = Tool { program: "mkfs.btrfs", package: "btrfs-progs" };
/// Reads in patterns.
pub(crate) const FIO: Tool = Tool { program: "fio", package: "fio" };
/// Copies trees.
pub(crate) const RSYNC: Tool = Tool { program: "rsync", package: "rsync" };
/// Makes deltas of files.
pub(crate) const XDELTA: Tool = Tool { program: "xdelta3", package: "xdelta3" };
/// Makes small deltas of files.
pub(crate) const BSDIFF: Tool = Tool { program: "bsdiff", package: "bsdiff" };
/// Installs a Debian into a directory.
pub(crate) const DEBOOTSTRAP: Tool = Tool { program: "debootstrap", package: "debootstrap" };

/// Installs those of `tools` that are missing.
pub(crate) fn install(tools: &[Tool]) -> Result<()> {
    let missing: Vec<_> = tools.iter().filter(|tool| need::find_tool(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let list = packages.join(" ");
    if need::find_tool("apt-get").is_none() {
        bail!(
            "these Debian packages (or your system's equivalents) are missing, please install them: {list}"
        );
    }
    if !need::is_root() && need::find_tool("sudo").is_none() {
        bail!("these packages are missing, please install them as root: apt-get install {list}");
    }
    install_packages(&packages)?;
    match missing.iter().find(|tool| need::find_tool(tool.program).is_none()) {
        Some(Tool { program, package }) => bail!("{package} is installed, but {program} is still not found"),
        None => Ok(()),
    }
}

/// Installs a package that has no program.
pub(crate) fn package(name: &str) -> Result<()> {
    install_packages(&[name])
}

fn install_packages(packages: &[&str]) -> Result<()> {
    println!("installing what is missing: {}", packages.join(" "));
    let install = || {
        let options = ["install", "--yes", "--no-install-recommends"];
        shell::run(apt_get().args(options).args(packages))
    };
    // A fresh machine has no package lists yet, and old lists name packages that are gone.
    if install().is_err() {
        shell::run(apt_get().arg("update"))?;
        install()?;
    }
    Ok(())
}

fn apt_get() -> Command {
    let mut command = if need::is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "apt-get"]);
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
