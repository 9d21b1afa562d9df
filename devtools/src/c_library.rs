//! Installs libferofs: the libraries, the header, and the file for pkg-config.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

/// The version in the file name, and the soname, which build.rs of the crate sets.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const SONAME: &str = "libferofs.so.0";

/// Installs the libraries that cargo built in `built` below `prefix`, which is also the prefix in
/// the file for pkg-config. `source` is the directory of the crate.
///
/// # Errors
/// When a file cannot be read or written, with its path.
pub fn install(source: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let pkgconfig = lib.join("pkgconfig");
    for dir in [&include, &pkgconfig] {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let shared = format!("libferofs.so.{VERSION}");
    copy(&built.join("libferofs_c.so"), &lib.join(&shared))?;
    copy(&built.join("libferofs_c.a"), &lib.join("libferofs.a"))?;
    copy(&source.join("include/ferofs.h"), &include.join("ferofs.h"))?;
    for (link, target) in [(SONAME, shared.as_str()), ("libferofs.so", SONAME)] {
        let link = lib.join(link);
        if link.is_symlink() {
            fs::remove_file(&link).with_context(|| link.display().to_string())?;
        }
        symlink(target, &link).with_context(|| link.display().to_string())?;
    }
    let template = source.join("ferofs.pc.in");
    let text = fs::read_to_string(&template).with_context(|| template.display().to_string())?;
    let text =
        text.replace("@PREFIX@", &prefix.display().to_string()).replace("@VERSION@", VERSION);
    let file = pkgconfig.join("ferofs.pc");
    fs::write(&file, text).with_context(|| file.display().to_string())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("{} to {}", from.display(), to.display()))
}
