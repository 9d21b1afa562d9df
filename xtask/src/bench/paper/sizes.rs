//! What is left of large files (the paper's figure 9), and what LZ4's window has to do with it.

use std::fs;

use anyhow::{Context, Result};

use super::super::contestant::Way;
use super::super::fio::{Job, Pattern};
use super::super::measure::set_warm;
use super::record::{Values, values};
use super::stage::{Entrant, FILE, Form, Stage, entrants, wanted};
use super::{Bench, io};

const MIB: f64 = 1_048_576.0;

pub(super) fn sizes(bench: &mut Bench) -> Result<()> {
    // One of those who mount the same image stands for all.
    let mut all: Vec<Entrant> = Vec::new();
    for entrant in entrants() {
        if !all.iter().any(|other| other.form == entrant.form) {
            all.push(Entrant {
                name: entrant.name.replace(" (kernel)", "").replace(" (FUSE)", " 4K"),
                ..entrant
            });
        }
    }
    let utils = Form::MkfsErofs("-zlz4hc,9".into());
    all.insert(1, Entrant::new("erofs-utils 4K", &utils, Way::Kernel("erofs")));
    for size in ["16K", "64K", "128K"] {
        let form = Form::Ferofs(format!("-z lz4hc,9 -C {size}"));
        all.push(Entrant::new(format!("ferofs {size}"), &form, Way::Kernel("erofs")));
    }
    let subjects = bench.stage.subjects();
    bench.compete("sizes", 1, &subjects, &all, |stage, subject, entrant| size(stage, subject, entrant))
}

fn size(stage: &Stage, subject: &str, entrant: &Entrant) -> Result<Values> {
    let image = stage.image(subject, &entrant.form)?;
    let bytes = match entrant.form {
        // Of these, what is in use: the rest of the image is room.
        Form::Btrfs(_) | Form::Ext4 => {
            let mounted = stage.contestant(subject, entrant)?.mount(&stage.daemons, &stage.mount_point()?)?;
            let stat = rustix::fs::statvfs(mounted.path())?;
            (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        }
        _ => fs::metadata(image)?.len(),
    };
    let source = stage.size(subject)?;
    let percent = bytes as f64 / source as f64 * 100.0;
    Ok(values([("mib", bytes as f64 / MIB), ("percent", percent)]))
}

/// The window: how far back LZ4 may look, in KiB.
pub(super) fn window(bench: &mut Bench) -> Result<()> {
    let cases = [64, 32, 16, 8].map(|size| format!("window @ {size}"));
    let clusters = ["4K", "64K"].map(|size| format!("ferofs {size}"));
    bench.compete("window", 1, &cases, &clusters, |stage, case, cluster| {
        let window = case.trim_start_matches("window @ ");
        let cluster = cluster.trim_start_matches("ferofs ");
        let form = Form::Ferofs(format!("-z lz4hc,9,dictsize={window}K -C {cluster}"));
        let entrant = Entrant::new("ferofs", &form, Way::Ferofs(&["--decode", "rolling"]));
        let mut all = size(stage, "text", &entrant)?;
        // Sizes can be told where nothing can be mounted.
        if entrant.way.check().is_ok() {
            all.extend(values([("pool_kib", pool_peak(stage, &entrant)? / 1024.0)]));
        }
        Ok(all)
    })
}

/// The most of its page pool, in bytes, that the read engine used at once while fio read at random.
fn pool_peak(stage: &Stage, entrant: &Entrant) -> Result<f64> {
    wanted(stage.tools.fio.as_deref(), "fio")?;
    let contestant = stage.contestant("text", entrant)?;
    set_warm(&contestant.image, true)?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point()?)?;
    let size = stage.size("text")?;
    let job =
        Job { pattern: Pattern::Random, size, wanted: size / 8, seconds: stage.scale.seconds, readers: 1 };
    job.run(&mounted.path().join(FILE))?;
    io::stats(stage, mounted.path())?["pool_peak"].as_f64().context("ferofs stats says nothing of pool_peak")
}
