//! The Debian package. packaging/debian has its texts. Alternatives lead to the links with the
//! names of erofs-utils.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use ferofs_devtools::shell;

use super::source::Version;
use super::tree::{Contents, Name, Tree, read};

/// The folder of the links with the names of erofs-utils.
const LINKS: &str = "/usr/lib/ferofs";
/// The priority of the alternatives: that of a program that nobody chose by hand.
const PRIORITY: u32 = 50;

/// Packs `contents` in `dir`, for what Debian calls `architecture`.
pub(super) fn package(
    contents: &Contents<'_>,
    architecture: &str,
    dir: &Path,
    work: &Path,
) -> Result<PathBuf> {
    let Contents { sources, version, .. } = contents;
    let (texts, names) = (sources.join("packaging/debian"), Name::all(sources)?);
    let tree =
        Tree::new(work.join("package"), contents, &names, "usr/share/zsh/vendor-completions")?;
    tree.copy(&texts.join("copyright"), "usr/share/doc/ferofs/copyright", 0o644)?;
    tree.compress("usr/share/doc/ferofs/changelog.Debian.gz", changelog(version).as_bytes())?;
    tree.copy(&texts.join("lintian-overrides"), "usr/share/lintian/overrides/ferofs", 0o644)?;

    let control = read(&texts.join("control.in"))?
        .replace("@VERSION@", &format!("{version}-1"))
        .replace("@ARCHITECTURE@", architecture)
        .replace("@MAINTAINER@", &version.author)
        .replace("@SIZE@", &installed_size(tree.root())?.div_ceil(1024).to_string());
    tree.write("DEBIAN/md5sums", &md5sums(tree.root())?, 0o644)?;
    tree.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    let triggers: String =
        names.iter().map(|name| format!("interest-noawait {}\n", name.link)).collect();
    tree.write("DEBIAN/triggers", triggers.as_bytes(), 0o644)?;
    let install: Vec<String> = names.iter().map(Name::install).collect();
    let script = read(&texts.join("postinst.in"))?.replace("@INSTALL@", &install.join("\n"));
    tree.write("DEBIAN/postinst", script.as_bytes(), 0o755)?;
    let remove: Vec<String> = names.iter().map(Name::remove).collect();
    let script = read(&texts.join("prerm.in"))?.replace("@REMOVE@", &remove.join("\n"));
    tree.write("DEBIAN/prerm", script.as_bytes(), 0o755)?;

    let file = dir.join(format!("ferofs_{version}-1_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    // The bytes of several compressing threads depend on their number.
    dpkg.args(["--root-owner-group", "--threads-max=1", "-Zxz", "--build"])
        .arg(tree.root())
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", version.time.to_string());
    shell::run(&mut dpkg)?;
    Ok(file)
}

impl Name {
    /// The command that makes the alternative, with its manual page.
    fn install(&self) -> String {
        let (link, name, page) = (&self.link, &self.name, self.page());
        let manual = format!("/usr/share/man/man{}", self.section);
        format!(
            "    update-alternatives --quiet --install {link} {name} {LINKS}/{name} {PRIORITY} \\\n        \
             --slave {manual}/{page} {page} {LINKS}/man/{page}"
        )
    }

    fn remove(&self) -> String {
        format!("    update-alternatives --quiet --remove {0} {LINKS}/{0}", self.name)
    }
}

/// One entry: the commit says the rest.
fn changelog(version: &Version) -> String {
    format!(
        "ferofs ({version}-1) unstable; urgency=medium\n\n  * Built from commit {}.\n    changelog.gz has the changes.\n\n \
         -- {}  {}\n",
        version.commit, version.author, version.date
    )
}

/// The bytes of all files, each rounded up to 1 KiB as Debian does, and 1 KiB for each other entry.
fn installed_size(root: &Path) -> Result<u64> {
    let entries = files(root)?;
    let size = |(path, is_file): &(PathBuf, bool)| {
        let len = if *is_file { fs::symlink_metadata(root.join(path))?.len() } else { 0 };
        Ok(len.max(1).next_multiple_of(1024))
    };
    entries.iter().map(size).sum()
}

/// The MD5 sums with which `dpkg --verify` detects changed files.
fn md5sums(root: &Path) -> Result<Vec<u8>> {
    let files = files(root)?;
    let paths = files.iter().filter(|(_, is_file)| *is_file).map(|(path, _)| path);
    shell::output(Command::new("md5sum").args(paths).current_dir(root))
}

/// The sorted paths of all files and links below `root`, relative to it, and whether each is a
/// regular file.
fn files(root: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let (path, file_type) = (entry.path(), entry.file_type()?);
            if file_type.is_dir() {
                left.push(path.clone());
            }
            found.push((path.strip_prefix(root)?.to_owned(), file_type.is_file()));
        }
    }
    found.sort();
    Ok(found)
}
