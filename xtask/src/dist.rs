//! `cargo xtask dist`: makes what a release consists of: the source archive, for each processor two
//! static programs (`ferofs`, and `ferofs-device` for devices), Debian and rpm packages of the
//! first one, and their digests. The same commit, toolchain, C compiler and compression library
//! give the same bytes.
//!
//! The programs are built from the unpacked source archive, so that the archive is complete, and
//! nothing that is not committed gets into a package.

mod debian;
mod licences;
mod program;
mod rpm;
mod source;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install;
use ferofs_tests::scratch;
use ferofs_tests::tools::Tool;
use sha2::{Digest, Sha256};

use crate::processor::{self, PROCESSORS, Processor};
use source::Version;
use tree::Contents;

/// The programs that make packages.
const TOOLS: &[Tool] = &[
    Tool { program: "dpkg-deb", package: "dpkg" },
    Tool { program: "git", package: "git" },
    Tool { program: "readelf", package: "binutils" },
    Tool { program: "rpmbuild", package: "rpm" },
    Tool { program: "tar", package: "tar" },
];

/// The files of a release.
pub(crate) struct Release {
    pub(crate) parts: Vec<Part>,
    files: Vec<PathBuf>,
}

/// The files of a release for one processor.
pub(crate) struct Part {
    pub(crate) processor: Processor,
    pub(crate) ferofs: PathBuf,
    pub(crate) device: PathBuf,
    pub(crate) debian: PathBuf,
    pub(crate) rpm: PathBuf,
}

/// `cargo xtask dist [--check] [--for PROCESSOR]... [DIR]`.
pub(crate) fn run(mut arguments: &[&str]) -> Result<()> {
    let (mut twice, mut names, mut dir) = (false, Vec::new(), None);
    loop {
        arguments = match arguments {
            [] => break,
            ["--check", rest @ ..] => {
                twice = true;
                rest
            }
            ["--for", name, rest @ ..] => {
                names.push(*name);
                rest
            }
            [path, rest @ ..] if dir.is_none() && !path.starts_with('-') => {
                dir = Some(Path::new(*path));
                rest
            }
            [argument, ..] => bail!("`cargo xtask dist` does not know {argument}"),
        };
    }
    let processors = released(&names)?;
    match twice {
        true => check(&processors),
        false => dist(&processors, dir).map(drop),
    }
}

/// The processors of these names for which there are releases, or all.
pub(crate) fn released(names: &[&str]) -> Result<Vec<Processor>> {
    processor::choose(PROCESSORS.into_iter().filter(|it| it.release.is_some()), names)
}

/// Makes a release for `processors` in `dir`, or in target/dist.
pub(crate) fn dist(processors: &[Processor], dir: Option<&Path>) -> Result<Release> {
    let work = scratch::target_dir().join("dist");
    let dir = dir.unwrap_or(&work);
    let release = make(processors, dir, &work)?;
    for file in &release.files {
        println!("{} {}", ferofs_devtools::shell::size(fs::metadata(file)?.len()), file.display());
    }
    Ok(release)
}

/// Makes a release twice, in two directories with two builds, and compares the files.
fn check(processors: &[Processor]) -> Result<()> {
    let target = scratch::target_dir();
    let (first, second) = (target.join("dist"), target.join("dist-again/with/another/path"));
    let all = [make(processors, &first, &first)?, make(processors, &second, &second)?];
    for (one, other) in all[0].files.iter().zip(&all[1].files) {
        if fs::read(one)? != fs::read(other)? {
            bail!("{} and {} differ", one.display(), other.display());
        }
        println!("{}: the same twice", one.display());
    }
    fs::remove_dir_all(target.join("dist-again")).context("removing the second release")
}

/// Makes the files in `dir`; builds in `work`.
fn make(processors: &[Processor], dir: &Path, work: &Path) -> Result<Release> {
    install::install(TOOLS)?;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let version = Version::of_head()?;
    let archive = source::archive(&version, dir)?;
    let sources = source::unpack(&archive, &version, work)?;
    let (mut files, mut parts) = (vec![archive], Vec::new());
    for processor in processors {
        let part = part(processor, &sources, &version, dir, work).context(processor.name)?;
        files.extend([&part.ferofs, &part.device, &part.debian, &part.rpm].map(PathBuf::clone));
        parts.push(part);
    }
    files.push(sums(&files, dir)?);
    Ok(Release { parts, files })
}

/// Makes the files for one processor.
fn part(
    processor: &Processor,
    sources: &Path,
    version: &Version,
    dir: &Path,
    work: &Path,
) -> Result<Part> {
    let names = processor.release.context("there are no releases for it")?;
    let built = program::build(processor, names.target, sources, work, version)?;
    let copy = |name: &str, from: &Path| {
        let to = dir.join(format!("{name}-{version}-{}", names.target));
        fs::copy(from, &to).with_context(|| to.display().to_string())?;
        Ok::<_, anyhow::Error>(to)
    };
    let (ferofs, device) = (copy("ferofs", &built.ferofs)?, copy("ferofs-device", &built.device)?);
    let licences = licences::of_program(sources, names.target)?;
    let contents = Contents { sources, program: &ferofs, processor, licences: &licences, version };
    let debian = debian::package(&contents, names.debian, dir, work)?;
    let rpm = rpm::package(&contents, names.rpm, dir, work)?;
    Ok(Part { processor: *processor, ferofs, device, debian, rpm })
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
