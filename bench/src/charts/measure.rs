//! Builds images and reads them, in turns, and keeps the figures in the published record.

use std::fmt::Write as _;
use std::fs;
use std::io::stderr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::common::filesystem::{Driver, FileSystem};
use crate::common::machine::{Facts, describe};
use crate::common::programs::{Programs, Tool};
use crate::common::reads::Reads;
use crate::common::report::number;
use crate::common::rounds::{Spread, rotated_order};

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
    pub(super) fn new(
        programs: &'a Programs,
        source: PathBuf,
        title: String,
        rounds: usize,
    ) -> Result<Self> {
        let reads = Reads::plan(&source)?;
        let images = TempDir::new_in("/dev/shm").context("/dev/shm")?;
        fs::create_dir(images.path().join("mount"))?;
        Ok(Self { programs, source, title, rounds, reads, images })
    }

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
                eprintln!(
                    "{}",
                    shell::dim(&format!("round {}: {}", round + 1, row.command()), &stderr())
                );
            }
        }
        Ok(Record {
            command: format!(
                "cargo xtask bench charts --only {part} --rounds {} --publish",
                self.rounds
            ),
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
        // Sizes of the rounds differ by nothing, or by what UUIDs and times make of compressed
        // metadata: the last counts.
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

/// One run of one part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The command that measures these figures again.
    pub(super) command: String,
    /// Date, kernel, processor, programs.
    pub(super) machine: Facts,
    /// What was put into the images.
    pub(super) source: String,
    pub(super) source_names: u64,
    pub(super) source_bytes: u64,
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
}

/// One image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// What the image is compared with: rows with the same group.
    pub(super) group: String,
    pub(super) tool: Tool,
    /// As the tool's command line has them.
    pub(super) options: String,
    pub(super) image_bytes: u64,
    /// User and system time of all threads, for each round.
    pub(super) build_cpu_seconds: Vec<f64>,
    /// Processor time of the reader and of the FUSE daemon for each random read of 4 KiB, for each
    /// round.
    pub(super) read_cpu_microseconds: Vec<f64>,
}

impl Row {
    pub(super) fn build(&self) -> Result<f64> {
        Ok(Spread::of(self.build_cpu_seconds.iter().copied()).context("no rounds")?.median)
    }

    pub(super) fn read(&self) -> Result<f64> {
        Ok(Spread::of(self.read_cpu_microseconds.iter().copied()).context("no rounds")?.median)
    }

    pub(super) fn megabytes(&self) -> f64 {
        self.image_bytes as f64 / 1e6
    }

    /// The command line, without source and image.
    pub(super) fn command(&self) -> String {
        format!("{} {}", self.tool.name(), self.options).trim().to_owned()
    }
}

impl Record {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// For the terminal.
    pub(super) fn text(&self) -> Result<String> {
        let mut text =
            format!("{}: {} names, {} bytes\n", self.source, self.source_names, self.source_bytes);
        for row in &self.rows {
            let (size, build, read) = (row.megabytes(), row.build()?, row.read()?);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<70} {size:>8.2} MB  {:>8} CPU s  {:>6} us",
                row.command(),
                number(build),
                number(read)
            );
        }
        Ok(text)
    }

    /// The source, the rounds and the machine, in two sentences.
    pub(super) fn conditions(&self) -> String {
        let machine = |name: &str| self.machine.get(name).map_or("?", String::as_str);
        format!(
            "Source: {} ({} names, {} MB). Medians of {} rounds in turns on {}, {}.",
            self.source,
            number(self.source_names as f64),
            number(self.source_bytes as f64 / 1e6),
            self.rounds,
            machine("processor"),
            machine("date"),
        )
    }
}
