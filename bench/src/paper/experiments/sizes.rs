//! The compressed size of large files (the paper's figure 9).

use std::fs;

use anyhow::Result;

use super::super::evaluation::Evaluation;
use super::super::record::{Values, values};
use super::super::setup::scale;
use super::super::setup::systems::{ImageFormat, System, systems};
use super::super::setup::workspace::Workspace;
use crate::common::filesystem::Driver;

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
        let format = ImageFormat::Ferofs(format!("--preset android -C {size}"));
        all.push(System::new(format!("ferofs {size}"), &format, Driver::Kernel("erofs")));
    }
    let datasets = scale::DATASETS;
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
                .mount(&workspace.programs.daemons(), &workspace.mount_point()?)?;
            let stat = rustix::fs::statvfs(mounted.path())?;
            (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        }
        _ => fs::metadata(image)?.len(),
    };
    let source = workspace.size(dataset)?;
    let percent = bytes as f64 / source as f64 * 100.0;
    Ok(values([("mib", bytes as f64 / MIB), ("percent", percent)]))
}
