//! `cargo xtask bench paper [--only EXPERIMENT]... [--out DIR] [--report] [--publish]`: repeats the
//! evaluation of the EROFS paper (Gao et al., USENIX ATC 2019) and writes a report.
//! docs/results/README.md says how each figure is measured.
//!
//! [`setup`] makes test data and images; the [`experiments`] measure them within an [`evaluation`],
//! which adds the values to the log ([`record`]); the [`report`] is made from the log alone. A
//! measurement that this machine cannot make is also logged, with the reason, and the report shows
//! the reason.

mod evaluation;
mod experiments;
pub(crate) mod policy;
mod record;
mod report;
mod setup;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use ferofs_devtools::install::{self, BTRFS, FIO, FUSE, MKE2FS, MOUNT, SQUASHFUSE};
use ferofs_tests::scratch;

use self::evaluation::Evaluation;
use self::experiments::EXPERIMENTS;
use self::record::Log;
use self::setup::Workspace;
use crate::common::options::SizeArgs;
use crate::common::programs::Programs;
use crate::trees::packages;

#[derive(Args)]
pub(crate) struct PaperArgs {
    #[command(flatten)]
    parts: SizeArgs,
    /// Where the log and the report are
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure nothing
    #[arg(long)]
    report: bool,
}

pub(crate) fn paper(PaperArgs { parts, out, report }: &PaperArgs) -> Result<()> {
    parts.check(&EXPERIMENTS.map(|(name, _)| name))?;
    let dir = out.clone().unwrap_or_else(|| scratch::target_dir().join("bench-paper"));
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let dir = dir.canonicalize()?;
    let raw = dir.join("raw.jsonl");
    let log = if *report {
        Log::parse(&fs::read_to_string(&raw).with_context(|| raw.display().to_string())?)?
    } else {
        install::install(&[FIO, FUSE, MOUNT, SQUASHFUSE, MKE2FS, BTRFS])?;
        if packages::archive().is_err() {
            install::install_package("linux-source")?;
        }
        let programs = Programs::install()?;
        let machine = setup::describe(&programs, &dir)?;
        // Figures and images of another commit do not count any more; a run with --out keeps them.
        let log = fs::read_to_string(&raw).ok().map(|text| Log::parse(&text)).transpose()?;
        if out.is_none()
            && log.is_some_and(|log| log.machine.get("commit") != machine.get("commit"))
        {
            fs::remove_file(&raw)?;
            fs::remove_dir_all(dir.join("images"))?;
        }
        let log = Log::open(&raw, machine)?;
        let workspace = Workspace { dir: dir.clone(), programs };
        workspace.remove_stale_mounts()?;
        setup::touch_memory()?;
        let mut evaluation = Evaluation::new(workspace, log);
        evaluation.run_experiments(parts)?;
        evaluation.log
    };
    report::write(&log, &dir)?;
    if parts.publish {
        report::publish(&log, &dir)?;
    }
    println!("{}", dir.join("report.md").display());
    Ok(())
}
