//! The compared programs: how each makes an image, and what a run of one costs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

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
        let bin = peers::installed(&scratch::target_dir())
            .context("cargo xtask peers has not finished")?;
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

    pub(crate) fn build(
        &self,
        tool: Tool,
        options: &str,
        tree: &Path,
        image: &Path,
    ) -> Result<Outcome> {
        let options = options.split_whitespace();
        let run = |program: &Path| Run::limited(program, None, TIMEOUT);
        let run = match tool {
            Tool::Ferofs => {
                run(&self.ferofs).args(["build", "--quiet"]).args(options).args([tree, image])
            }
            Tool::MkfsErofs => {
                run(&self.peer("mkfs.erofs")).arg("--quiet").args(options).args([image, tree])
            }
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
    std::env::var_os("FEROFS_BIN")
        .map_or_else(|| shell::build_ferofs("release"), |path| Ok(path.into()))
}

/// Runs a command that must succeed; `what` names it in the error.
pub(crate) fn succeed(what: &str, run: Run) -> Result<Outcome> {
    let outcome = run.try_run().with_context(|| what.to_owned())?;
    if outcome.code != 0 {
        bail!("{what}: exit code {}: {}", outcome.code, outcome.stderr);
    }
    Ok(outcome)
}

/// Time between two looks at the memory of a process.
const STEP: Duration = Duration::from_millis(1);

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The largest resident set in bytes, as long as it was seen. The kernel's own figure would
    /// include that of this program.
    pub(crate) peak: u64,
}

/// Runs a command whose output is not needed.
pub(crate) fn run(command: &mut Command) -> Result<Cost> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let stderr = child.stderr.take();
    // A full pipe would stop the program.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stderr.map(|mut pipe| pipe.read_to_string(&mut text));
        text
    });
    let mut peak = 0;
    let status = loop {
        peak = peak.max(resident_peak(child.id()).unwrap_or(0));
        match child.try_wait()? {
            Some(status) => break status,
            None => thread::sleep(STEP),
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let stderr = reader.join().unwrap_or_default();
    if !status.success() {
        bail!("{command:?}: {status}: {}", stderr.trim());
    }
    Ok(Cost { seconds, peak })
}

/// The largest resident set of a process so far.
pub(crate) fn resident_peak(pid: u32) -> Option<u64> {
    ferofs_tests::run::proc_bytes(format!("/proc/{pid}/status"), "VmHWM:")
}

/// Processor seconds of each thread of the kernel since its start.
pub(crate) fn kernel_threads() -> Result<BTreeMap<OsString, f64>> {
    let seconds = |dir: &Path| {
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        // Behind the name in parentheses: the state and the parent, which is the process with
        // number 2.
        let (_, fields) = stat.rsplit_once(") ")?;
        let is_thread = fields.split(' ').nth(1) == Some("2");
        let nanoseconds = fs::read_to_string(dir.join("schedstat")).ok()?;
        is_thread.then(|| nanoseconds.split(' ').next()?.parse::<f64>().ok()).flatten()
    };
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes
        .filter_map(|entry| Some((entry.file_name(), seconds(&entry.path())? / 1e9)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_measured() {
        let cost =
            run(Command::new("sh").args(["-c", "head -c 30M /dev/zero | tail -c 30M; sleep 0.05"]))
                .unwrap();
        assert!(cost.seconds >= 0.05 && cost.peak > 0, "{cost:?}");
        assert!(
            run(Command::new("sh").args(["-c", "echo wrong >&2; false"]))
                .unwrap_err()
                .to_string()
                .contains("wrong")
        );
    }
}
