//! Builds images and reads them, in turns.

use std::fs;
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, DEBOOTSTRAP, EROFS_UTILS, FUSE, SQUASHFS, SQUASHFUSE};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{Run, need, scratch};
use tempfile::TempDir;

use super::reads::Reads;
use super::record::{Record, Row, Tool};
use crate::common::filesystem::{DaemonPrograms, Driver, FileSystem};
use crate::common::machine::describe;
use crate::common::rounds::rotated_order;

/// A build that takes longer hangs: the slowest takes some minutes.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The measured programs.
pub(super) struct Programs {
    ferofs: PathBuf,
    mkfs_erofs: PathBuf,
    mksquashfs: PathBuf,
    daemons: DaemonPrograms,
}

impl Programs {
    /// Installs what is missing, and builds ferofs.
    pub(super) fn install() -> Result<Self> {
        if !need::is_root() {
            bail!("debootstrap needs root");
        }
        install::install(&[DEBOOTSTRAP, EROFS_UTILS, FUSE, SQUASHFS, SQUASHFUSE])?;
        peers::install_peers()?;
        let bin = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
        let ferofs = shell::build_ferofs("release")?;
        Ok(Self {
            ferofs: ferofs.clone(),
            mkfs_erofs: bin.join("mkfs.erofs"),
            mksquashfs: bin.join("mksquashfs"),
            daemons: DaemonPrograms { ferofs, erofsfuse: Some(bin.join("erofsfuse")) },
        })
    }
}

/// What the candidates of a part share.
pub(super) struct Bench<'a> {
    programs: &'a Programs,
    source: PathBuf,
    title: String,
    rounds: usize,
    reads: Reads,
    /// In memory.
    images: TempDir,
}

/// An image that is measured.
pub(super) struct Candidate {
    pub(super) group: &'static str,
    pub(super) tool: Tool,
    pub(super) options: String,
}

impl<'a> Bench<'a> {
    pub(super) fn new(programs: &'a Programs, source: PathBuf, title: String, rounds: usize) -> Result<Self> {
        let reads = Reads::plan(&source)?;
        let images = TempDir::new_in("/dev/shm").context("/dev/shm")?;
        fs::create_dir(images.path().join("mount"))?;
        Ok(Self { programs, source, title, rounds, reads, images })
    }

    /// Measures all candidates.
    pub(super) fn measure(&self, part: &str, candidates: &[Candidate]) -> Result<Record> {
        let machine = describe(&[
            ("ferofs", &self.programs.ferofs, "--version"),
            ("erofs-utils", &self.programs.mkfs_erofs, "-V"),
            ("squashfs-tools", &self.programs.mksquashfs, "-version"),
            // It has no option that prints only the version.
            ("squashfuse", Path::new("squashfuse"), "--help"),
        ])?;
        let mut rows: Vec<Row> = candidates
            .iter()
            .map(|Candidate { group, tool, options }| Row {
                group: (*group).into(),
                tool: *tool,
                options: options.clone(),
                image_bytes: 0,
                build_cpu_seconds: Vec::new(),
                read_cpu_microseconds: Vec::new(),
            })
            .collect();
        for round in 0..self.rounds {
            for at in rotated_order(rows.len(), round) {
                // The order has each row once.
                let Some(row) = rows.get_mut(at) else { continue };
                self.round(row).with_context(|| row.command())?;
                eprintln!("{}", shell::dim(&format!("round {}: {}", round + 1, row.command()), &stderr()));
            }
        }
        Ok(Record {
            command: format!("cargo xtask bench charts --only {part} --rounds {} --publish", self.rounds),
            machine,
            source: self.title.clone(),
            source_names: self.reads.names,
            source_bytes: self.reads.bytes,
            rounds: self.rounds,
            rows,
        })
    }

    fn round(&self, row: &mut Row) -> Result<()> {
        let image = self.images.path().join("image");
        let options = row.options.split_whitespace();
        let run = |program: &Path| Run::limited(program, None, TIMEOUT);
        let run = match row.tool {
            Tool::Ferofs => run(&self.programs.ferofs)
                .args(["build", "--quiet"])
                .args(options)
                .args([&self.source, &image]),
            Tool::MkfsErofs => {
                run(&self.programs.mkfs_erofs).arg("--quiet").args(options).args([&image, &self.source])
            }
            Tool::Mksquashfs => run(&self.programs.mksquashfs)
                .args([&self.source, &image])
                .args(["-noappend", "-no-progress", "-quiet"])
                .args(options),
        };
        let outcome = run.try_run()?;
        if outcome.code != 0 {
            bail!("exit code {}: {}", outcome.code, outcome.stderr);
        }
        row.build_cpu_seconds.push(rounded(outcome.cpu.as_secs_f64()));
        // Sizes of the rounds differ by nothing, or by what UUIDs and times make of compressed metadata: the last counts.
        row.image_bytes = fs::metadata(&image)?.len();
        let driver = match row.tool {
            Tool::Ferofs => Driver::Ferofs(&[]),
            Tool::MkfsErofs => Driver::Erofsfuse,
            Tool::Mksquashfs => Driver::Squashfuse,
        };
        let mounted = FileSystem::new(row.command(), &image, driver)
            .mount(&self.programs.daemons, &self.images.path().join("mount"))?;
        row.read_cpu_microseconds.push(rounded(self.reads.cost(&mounted)?));
        drop(mounted);
        fs::remove_file(&image)?;
        Ok(())
    }
}

/// Milliseconds and nanoseconds are exact enough, and easy to read in the published figures.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
