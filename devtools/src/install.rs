//! Installs the programs that a command needs and this machine lacks, with Debian's package manager.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use ferofs_tests::need;
use ferofs_tests::tools::{self, Tool};

use crate::shell;

/// Lets users other than root mount FUSE file systems.
pub const FUSE: Tool = Tool { program: "fusermount3", package: "fuse3" };
/// Mounts file systems with the kernel.
pub const MOUNT: Tool = Tool { program: "mount", package: "mount" };
/// Loads the kernel's EROFS module.
pub const MODPROBE: Tool = Tool { program: "modprobe", package: "kmod" };
/// The reference implementation of the EROFS tools.
pub const EROFS_UTILS: Tool = Tool { program: "mkfs.erofs", package: tools::EROFS_UTILS };
/// Makes squashfs images, which benchmarks compare with.
pub const SQUASHFS: Tool = Tool { program: "mksquashfs", package: "squashfs-tools" };
/// Mounts squashfs through FUSE.
pub const SQUASHFUSE: Tool = Tool { program: "squashfuse", package: "squashfuse" };
/// Makes ext4 images.
pub const MKE2FS: Tool = Tool { program: "mke2fs", package: "e2fsprogs" };
/// Makes btrfs images.
pub const BTRFS: Tool = Tool { program: "mkfs.btrfs", package: "btrfs-progs" };
/// Measures reads: sequential, random, strided.
pub const FIO: Tool = Tool { program: "fio", package: "fio" };
/// Copies directory trees.
pub const RSYNC: Tool = Tool { program: "rsync", package: "rsync" };
/// Makes binary deltas of files.
pub const XDELTA: Tool = Tool { program: "xdelta3", package: "xdelta3" };
/// Makes binary deltas of files: smaller and slower than xdelta3.
pub const BSDIFF: Tool = Tool { program: "bsdiff", package: "bsdiff" };
/// Divides images into chunks by their content.
pub const CASYNC: Tool = Tool { program: "casync", package: "casync" };
/// Measures the memory of a program that it starts. Linux counts the memory of the process that starts a program, too, and this one is small.
pub const TIME: Tool = Tool { program: "time", package: "time" };
/// Compresses files, also against another file.
pub const ZSTD: Tool = Tool { program: "zstd", package: "zstd" };
/// Unpacks Python's wheels.
pub const UNZIP: Tool = Tool { program: "unzip", package: "unzip" };
/// Downloads from servers.
pub const CURL: Tool = Tool { program: "curl", package: "curl" };
/// A registry for OCI images.
pub const DOCKER_REGISTRY: Tool = Tool { program: "docker-registry", package: "docker-registry" };
/// A web server.
pub const NGINX: Tool = Tool { program: "nginx", package: "nginx-light" };
/// Makes certificates.
pub const OPENSSL: Tool = Tool { program: "openssl", package: "openssl" };
/// Installs a minimal Debian into a directory.
pub const DEBOOTSTRAP: Tool = Tool { program: "debootstrap", package: "debootstrap" };

/// Packages of the tools with a service, and its name.
const SERVICES: [(&str, &str); 3] =
    [("autofs", "autofs"), ("docker-registry", "docker-registry"), ("nginx-light", "nginx")];

/// Installs those of `tools` that are missing.
///
/// # Errors
/// When a package cannot be installed, or does not contain its program.
pub fn install(tools: &[Tool]) -> Result<()> {
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
    disable_services(&packages)?;
    match missing.iter().find(|tool| need::find_tool(tool.program).is_none()) {
        Some(Tool { program, package }) => bail!("{package} is installed, but {program} is still not found"),
        None => Ok(()),
    }
}

/// Installs a package that contains no program.
///
/// # Errors
/// When it cannot be installed.
pub fn install_package(name: &str) -> Result<()> {
    install_packages(&[name])
}

fn install_packages(packages: &[&str]) -> Result<()> {
    println!("installing missing packages: {}", packages.join(" "));
    let install = || {
        let options = ["install", "--yes", "--no-install-recommends"];
        shell::run(apt_get().args(options).args(packages))
    };
    // A new machine has no package lists yet, and old lists name packages that the mirror has removed.
    if install().is_err() {
        shell::run(apt_get().arg("update"))?;
        install()?;
    }
    Ok(())
}

/// Stops the services that Debian starts, now and at each boot, with these packages: the tests need only the programs.
fn disable_services(packages: &[&str]) -> Result<()> {
    let installed = SERVICES.iter().filter(|(package, _)| packages.contains(package));
    for (_, service) in installed.filter(|_| need::find_tool("systemctl").is_some()) {
        // A container has no systemd that runs, and nothing to stop.
        let now = if Path::new("/run/systemd/system").exists() { &["--now"][..] } else { &[] };
        shell::run(as_root("systemctl").args(["--quiet", "disable"]).args(now).arg(service))?;
    }
    Ok(())
}

fn as_root(program: &str) -> Command {
    if need::is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", program]);
    sudo
}

fn apt_get() -> Command {
    let mut command = as_root("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
