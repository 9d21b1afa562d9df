//! Builds images and reads them, in turns.

use std::fs;
use std::io::stderr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use tempfile::TempDir;

use super::record::{Record, Row};
use crate::common::filesystem::{Driver, FileSystem};
use crate::common::machine::describe;
use crate::common::programs::{Programs, Tool};
use crate::common::reads::Reads;
use crate::common::rounds::rotated_order;

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
        let mut programs = self.programs.versions().to_vec();
        // It has no option that prints only the version.
        programs.push(("squashfuse", "squashfuse".into(), "--help"));
        let machine = describe("charts", &programs)?;
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
        let outcome = self.programs.build(row.tool, &row.options, &self.source, &image)?;
        row.build_cpu_seconds.push(rounded(outcome.cpu.as_secs_f64()));
        // Sizes of the rounds differ by nothing, or by what UUIDs and times make of compressed metadata: the last counts.
        row.image_bytes = fs::metadata(&image)?.len();
        let driver = match row.tool {
            Tool::Ferofs => Driver::Ferofs(&[]),
            Tool::MkfsErofs => Driver::Erofsfuse,
            Tool::Mksquashfs => Driver::Squashfuse,
            Tool::Mkdwarfs => bail!("images of mkdwarfs are not mounted"),
        };
        let mounted = FileSystem::new(row.command(), &image, driver)
            .mount(&self.programs.daemons(), &self.images.path().join("mount"))?;
        row.read_cpu_microseconds
            .push(rounded(self.reads.cost(mounted.path(), || mounted.cpu().context("no daemon"))?));
        drop(mounted);
        fs::remove_file(&image)?;
        Ok(())
    }
}

/// Milliseconds and nanoseconds are exact enough, and easy to read in the published figures.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
