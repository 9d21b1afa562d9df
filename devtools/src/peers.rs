//! `cargo xtask peers`: installs the newest erofs-utils and squashfs-tools from Debian unstable
//! into target/peers.
//!
//! The machine's own packages stay as they are: debootstrap installs a minimal Debian into
//! target/peers/sid, and small scripts in target/peers/bin start its programs with its own dynamic
//! loader and libraries, without chroot.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, scratch};

use crate::install::{self, DEBOOTSTRAP};
use crate::shell;

const PROGRAMS: [&str; 6] =
    ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mksquashfs", "unsquashfs"];
const PACKAGES: &str = "erofs-utils,erofsfuse,squashfs-tools";

/// Installs the programs unless they are installed, and prints their versions.
///
/// # Errors
/// Without root, or when debootstrap fails.
pub fn install_peers() -> Result<()> {
    if !need::is_root() {
        bail!("installing a Debian into a directory needs root");
    }
    install::install(&[DEBOOTSTRAP])?;
    let target = scratch::target_dir();
    let root = target.join("peers/sid");
    if installed(&target).is_none() {
        if root.exists() {
            fs::remove_dir_all(&root).context("removing an unfinished installation")?;
        }
        fs::create_dir_all(&root)?;
        let mirror = debian_mirror()?;
        // sid is a code name that debootstrap always knows.
        let include = format!("--include={PACKAGES}");
        shell::run(
            Command::new("debootstrap")
                .args(["--variant=minbase", &include, "sid"])
                .arg(&root)
                .arg(mirror),
        )?;
        write_scripts(&root, &target.join("peers/bin"))?;
    }
    for (program, option) in [("mkfs.erofs", "-V"), ("mksquashfs", "-version")] {
        let output = Command::new(target.join("peers/bin").join(program)).arg(option).output()?;
        let output = [output.stdout, output.stderr].concat();
        println!("{program}: {}", String::from_utf8_lossy(&output).lines().next().unwrap_or("?"));
    }
    Ok(())
}

/// The directory of the scripts, if `cargo xtask peers` has finished. `target` is cargo's target
/// directory.
pub fn installed(target: &Path) -> Option<PathBuf> {
    let bin = target.join("peers/bin");
    bin.join("mkfs.erofs").is_file().then_some(bin)
}

fn write_scripts(root: &Path, bin: &Path) -> Result<()> {
    // The names of the loader and of the library directory depend on the processor architecture.
    let triplets: Vec<PathBuf> = fs::read_dir(root.join("usr/lib"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-linux-gnu"))
        })
        .collect();
    let libraries = triplets.first().context("no directory of libraries in the new Debian")?;
    let loader = fs::read_dir(libraries)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        })
        .context("no dynamic loader in the new Debian")?;
    fs::create_dir_all(bin)?;
    for program in PROGRAMS {
        let found = ["usr/bin", "usr/sbin"]
            .iter()
            .map(|dir| root.join(dir).join(program))
            .find(|path| path.is_file());
        let found = found.with_context(|| format!("no {program} in the new Debian"))?;
        let script = format!(
            "#!/bin/sh\nexec '{}' --library-path '{}' '{}' \"$@\"\n",
            loader.display(),
            libraries.display(),
            found.display()
        );
        let path = bin.join(program);
        fs::write(&path, script)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}

/// The URI of the Debian mirror that this machine uses. On other systems, the variable
/// `DEBIAN_MIRROR` names one.
///
/// # Errors
/// Without a mirror of Debian in apt's configuration or in the variable.
pub fn debian_mirror() -> Result<String> {
    match std::env::var("DEBIAN_MIRROR") {
        Ok(mirror) if !mirror.is_empty() => Ok(mirror),
        _ => mirror(&apt_sources()?),
    }
}

/// The text of all configuration files that list the package manager's sources.
fn apt_sources() -> Result<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = parts.chain([PathBuf::from("/etc/apt/sources.list")]).collect();
    files.sort();
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    Ok(texts.collect::<Vec<_>>().join("\n\n"))
}

/// The URI of the Debian mirror that this machine uses: the first source with the component `main`
/// whose path ends in "debian", which excludes debian-security.
fn mirror(sources: &str) -> Result<String> {
    let wanted = |uri: &&str| {
        let path = uri.trim_end_matches('/');
        uri.contains("://") && path.ends_with("debian")
    };
    for stanza in sources.split("\n\n") {
        let mut uris = None;
        let mut main = false;
        for line in stanza.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                // deb [options] URI SUITE COMPONENT...
                ["deb", rest @ ..] if rest.contains(&"main") => {
                    if let Some(uri) = rest.iter().copied().find(wanted) {
                        return Ok(uri.to_owned());
                    }
                }
                ["URIs:", list @ ..] => uris = list.iter().copied().find(wanted),
                ["Components:", list @ ..] => main = list.contains(&"main"),
                _ => {}
            }
        }
        if let (Some(uri), true) = (uris, main) {
            return Ok(uri.to_owned());
        }
    }
    bail!("no mirror of Debian in /etc/apt/sources.list*, nor in the variable DEBIAN_MIRROR")
}

#[cfg(test)]
mod tests {
    use super::mirror;

    #[test]
    fn the_mirror_is_found_in_both_forms() {
        let old = "# deb http://not.example/debian sid main\n\
                   deb https://tools.example/apt stable main\n\
                   deb [arch=amd64] https://mirror.example/debian bookworm main contrib\n";
        assert_eq!(mirror(old).unwrap(), "https://mirror.example/debian");
        let new = "Types: deb\nURIs: https://other.example/node\nSuites: x\nComponents: main\n\n\
                   Types: deb\n# URIs: http://not.example/debian\nURIs: http://mirror.example/debian/\n\
                   Suites: trixie\nComponents: main\n";
        assert_eq!(mirror(new).unwrap(), "http://mirror.example/debian/");
        assert!(mirror("deb http://mirror.example/debian-security stable main").is_err());
    }
}
