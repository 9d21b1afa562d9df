//! The compared programs, and how each makes an image.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{Outcome, Run, need, scratch};
use serde::{Deserialize, Serialize};

use super::filesystem::DaemonPrograms;

/// A program that runs longer hangs: the slowest takes some minutes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3600);

/// A program that makes images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tool {
    #[serde(rename = "ferofs build")]
    Ferofs,
    #[serde(rename = "mkfs.erofs")]
    MkfsErofs,
    #[serde(rename = "mksquashfs")]
    Mksquashfs,
    #[serde(rename = "mkdwarfs")]
    Mkdwarfs,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ferofs => "ferofs build",
            Self::MkfsErofs => "mkfs.erofs",
            Self::Mksquashfs => "mksquashfs",
            Self::Mkdwarfs => "mkdwarfs",
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// `FEROFS_BIN`, or what cargo builds with optimisation.
    pub(crate) ferofs: PathBuf,
    /// The newest erofs-utils and squashfs-tools.
    bin: PathBuf,
}

impl Programs {
    /// Builds ferofs and installs the others, which needs root.
    pub(crate) fn install() -> Result<Self> {
        if !need::is_root() {
            bail!("installing a Debian with the compared programs needs root");
        }
        peers::install_peers()?;
        let bin = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
        Ok(Self { ferofs: ferofs()?, bin })
    }

    pub(crate) fn peer(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    pub(crate) fn daemons(&self) -> DaemonPrograms {
        DaemonPrograms { ferofs: self.ferofs.clone(), erofsfuse: Some(self.peer("erofsfuse")) }
    }

    /// What prints the versions of the programs that make images.
    pub(crate) fn versions(&self) -> [(&'static str, PathBuf, &'static str); 3] {
        [
            ("ferofs", self.ferofs.clone(), "--version"),
            ("erofs-utils", self.peer("mkfs.erofs"), "-V"),
            ("squashfs-tools", self.peer("mksquashfs"), "-version"),
        ]
    }

    /// Makes the image of a tree.
    pub(crate) fn build(&self, tool: Tool, options: &str, tree: &Path, image: &Path) -> Result<Outcome> {
        let options = options.split_whitespace();
        let run = |program: &Path| Run::limited(program, None, TIMEOUT);
        let run = match tool {
            Tool::Ferofs => run(&self.ferofs).args(["build", "--quiet"]).args(options).args([tree, image]),
            Tool::MkfsErofs => run(&self.peer("mkfs.erofs")).arg("--quiet").args(options).args([image, tree]),
            Tool::Mksquashfs => run(&self.peer("mksquashfs"))
                .args([tree, image])
                .args(["-noappend", "-no-progress", "-quiet"])
                .args(options),
            Tool::Mkdwarfs => run(Path::new("mkdwarfs"))
                .args(options)
                .args(["--force", "--no-progress", "--log-level=error", "-i"])
                .args([tree, Path::new("-o"), image]),
        };
        succeed(tool.name(), run)
    }
}

/// The program ferofs: `FEROFS_BIN`, or what cargo builds with optimisation.
pub(crate) fn ferofs() -> Result<PathBuf> {
    std::env::var_os("FEROFS_BIN").map_or_else(|| shell::build_ferofs("release"), |path| Ok(path.into()))
}

/// Runs a command that must succeed; `what` names it in the error.
pub(crate) fn succeed(what: &str, run: Run) -> Result<Outcome> {
    let outcome = run.try_run().with_context(|| what.to_owned())?;
    if outcome.code != 0 {
        bail!("{what}: exit code {}: {}", outcome.code, outcome.stderr);
    }
    Ok(outcome)
}
