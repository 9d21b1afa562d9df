//! The measured figures: one record for each part, which is published as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::common::machine::Facts;
use crate::common::programs::Tool;
use crate::common::report::number;
use crate::common::rounds::Spread;

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
    /// Processor time of the reader and of the FUSE daemon for each random read of 4 KiB, for each round.
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
        let mut text = format!("{}: {} names, {} bytes\n", self.source, self.source_names, self.source_bytes);
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
