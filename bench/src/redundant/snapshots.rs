//! Snapshots that are added one by one by `ferofs patch add`, compared with an image built of all at once with the same settings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_tests::Run;

use super::{PRESET, TIMEOUT, succeed};

/// Options of `ferofs build`: with the whole window over all versions, and with small clusters in the order of the tree.
const SETTINGS: [&str; 2] = [PRESET, "-z zstd,9 -C 64K -E 48bit,fragments --order tree"];

/// Prints what the image of the first directory in `tree` is after each further one was added.
pub(super) fn print(tree: &Path, work_dir: &Path, ferofs: &Path) -> Result<()> {
    let mut nights: Vec<PathBuf> =
        fs::read_dir(tree)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    nights.sort();
    let (first, later) = nights.split_first().context("no snapshots")?;
    let image = work_dir.join("snapshots");
    let size = || fs::metadata(&image).map(|metadata| metadata.len());
    let build = |sources: &[PathBuf], settings: &str| {
        let run = Run::limited(ferofs, None, TIMEOUT).args(["build", "--quiet", "--versions"]);
        succeed(settings, run.args(settings.split(' ')).args(sources).arg(&image))
    };
    println!(
        "\n| snapshots | all at once | the first | one by one | ratio | content added | metadata added |"
    );
    println!("|---|---|---|---|---|---|---|");
    for settings in SETTINGS {
        build(&nights, settings)?;
        let at_once = size()?;
        build(std::slice::from_ref(first), settings)?;
        let start = size()?;
        let (mut content, mut metadata) = (0, 0);
        for night in later {
            let archive = work_dir.join("step.tar");
            let name = night.file_name().context("a snapshot has no name")?;
            let tar =
                Run::limited("tar", None, TIMEOUT).arg("-cf").arg(&archive).arg("-C").arg(tree).arg(name);
            succeed("tar", tar)?;
            let add = Run::limited(ferofs, None, TIMEOUT).args(["patch", "add", "--json", "--loose-parents"]);
            let outcome = succeed("ferofs patch add", add.args([&image, &archive]))?;
            let report: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
            content += report["growth"]["content"].as_u64().unwrap_or(0);
            metadata += report["growth"]["metadata"].as_u64().unwrap_or(0);
            fs::remove_file(&archive)?;
        }
        let (end, ratio) = (size()?, size()? as f64 / at_once as f64);
        println!("| `{settings}` | {at_once} | {start} | {end} | {ratio:.2} | {content} | {metadata} |");
    }
    Ok(())
}
