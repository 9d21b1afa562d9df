//! The files of a package.
//!
//! The program acts under the names of erofs-utils through links in a private folder, so that a
//! package neither conflicts with erofs-utils nor replaces its files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use flate2::{Compression, GzBuilder};

use super::source::Version;
use crate::processor::Processor;

/// What is packed, in each format.
pub(super) struct Contents<'a> {
    /// The sources, which have the texts.
    pub(super) sources: &'a Path,
    pub(super) program: &'a Path,
    /// The processor of the program.
    pub(super) processor: &'a Processor,
    /// The licences of the libraries in the program.
    pub(super) licences: &'a str,
    pub(super) version: &'a Version,
}

/// A name of erofs-utils.
pub(super) struct Name {
    /// The path that the program has in erofs-utils.
    pub(super) link: String,
    pub(super) name: String,
    /// The section of its manual page.
    pub(super) section: String,
}

impl Name {
    /// The names that packaging/names lists.
    pub(super) fn all(sources: &Path) -> Result<Vec<Self>> {
        let text = read(&sources.join("packaging/names"))?;
        let name = |line: &str| {
            let (link, section) = line.split_once(' ')?;
            let (_, name) = link.rsplit_once('/')?;
            Some(Self { link: link.to_owned(), name: name.to_owned(), section: section.to_owned() })
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| name(line).with_context(|| format!("packaging/names: {line}"))).collect()
    }

    pub(super) fn page(&self) -> String {
        format!("{}.{}.gz", self.name, self.section)
    }
}

/// The files of the package, with the modes that they get whatever the umask is.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The files that each package has, in `root`. zsh looks for completions in `zsh`.
    pub(super) fn new(
        root: PathBuf,
        contents: &Contents<'_>,
        names: &[Name],
        zsh: &str,
    ) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(&root).context("removing the files of the last package")?;
        }
        let tree = Self { root };
        tree.copy(contents.program, "usr/bin/ferofs", 0o755)?;
        for name in names {
            tree.link("../../bin/ferofs", &format!("usr/lib/ferofs/{}", name.name))?;
        }
        let ferofs = || contents.processor.command(contents.program);
        tree.manual(ferofs().env("SOURCE_DATE_EPOCH", contents.version.time.to_string()), names)?;
        let zsh = format!("{zsh}/_ferofs");
        let completions = [
            ("bash", "usr/share/bash-completion/completions/ferofs"),
            ("zsh", &*zsh),
            ("fish", "usr/share/fish/vendor_completions.d/ferofs.fish"),
        ];
        for (shell, path) in completions {
            tree.write(path, &shell::output(ferofs().args(["completions", shell]))?, 0o644)?;
        }
        tree.compress("usr/share/doc/ferofs/licences.gz", contents.licences.as_bytes())?;
        tree.compress(
            "usr/share/doc/ferofs/changelog.gz",
            &fs::read(contents.sources.join("CHANGELOG.md"))?,
        )?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> Result<PathBuf> {
        let path = self.root.join(path);
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        while let Some(dir) = missing.pop() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            if dir.starts_with(&self.root) {
                fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?;
            }
        }
        Ok(path)
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.path(path)?;
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
    }

    pub(super) fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<()> {
        self.write(path, &fs::read(from).with_context(|| from.display().to_string())?, mode)
    }

    pub(super) fn compress(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
        gzip.write_all(bytes)?;
        self.write(path, &gzip.finish()?, 0o644)
    }

    fn link(&self, target: &str, path: &str) -> Result<()> {
        let path = self.path(path)?;
        symlink(target, &path).with_context(|| path.display().to_string())
    }

    /// The manual pages: those of `ferofs` where man looks for them, and those with the names of
    /// erofs-utils beside the links.
    fn manual(&self, ferofs: &mut Command, names: &[Name]) -> Result<()> {
        let dir = tempfile::tempdir()?;
        shell::output(ferofs.arg("man").arg(dir.path()))?;
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
        match names
            .iter()
            .find(|name| !self.root.join("usr/lib/ferofs/man").join(name.page()).exists())
        {
            Some(name) => bail!("ferofs man wrote no page {}", name.page()),
            None => Ok(()),
        }
    }
}

pub(super) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
