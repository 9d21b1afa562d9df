//! Installs the programs that a command needs and this machine lacks, with Debian's package
//! manager. Services that come with them are neither started nor enabled.

use std::ffi::OsStr;
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
/// Makes binary deltas of files.
pub const XDELTA: Tool = Tool { program: "xdelta3", package: "xdelta3" };
/// Makes binary deltas of programs.
pub const BSDIFF: Tool = Tool { program: "bsdiff", package: "bsdiff" };
/// Divides images into chunks by their content.
pub const CASYNC: Tool = Tool { program: "casync", package: "casync" };
/// Measures the memory of a program that it starts. Linux counts the memory of the process that
/// starts a program, too, and this one is small.
pub const TIME: Tool = Tool { program: "time", package: "time" };
/// Counts the instructions of a program.
pub const VALGRIND: Tool = Tool { program: "valgrind", package: "valgrind" };
/// Counts the system calls of a program.
pub const STRACE: Tool = Tool { program: "strace", package: "strace" };
/// Compresses files, also against another file.
pub const ZSTD: Tool = Tool { program: "zstd", package: "zstd" };
/// Downloads from servers.
pub const CURL: Tool = Tool { program: "curl", package: "curl" };
/// Installs a minimal Debian into a directory.
pub const DEBOOTSTRAP: Tool = Tool { program: "debootstrap", package: "debootstrap" };

/// The programs of Debian's packages that start, stop and enable services.
const SERVICE_TOOLS: [&str; 4] = [
    "/usr/sbin/invoke-rc.d",
    "/usr/sbin/update-rc.d",
    "/usr/bin/deb-systemd-invoke",
    "/usr/bin/deb-systemd-helper",
];

/// The packages of those of `tools` that are missing, sorted.
pub fn missing_packages(tools: &[Tool]) -> Vec<&'static str> {
    let missing = tools.iter().filter(|tool| need::find_tool(tool.program).is_none());
    let mut packages: Vec<_> = missing.map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs those of `tools` that are missing.
///
/// # Errors
/// When a package cannot be installed, or does not contain its program.
pub fn install(tools: &[Tool]) -> Result<()> {
    let packages = missing_packages(tools);
    if packages.is_empty() {
        return Ok(());
    }
    check_rights(&packages)?;
    install_packages(&packages)?;
    match tools.iter().find(|tool| need::find_tool(tool.program).is_none()) {
        Some(Tool { program, package }) => {
            bail!("{package} is installed, but {program} is still not found")
        }
        None => Ok(()),
    }
}

/// Installs those of `tools` that are missing and that the distribution has, and returns those that
/// it does not have: Debian's releases differ in their packages.
///
/// # Errors
/// As [`install`], and when the lists of packages cannot be updated: without them, nobody knows
/// what the distribution has.
pub fn install_existing(tools: &[Tool]) -> Result<Vec<Tool>> {
    let packages = missing_packages(tools);
    let mut unknown = Vec::new();
    if !packages.is_empty() {
        check_rights(&packages)?;
        unknown = unknown_packages(&packages)?;
    }
    if !unknown.is_empty() {
        // By default, a mirror that does not answer is only a warning.
        shell::run(apt_get().args(["-o", "APT::Update::Error-Mode=any", "update"]))?;
        unknown = unknown_packages(&unknown)?;
    }
    let (lacking, existing) =
        tools.iter().partition::<Vec<Tool>, _>(|tool| unknown.contains(&tool.package));
    install(&existing)?;
    Ok(lacking)
}

/// Those of `packages` of which apt knows no version that it could install.
fn unknown_packages<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let policy =
        shell::output(Command::new("apt-cache").arg("policy").args(packages).env("LC_ALL", "C"))?;
    let policy = String::from_utf8_lossy(&policy);
    // A line with the name and a colon begins the part of a package. A package that no list names
    // has no part, or no candidate.
    let mut known = Vec::new();
    let mut name = "";
    for line in policy.lines() {
        match line.trim_start().strip_prefix("Candidate: ") {
            Some("(none)") => {}
            Some(_) => known.push(name),
            None if !line.starts_with(' ') => name = line.trim_end_matches(':'),
            None => {}
        }
    }
    Ok(packages.iter().copied().filter(|package| !known.contains(package)).collect())
}

/// Checks that this process can install packages.
fn check_rights(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if need::find_tool("apt-get").is_none() {
        bail!(
            "these Debian packages (or your system's equivalents) are missing, please install them: {list}"
        );
    }
    if !need::is_root() && need::find_tool("sudo").is_none() {
        bail!("these packages are missing, please install them as root: apt-get install {list}");
    }
    Ok(())
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
    // A new machine has no package lists yet, and old lists name packages that the mirror has
    // removed.
    if install().is_err() {
        shell::run(apt_get().arg("update"))?;
        install()?;
    }
    Ok(())
}

fn apt_get() -> Command {
    as_root(&without_services(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]))
}

/// The command line `words`, run where the programs that start and enable services do nothing. This
/// is a mount namespace, so the change ends with the command, however that ends. In a container
/// that may not make namespaces, it is the command line alone.
fn without_services(words: &[&str]) -> Vec<String> {
    let can_mount = as_root(&["unshare", "--mount", "mount", "--bind", "/", "/"]).output();
    let mut line: Vec<String> = Vec::new();
    if can_mount.is_ok_and(|output| output.status.success()) {
        let script = "for tool in $0; do [ ! -e $tool ] || mount --bind /bin/true $tool || exit; done; exec \"$@\"";
        line.extend(["unshare", "--mount", "sh", "-c", script].map(String::from));
        line.push(SERVICE_TOOLS.join(" "));
    }
    line.extend(words.iter().map(|word| (*word).to_owned()));
    line
}

fn as_root(words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new("env");
    if !need::is_root() {
        command = Command::new("sudo");
        command.arg("-n");
    }
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_the_distribution_does_not_have_are_found() {
        if need::find_tool("apt-cache").is_none() {
            need::lacks("apt-cache");
            return;
        }
        // apt knows the installed packages without any list.
        let packages = ["ferofs-of-no-distribution", "dpkg", "zz-of-no-distribution", "apt"];
        let unknown = unknown_packages(&packages).unwrap();
        assert_eq!(unknown, ["ferofs-of-no-distribution", "zz-of-no-distribution"]);
    }

    #[test]
    fn packages_cannot_start_or_enable_services() {
        if !need::root() {
            return;
        }
        if without_services(&[]).is_empty() {
            need::lacks("the right to make mount namespaces");
            return;
        }
        let tools = SERVICE_TOOLS.iter().filter(|tool| std::path::Path::new(tool).exists());
        let tools: Vec<_> = tools.collect();
        assert!(!tools.is_empty());
        for tool in tools {
            let does_nothing =
                |words: Vec<String>| as_root(&words).output().unwrap().status.success();
            let compare = ["cmp", "/bin/true", tool];
            assert!(does_nothing(without_services(&compare)), "{tool}");
            assert!(!does_nothing(compare.map(String::from).into()), "{tool}");
        }
    }
}
