//! The compressed size of large files (the paper's figure 9), also with smaller LZ4 windows.

use std::fs;

use anyhow::{Context, Result};

use super::super::evaluation::Evaluation;
use super::super::record::{Values, values};
use super::super::setup::systems::{ImageFormat, System, systems};
use super::super::setup::workspace::{FILE, Workspace, require};
use super::amplification;
use crate::common::filesystem::Driver;
use crate::common::fio::{Job, Pattern};
use crate::common::rounds::{PageCache, set_page_cache};

const MIB: f64 = 1_048_576.0;

/// Figure 9.
pub(crate) fn sizes(evaluation: &mut Evaluation) -> Result<()> {
    // Systems that mount the same image have the same size: keep the first.
    let mut all: Vec<System> = Vec::new();
    for system in systems() {
        if !all.iter().any(|other| other.format == system.format) {
            all.push(System {
                name: system.name.replace(" (kernel)", "").replace(" (FUSE)", " 4K"),
                ..system
            });
        }
    }
    let utils = ImageFormat::MkfsErofs("-zlz4hc,9".into());
    all.insert(1, System::new("erofs-utils 4K", &utils, Driver::Kernel("erofs")));
    for size in ["16K", "64K", "128K"] {
        let format = ImageFormat::Ferofs(format!("-z lz4hc,9 -C {size}"));
        all.push(System::new(format!("ferofs {size}"), &format, Driver::Kernel("erofs")));
    }
    let datasets = evaluation.workspace.datasets();
    evaluation.measure_all("sizes", 1, &datasets, &all, |workspace, dataset, system| {
        size(workspace, dataset, system)
    })
}

fn size(workspace: &Workspace, dataset: &str, system: &System) -> Result<Values> {
    let image = workspace.image(dataset, &system.format)?;
    let bytes = match system.format {
        // The blocks in use; the image also contains free blocks.
        ImageFormat::Btrfs(_) | ImageFormat::Ext4 => {
            let mounted = workspace
                .file_system(dataset, system)?
                .mount(&workspace.daemons, &workspace.mount_point()?)?;
            let stat = rustix::fs::statvfs(mounted.path())?;
            (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        }
        _ => fs::metadata(image)?.len(),
    };
    let source = workspace.size(dataset)?;
    let percent = bytes as f64 / source as f64 * 100.0;
    Ok(values([("mib", bytes as f64 / MIB), ("percent", percent)]))
}

/// The size of LZ4's window, in KiB: the largest distance of a match.
pub(crate) fn window(evaluation: &mut Evaluation) -> Result<()> {
    let cases = [64, 32, 16, 8].map(|size| format!("window @ {size}"));
    let clusters = ["4K", "64K"].map(|size| format!("ferofs {size}"));
    evaluation.measure_all("window", 1, &cases, &clusters, |workspace, case, cluster| {
        let window = case.trim_start_matches("window @ ");
        let cluster = cluster.trim_start_matches("ferofs ");
        let format = ImageFormat::Ferofs(format!("-z lz4hc,9,dictsize={window}K -C {cluster}"));
        let system = System::new("ferofs", &format, Driver::Ferofs(&["--decode", "rolling"]));
        let mut all = size(workspace, "text", &system)?;
        // A machine that cannot mount still measures the size.
        if system.driver.check().is_ok() {
            all.extend(values([("pool_kib", pool_peak(workspace, &system)? / 1024.0)]));
        }
        Ok(all)
    })
}

/// The largest number of bytes of its page pool that the read engine used at once during random reads by fio.
fn pool_peak(workspace: &Workspace, system: &System) -> Result<f64> {
    require(workspace.tools.fio.as_deref(), "fio")?;
    let file_system = workspace.file_system("text", system)?;
    set_page_cache(&file_system.image, PageCache::Warm)?;
    let mounted = file_system.mount(&workspace.daemons, &workspace.mount_point()?)?;
    let size = workspace.size("text")?;
    let job = Job {
        pattern: Pattern::Random,
        size,
        total: size / 8,
        seconds: workspace.scale.fio_seconds,
        readers: 1,
    };
    job.run(&mounted.path().join(FILE))?;
    amplification::stats(workspace, mounted.path())?["pool_peak"]
        .as_f64()
        .context("ferofs stats has no pool_peak")
}
