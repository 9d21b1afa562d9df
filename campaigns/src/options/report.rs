//! Prints and counts the findings, and keeps their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::scratch::target_dir;

use crate::options::execute::perform::Tally;
use crate::options::execute::workspace::{Finding, Stop, Workspace};
use crate::options::generate::case::Case;

/// Findings by their keys, and refusals by their reasons.
#[derive(Debug, Default)]
pub(crate) struct Report {
    found: BTreeMap<String, Vec<String>>,
    refused: BTreeMap<&'static str, u64>,
    reported: u64,
}

/// Seconds between two lines of progress.
const PERIOD: u64 = 30;

impl Report {
    /// Records a case without a finding.
    pub(crate) fn note(&mut self, tally: &Tally, images: u64, time: Duration) {
        for (reason, count) in &tally.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        if time.as_secs() / PERIOD > self.reported {
            self.reported = time.as_secs() / PERIOD;
            eprintln!(
                "{} s: {images} images, {} kinds of findings",
                time.as_secs(),
                self.found.len()
            );
        }
    }

    /// Counts a finding. True if it is the first of its kind.
    pub(crate) fn is_new(&mut self, key: &str, case: &Case) -> bool {
        let cases = self.found.entry(key.to_owned()).or_default();
        cases.push(case.to_string());
        cases.len() == 1
    }

    /// Prints a shrunk finding.
    pub(crate) fn show(
        &self,
        case: &Case,
        small: &Case,
        finding: &Finding,
        workspace: &Workspace,
        kept: &Path,
        again: bool,
    ) {
        println!("FOUND by {} in case {case}: {}", finding.oracle, finding.message.trim());
        println!("  repeat: cargo xtask fuzz options --repeat {small}");
        for line in small.script().model.listing() {
            println!("  tree: {line}");
        }
        for line in &workspace.log {
            println!("  $ {line}");
        }
        println!("  kept in {}", kept.display());
        if !again {
            println!("  it did not fail when it was run once more");
        }
    }

    /// Prints the summary; an error if anything was found.
    pub(crate) fn finish(&self, images: u64, cases: u64, time: Duration) -> Result<()> {
        for (reason, count) in &self.refused {
            println!("refused {count} times: {reason}");
        }
        for (key, cases) in &self.found {
            let shown = cases.iter().take(5).cloned().collect::<Vec<_>>().join(" ");
            println!("found {} times: {key} (cases {shown})", cases.len());
        }
        let rate = images as f64 / time.as_secs_f64();
        println!(
            "{images} images in {cases} cases, {:.0} s, {rate:.1} images a second",
            time.as_secs_f64()
        );
        if self.found.is_empty() { Ok(()) } else { bail!("{} kinds of findings", self.found.len()) }
    }
}

/// Keeps the files of a case, with a script of its commands. Returns the directory.
pub(crate) fn keep(case: &Case, workspace: &Workspace, stop: Option<&Stop>) -> Result<PathBuf> {
    let dir = target_dir().join("fuzz-options").join(format!("{}-{}", case.seed, case.number));
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let mut script = format!("# cargo xtask fuzz options --repeat {case}\n");
    if let Some(Stop::Found(finding)) = stop {
        script.push_str(&format!("# {}: {}\n", finding.oracle, finding.message.replace('\n', " ")));
    }
    for line in case.script().model.listing() {
        script.push_str(&format!("# tree: {line}\n"));
    }
    script.push_str(&workspace.log.join("\n"));
    script.push('\n');
    fs::write(dir.join("commands"), script)?;
    // Some attributes may be too long for the disk's file system: the rest is still useful.
    let status = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(workspace.work())
        .arg(dir.join("files"))
        .stderr(std::process::Stdio::null())
        .status();
    status.context("cp")?;
    Ok(dir)
}
