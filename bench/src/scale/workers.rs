//! What limits builds on machines with more processors: the times of real builds with one worker,
//! and what follows from them for the data stage with more workers. Workers share their time; one
//! thread places, and one writes.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::common::report::{Table, Wanted, number};
use crate::scale::{Bench, TREE};
use crate::trees;

/// Numbers of workers.
const WORKERS: [f64; 4] = [2.0, 8.0, 32.0, 128.0];
const SETTINGS: [&str; 4] = ["-z none", "-z lz4 -C 4K -E ^fragments", "", "-z zstd,3 -C 128K"];

/// Seconds of the threads of a build's data stage.
#[derive(Clone, Copy)]
struct Stages {
    /// Of all workers.
    workers: f64,
    order: f64,
    write: f64,
}

impl Stages {
    fn of(summary: &Value) -> Result<Self> {
        let seconds = |pointer: &str| {
            summary
                .pointer(pointer)
                .and_then(Value::as_f64)
                .with_context(|| format!("no {pointer} in the summary"))
        };
        let activity = |name: &str| seconds(&format!("/timings/{name}/seconds"));
        Ok(Self {
            workers: activity("read")?
                + activity("hash")?
                + activity("dedupe")?
                + activity("compress")?,
            order: activity("order")?,
            write: activity("write")?,
        })
    }

    /// The data stage takes as long as its slowest part.
    fn seconds(self, workers: f64) -> f64 {
        (self.workers / workers).max(self.order).max(self.write)
    }

    /// What takes most of the time.
    fn limit(self, workers: f64) -> &'static str {
        let stages =
            [(self.workers / workers, "workers"), (self.order, "placing"), (self.write, "writing")];
        stages.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, name)| name)
    }
}

pub(super) fn workers(bench: &mut Bench) -> Result<()> {
    let source = trees::named(TREE)?.get()?;
    let image = bench.images.join("workers");
    let mut rows = Vec::new();
    for setting in SETTINGS {
        let mut best: Option<Stages> = None;
        for _ in 0..=bench.rounds {
            let mut build = Command::new(&bench.programs.ferofs);
            build.args(["build", "--json", "--workers=1"]).args(setting.split_whitespace());
            let output = build.args([&source, &image]).output()?;
            let summary: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
            let stages = Stages::of(&summary)?;
            if best.is_none_or(|best| stages.seconds(1.0) < best.seconds(1.0)) {
                best = Some(stages);
            }
        }
        let best = best.context("no build")?;
        let speedups = WORKERS.map(|workers| number(best.seconds(1.0) / best.seconds(workers)));
        let [_, _, at_32, _] = WORKERS;
        let name =
            if setting.is_empty() { "the default".to_owned() } else { format!("`{setting}`") };
        let seconds = [best.workers, best.order, best.write].map(number);
        let what =
            format!("data stage with 32 workers / with 1, by the times of its threads, {name}");
        bench.report.aim(what, best.seconds(1.0) / best.seconds(at_32), Wanted::AtLeast(24.0), "");
        rows.push(
            [vec![name], seconds.to_vec(), speedups.to_vec(), vec![best.limit(at_32).to_owned()]]
                .concat(),
        );
    }
    bench.report.add(&Table {
        title: "More workers".into(),
        text: "The table shows the seconds of the threads of builds of the kernel's source with one worker, from memory into memory, and how much \
               faster the data stage is at most with more workers: it takes as long as the slowest of the workers' share, placing and writing. \
               The last column says what limits 32 workers."
            .into(),
        head: vec!["", "workers", "placing", "writing", "2", "8", "32", "128", "limit"],
        rows,
    });
    Ok(())
}
