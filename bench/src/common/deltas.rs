//! What other tools make of two images: differences of their bytes, and the chunks that a device
//! with the old image fetches.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ferofs_devtools::install::{BSDIFF, CASYNC, XDELTA, ZSTD};
use ferofs_tests::Run;
use ferofs_tests::tools::Tool;

use super::programs::succeed;
use super::report::{Report, Table};

/// The tools.
pub(crate) const TOOLS: [Tool; 4] = [BSDIFF, CASYNC, XDELTA, ZSTD];

/// A command that takes longer than this fails the benchmark: it hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1800);
/// bsdiff takes 17 bytes of memory for each one of the old image.
const LARGEST_FOR_BSDIFF: u64 = 100 << 20;

/// Bytes that each tool needs.
pub(crate) struct Others {
    /// `xdelta3 -9`.
    pub(crate) xdelta: u64,
    /// `zstd -19 --long=27 --patch-from`.
    pub(crate) zstd: u64,
    /// bsdiff, if the old image is small enough.
    pub(crate) bsdiff: Option<u64>,
    /// The chunks of casync that the old image does not have, and the index.
    pub(crate) casync: u64,
}

impl Others {
    /// Runs the tools at the same time, as only sizes are measured, with their files in `dir`.
    pub(crate) fn measure(old: &Path, new: &Path, dir: &Path) -> Result<Self> {
        let path = |name: &str| dir.join(name);
        let run = |program: &str| Run::limited(program, None, TIMEOUT);
        let bsdiff = || {
            if size(old)? > LARGEST_FOR_BSDIFF {
                return Ok(None);
            }
            succeed("bsdiff", run("bsdiff").args([old, new]).arg(path("bsdiff")))?;
            size(&path("bsdiff")).map(Some)
        };
        let others = || {
            let xdelta =
                run("xdelta3").args(["-e", "-9", "-f", "-B", "1073741824", "-s"]).args([old, new]);
            succeed("xdelta3", xdelta.arg(path("xdelta")))?;
            let zstd = run("zstd").args(["-q", "-f", "-19", "--long=27"]);
            let zstd = zstd.arg(format!("--patch-from={}", old.display()));
            succeed("zstd", zstd.arg(new).arg("-o").arg(path("zdelta")))?;
            anyhow::Ok([size(&path("xdelta"))?, size(&path("zdelta"))?, casync(old, new, dir)?])
        };
        let (bsdiff, others) = std::thread::scope(|scope| {
            let bsdiff = scope.spawn(bsdiff);
            let others = others();
            (bsdiff.join(), others)
        });
        let bsdiff = bsdiff.map_err(|_| anyhow!("the thread of bsdiff panicked"))??;
        let [xdelta, zstd, casync] = others?;
        Ok(Self { xdelta, zstd, bsdiff, casync })
    }

    /// The least that a tool needs that makes one file.
    pub(crate) fn least(&self) -> u64 {
        self.bsdiff.map_or(u64::MAX, |bytes| bytes).min(self.xdelta).min(self.zstd)
    }
}

/// Prints the table of all updates, `rows` with the ratios to sort them by, and publishes it if
/// `is_published`.
pub(crate) fn show(
    report: &Report,
    is_published: bool,
    head: Vec<&'static str>,
    text: &str,
    mut rows: Vec<(f64, Vec<String>)>,
) -> Result<()> {
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let text = format!(
        "{text} Seconds are processor seconds. Sizes are bytes. The worst ratios come first."
    );
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let table = Table { title: "Updates".into(), text, head, rows };
    report.add(&table);
    if is_published {
        report.publish("one run each; sizes do not depend on the machine.", table, 1, 2)?;
    }
    Ok(())
}

/// Bytes of the chunks of the new image that the old one does not have, and of their index.
pub(crate) fn casync(old: &Path, new: &Path, dir: &Path) -> Result<u64> {
    let store = dir.join("store");
    if store.exists() {
        fs::remove_dir_all(&store)?;
    }
    let (index, mut sizes) = (dir.join("index.caibx"), [0, 0]);
    for (image, total) in [old, new].into_iter().zip(&mut sizes) {
        let casync = Run::limited("casync", None, TIMEOUT).arg("make");
        succeed(
            "casync",
            casync.arg(format!("--store={}", store.display())).arg(&index).arg(image),
        )?;
        for folder in files(&store)? {
            for chunk in files(&folder)? {
                *total += size(&chunk)?;
            }
        }
    }
    let [before, after] = sizes;
    Ok(after - before + size(&index)?)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

pub(crate) fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}
