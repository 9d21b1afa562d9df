//! `cargo xtask bench paper [--quick] [--only EXPERIMENT]... [--data PATH]... [--out DIR] [--publish]`: repeats the evaluation of the
//! EROFS paper (Gao et al., USENIX ATC 2019) and writes a report. docs/results/README.md says how each figure is measured.
//!
//! [`setup`] makes test data and images; the [`experiments`] measure them within an [`evaluation`], which adds the values to the log
//! ([`record`]); the [`report`] is made from the log alone. A measurement that this machine cannot make is also logged, with the
//! reason, and the report shows the reason.

mod evaluation;
mod experiments;
pub(crate) mod policy;
mod record;
mod report;
/// What the experiments work on: the machine, the test data, the systems to compare, and their images.
mod setup {
    pub(crate) mod data;
    pub(crate) mod machine;
    pub(crate) mod programs;
    pub(crate) mod scale;
    pub(crate) mod systems;
    pub(crate) mod workspace;
}

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, BTRFS, EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, SQUASHFS, SQUASHFUSE};
use ferofs_devtools::{peers, shell};
use ferofs_tests::{need, scratch};

use self::evaluation::Evaluation;
use self::experiments::EXPERIMENTS;
use self::record::Log;
use self::setup::machine;
use self::setup::scale::{FULL, QUICK};
use self::setup::workspace::{Tools, Workspace};
use crate::common::filesystem::DaemonPrograms;
use crate::common::linux_source;

pub(crate) fn paper(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    let scale = if options.quick { &QUICK } else { &FULL };
    let dir = match &options.out {
        Some(out) => out.clone(),
        None => scratch::target_dir().join("bench-paper").join(scale.name),
    };
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let dir = dir.canonicalize()?;
    let raw = dir.join("raw.jsonl");
    let log = if options.report {
        Log::parse(&fs::read_to_string(&raw).with_context(|| raw.display().to_string())?)?
    } else {
        install_tools();
        let ferofs = match std::env::var_os("FEROFS_BIN") {
            Some(ferofs) => ferofs.into(),
            None => shell::build_ferofs("release")?,
        };
        let newest_erofsfuse = peers::installed(&scratch::target_dir()).map(|bin| bin.join("erofsfuse"));
        let erofsfuse = newest_erofsfuse.or_else(|| need::find_tool("erofsfuse"));
        let tools = Tools::find();
        let log = Log::open(&raw, machine::describe(scale, &tools, &dir, &options.data)?)?;
        let daemons = DaemonPrograms { ferofs, erofsfuse };
        let workspace = Workspace { dir: dir.clone(), scale, daemons, tools, user_data: options.data };
        workspace.remove_stale_mounts()?;
        machine::touch_memory()?;
        let mut evaluation = Evaluation::new(workspace, log);
        evaluation.run_experiments(&options.only)?;
        evaluation.log
    };
    report::write(&log, &dir)?;
    if options.publish {
        report::publish(&log, &dir)?;
    }
    println!("{}", dir.join("report.md").display());
    Ok(())
}

/// Installs the programs that experiments use. A program that cannot be installed is no error here: the report names it.
fn install_tools() {
    for tool in [FIO, FUSE, MOUNT, EROFS_UTILS, SQUASHFS, SQUASHFUSE, MKE2FS, BTRFS] {
        if let Err(error) = install::install(&[tool]) {
            eprintln!("{error:#}");
        }
    }
    if linux_source::archive().is_err()
        && need::is_root()
        && let Err(error) = install::install_package("linux-source")
    {
        eprintln!("{error:#}");
    }
    if peers::installed(&scratch::target_dir()).is_none()
        && let Err(error) = peers::install_peers()
    {
        eprintln!("{error:#}");
    }
}

#[derive(Debug, Default)]
struct Options {
    quick: bool,
    only: Vec<String>,
    data: Vec<PathBuf>,
    out: Option<PathBuf>,
    report: bool,
    publish: bool,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--quick" => parsed.quick = true,
                "--report" => parsed.report = true,
                "--publish" => parsed.publish = true,
                "--out" => parsed.out = Some(value()?.into()),
                "--data" => {
                    let path = PathBuf::from(value()?);
                    if !path.is_file() {
                        bail!("--data: no such file: {}", path.display());
                    }
                    parsed.data.push(path.canonicalize().with_context(|| path.display().to_string())?);
                }
                "--only" => {
                    let name = value()?;
                    if !EXPERIMENTS.iter().any(|(known, _)| known == name) {
                        bail!("the experiments are {}", EXPERIMENTS.map(|(known, _)| known).join(", "));
                    }
                    parsed.only.push((*name).to_owned());
                }
                unknown => bail!("unknown option {unknown}"),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let options =
            Options::parse(&["--quick", "--out", "x", "--only", "boot", "--data", "/proc/stat"]).unwrap();
        assert!(options.quick && options.only == ["boot"] && options.data == [PathBuf::from("/proc/stat")]);
        assert!(Options::parse(&["--only", "nothing"]).is_err());
        assert!(Options::parse(&["--out"]).is_err());
        assert!(Options::parse(&["--data", "/does/not/exist"]).is_err());
        assert!(Options::parse(&["unknown"]).is_err());
    }
}
