//! Snapshots that are added one by one by `ferofs patch add`, compared with an image built of all at once with the same settings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_tests::Run;

use super::images::PRESET;
use crate::common::programs::{Programs, TIMEOUT, succeed};
use crate::common::report::{Report, Table, Wanted};

/// Options of `ferofs build`: with the whole window over all versions, and with small clusters in the order of the tree.
const SETTINGS: [&str; 2] = [PRESET, "-z zstd,9 -C 64K -E 48bit,fragments --order tree"];

/// The image of all snapshots may be at most this many times that of all at once.
const RATIO: f64 = 1.1;

/// Measures what the image of the first directory in `tree` is after each further one was added.
pub(super) fn measure(tree: &Path, work_dir: &Path, programs: &Programs, report: &mut Report) -> Result<()> {
    let mut nights: Vec<PathBuf> =
        fs::read_dir(tree)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    nights.sort();
    let (first, later) = nights.split_first().context("no snapshots")?;
    let image = work_dir.join("snapshots");
    let size = || fs::metadata(&image).map(|metadata| metadata.len());
    let build = |sources: &[PathBuf], settings: &str| {
        let run = Run::limited(&programs.ferofs, None, TIMEOUT).args(["build", "--quiet", "--versions"]);
        succeed(settings, run.args(settings.split(' ')).args(sources).arg(&image))
    };
    let mut rows = Vec::new();
    for settings in SETTINGS {
        build(&nights, settings)?;
        let at_once = size()?;
        build(std::slice::from_ref(first), settings)?;
        let start = size()?;
        let (mut content, mut metadata, mut cpu) = (0, 0, 0.0);
        for night in later {
            let archive = work_dir.join("step.tar");
            let name = night.file_name().context("a snapshot has no name")?;
            let tar =
                Run::limited("tar", None, TIMEOUT).arg("-cf").arg(&archive).arg("-C").arg(tree).arg(name);
            succeed("tar", tar)?;
            let add = Run::limited(&programs.ferofs, None, TIMEOUT).args([
                "patch",
                "add",
                "--json",
                "--loose-parents",
            ]);
            let outcome = succeed("ferofs patch add", add.args([&image, &archive]))?;
            let growth: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
            content += growth["growth"]["content"].as_u64().unwrap_or(0);
            metadata += growth["growth"]["metadata"].as_u64().unwrap_or(0);
            cpu += outcome.cpu.as_secs_f64();
            fs::remove_file(&archive)?;
        }
        let end = size()?;
        let ratio = end as f64 / at_once as f64;
        let bytes = [at_once, start, end].map(|bytes| bytes.to_string());
        let mut row = vec![format!("`{settings}`")];
        row.extend(bytes);
        row.extend([format!("{ratio:.2}"), content.to_string(), metadata.to_string(), format!("{cpu:.1}")]);
        rows.push(row);
        report.aim(
            format!("snapshots one by one, compared with all at once, `{settings}`"),
            ratio,
            Wanted::AtMost(RATIO),
            "",
        );
    }
    report.add(&Table {
        title: "Thirty snapshots, one by one".into(),
        text: "The table shows what an image of thirty nights grows to when each night is added with `ferofs patch add --loose-parents`, compared with \
               an image of all nights at once. Bytes, and the processor time of all additions in seconds."
            .into(),
        head: vec![
            "settings",
            "all at once",
            "the first",
            "one by one",
            "ratio",
            "content added",
            "metadata added",
            "CPU s",
        ],
        rows,
    });
    Ok(())
}
