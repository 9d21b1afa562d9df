//! `cargo xtask dist [DIR]`: makes what a release consists of: the source archive, two static programs (`ferofs`, and `ferofs-device`
//! for devices), a Debian package of the first one, and their digests. The same commit, toolchain and compression library give the
//! same bytes.
//!
//! The programs are built from the unpacked source archive, so that the archive is complete, and nothing that is not committed gets into
//! a package.

mod debian;
mod licences;
mod program;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install;
use ferofs_tests::scratch;
use ferofs_tests::tools::Tool;
use sha2::{Digest, Sha256};

use source::Version;

/// The programs that make packages.
const TOOLS: &[Tool] = &[
    Tool { program: "dpkg-deb", package: "dpkg" },
    Tool { program: "git", package: "git" },
    Tool { program: "readelf", package: "binutils" },
    Tool { program: "tar", package: "tar" },
];

/// The files of a release.
pub(crate) struct Release {
    pub(crate) package: PathBuf,
    files: Vec<PathBuf>,
}

/// Makes a release in `dir`, or in target/dist.
pub(crate) fn dist(dir: Option<&Path>) -> Result<Release> {
    let work = scratch::target_dir().join("dist");
    let dir = dir.unwrap_or(&work);
    let release = make(dir, &work)?;
    for file in &release.files {
        println!("{} {}", ferofs_devtools::shell::size(fs::metadata(file)?.len()), file.display());
    }
    Ok(release)
}

/// Makes a release twice, in two directories with two builds, and compares the files.
pub(crate) fn check() -> Result<()> {
    let target = scratch::target_dir();
    let (first, second) = (target.join("dist"), target.join("dist-again/with/another/path"));
    let all = [make(&first, &first)?, make(&second, &second)?];
    for (one, other) in all[0].files.iter().zip(&all[1].files) {
        if fs::read(one)? != fs::read(other)? {
            bail!("{} and {} differ", one.display(), other.display());
        }
        println!("{}: the same twice", one.display());
    }
    fs::remove_dir_all(target.join("dist-again")).context("removing the second release")
}

/// Makes the files in `dir`; builds in `work`.
fn make(dir: &Path, work: &Path) -> Result<Release> {
    install::install(TOOLS)?;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let version = Version::of_head()?;
    let archive = source::archive(&version, dir)?;
    let unpacked = source::unpack(&archive, &version, work)?;
    let built = program::build(&unpacked, work, &version)?;
    let copy = |name: &str, from: &Path| {
        let to = dir.join(format!("{name}-{version}-{}", built.target));
        fs::copy(from, &to).with_context(|| to.display().to_string())?;
        Ok::<_, anyhow::Error>(to)
    };
    let (program, device) = (copy("ferofs", &built.ferofs)?, copy("ferofs-device", &built.device)?);
    let licences = licences::of_program(&unpacked, &built.target)?;
    let package = debian::package(&unpacked, &program, &licences, &version, dir, work)?;
    let mut files = vec![archive, program, device, package.clone()];
    files.push(sums(&files, dir)?);
    Ok(Release { package, files })
}

/// Writes the digests of `files` in the form that sha256sum checks.
fn sums(files: &[PathBuf], dir: &Path) -> Result<PathBuf> {
    let mut text = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let digest = Sha256::digest(fs::read(file)?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{digest}  {name}\n");
    }
    let path = dir.join("SHA256SUMS");
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}
