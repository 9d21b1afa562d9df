//! The Debian package. packaging/debian has its texts.
//!
//! The program acts under the names of erofs-utils through links in a private folder, and alternatives lead to them. So the package neither
//! conflicts with erofs-utils nor replaces its files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use flate2::{Compression, GzBuilder};

use super::source::Version;

/// The folder of the links with the names of erofs-utils.
const LINKS: &str = "/usr/lib/ferofs";
/// The priority of the alternatives: that of a program that nobody chose by hand.
const PRIORITY: u32 = 50;

/// Where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/ferofs"),
    ("zsh", "usr/share/zsh/vendor-completions/_ferofs"),
    ("fish", "usr/share/fish/vendor_completions.d/ferofs.fish"),
];

/// A name of erofs-utils.
struct Name {
    /// The path of the alternative's link.
    link: String,
    name: String,
    /// The section of its manual page.
    section: String,
}

/// Packs `program` for Debian in `dir`. `sources` has the texts, and `licences` are those of the libraries in the program.
pub(super) fn package(
    sources: &Path,
    program: &Path,
    licences: &str,
    version: &Version,
    dir: &Path,
    work: &Path,
) -> Result<PathBuf> {
    let texts = sources.join("packaging/debian");
    let names = names(&read(&sources.join("packaging/names"))?)?;
    let root = work.join("package");
    if root.exists() {
        fs::remove_dir_all(&root).context("removing the files of the last package")?;
    }
    let tree = Tree { root: &root, version };
    tree.copy(program, "usr/bin/ferofs", 0o755)?;
    for name in &names {
        tree.link("../../bin/ferofs", &format!("usr/lib/ferofs/{}", name.name))?;
    }
    tree.manual(program, &names)?;
    for (shell, path) in COMPLETIONS {
        tree.write(path, &shell::output(Command::new(program).args(["completions", shell]))?, 0o644)?;
    }
    tree.copy(&texts.join("copyright"), "usr/share/doc/ferofs/copyright", 0o644)?;
    tree.compress("usr/share/doc/ferofs/licences.gz", licences.as_bytes())?;
    tree.compress("usr/share/doc/ferofs/changelog.gz", &fs::read(sources.join("CHANGELOG.md"))?)?;
    tree.compress("usr/share/doc/ferofs/changelog.Debian.gz", changelog(version).as_bytes())?;
    tree.copy(&texts.join("lintian-overrides"), "usr/share/lintian/overrides/ferofs", 0o644)?;

    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = String::from_utf8_lossy(&architecture).trim_end().to_owned();
    let control = read(&texts.join("control.in"))?
        .replace("@VERSION@", &format!("{version}-1"))
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@MAINTAINER@", &version.author)
        .replace("@SIZE@", &installed_size(&root)?.div_ceil(1024).to_string());
    tree.write("DEBIAN/md5sums", &md5sums(&root)?, 0o644)?;
    tree.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    let triggers: String = names.iter().map(|name| format!("interest-noawait {}\n", name.link)).collect();
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
        .arg(&root)
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", version.time.to_string());
    shell::run(&mut dpkg)?;
    Ok(file)
}

fn names(text: &str) -> Result<Vec<Name>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| {
        let (link, section) = line.split_once(' ')?;
        let (_, name) = link.rsplit_once('/')?;
        Some(Name { link: link.to_owned(), name: name.to_owned(), section: section.to_owned() })
    };
    lines.map(|line| name(line).with_context(|| format!("packaging/names: {line}"))).collect()
}

impl Name {
    fn page(&self) -> String {
        format!("{}.{}.gz", self.name, self.section)
    }

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

/// The files of the package, with the modes that they get whatever the umask is.
struct Tree<'a> {
    root: &'a Path,
    version: &'a Version,
}

impl Tree<'_> {
    fn path(&self, path: &str) -> Result<PathBuf> {
        let path = self.root.join(path);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        while let Some(dir) = missing.pop() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            if dir.starts_with(self.root) {
                fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?;
            }
        }
        Ok(path)
    }

    fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.path(path)?;
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
    }

    fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<()> {
        self.write(path, &fs::read(from).with_context(|| from.display().to_string())?, mode)
    }

    fn compress(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
        gzip.write_all(bytes)?;
        self.write(path, &gzip.finish()?, 0o644)
    }

    fn link(&self, target: &str, path: &str) -> Result<()> {
        let path = self.path(path)?;
        symlink(target, &path).with_context(|| path.display().to_string())
    }

    /// The manual pages: those of `ferofs` where man looks for them, and those with the names of erofs-utils beside the links.
    fn manual(&self, program: &Path, names: &[Name]) -> Result<()> {
        let dir = tempfile::tempdir()?;
        let mut man = Command::new(program);
        man.arg("man").arg(dir.path()).env("SOURCE_DATE_EPOCH", self.version.time.to_string());
        shell::output(&mut man)?;
        let mut pages: Vec<PathBuf> =
            fs::read_dir(dir.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        pages.sort();
        for page in pages {
            let file = format!("{}.gz", page.file_name().unwrap_or_default().to_string_lossy());
            let place = match names.iter().any(|name| name.page() == file) {
                true => "usr/lib/ferofs/man",
                false => "usr/share/man/man1",
            };
            self.compress(&format!("{place}/{file}"), &fs::read(&page)?)?;
        }
        match names.iter().find(|name| !self.root.join("usr/lib/ferofs/man").join(name.page()).exists()) {
            Some(name) => bail!("ferofs man wrote no page {}", name.page()),
            None => Ok(()),
        }
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

/// The sorted paths of all files and links below `root`, relative to it, and whether each is a regular file.
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

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
