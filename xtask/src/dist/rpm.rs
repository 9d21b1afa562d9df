//! The package for Fedora, openSUSE and their relatives. packaging/rpm has its texts. It leaves the
//! names of erofs-utils to erofs-utils: the links are only in the private folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use ferofs_devtools::shell;

use super::tree::{Contents, Name, Tree, read};

/// Packs `contents` in `dir`, for what rpm calls `architecture`.
pub(super) fn package(
    contents: &Contents<'_>,
    architecture: &str,
    dir: &Path,
    work: &Path,
) -> Result<PathBuf> {
    let Contents { sources, version, .. } = contents;
    let work = work.join("rpm");
    let tree = Tree::new(
        work.join("tree"),
        contents,
        &Name::all(sources)?,
        "usr/share/zsh/site-functions",
    )?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.copy(&sources.join(name), &format!("usr/share/licenses/ferofs/{name}"), 0o644)?;
    }
    let spec = read(&sources.join("packaging/rpm/ferofs.spec.in"))?
        .replace("@VERSION@", &version.to_string())
        .replace("@TREE@", &tree.root().to_string_lossy());
    let path = work.join("ferofs.spec");
    fs::write(&path, spec)?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild
        .args(["-bb", "--quiet", "--target", &format!("{architecture}-linux")])
        .args(["--define", &format!("_topdir {}", work.display())])
        .args(["--define", &format!("_rpmdir {}", std::path::absolute(dir)?.display())])
        .arg(&path)
        .env("SOURCE_DATE_EPOCH", version.time.to_string());
    shell::run(&mut rpmbuild)?;
    Ok(dir.join(format!("ferofs-{version}-1.{architecture}.rpm")))
}
