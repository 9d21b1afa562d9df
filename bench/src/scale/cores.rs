//! What more processors would give: a calculation from the time that each part of a build takes on this machine.
//!
//! A build lists the source, then encodes content, then writes metadata. Workers encode any number of tasks at the same time; one thread places
//! their output in order, and one thread writes it. So content takes the longest of the workers' time divided by their number, of the ordering
//! thread's time, and of the writing thread's time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;
use super::cold;
use crate::common::report::{Table, number};

/// Settings whose builds are calculated.
const SETTINGS: [&[&str]; 4] = [
    &["-z", "lz4"],
    &["-z", "lz4hc,9"],
    &["-z", "zstd,3", "-C", "64K", "-E", "fragments"],
    &["-z", "lz4", "-E", "dedupe"],
];
/// Numbers of processors.
const CORES: [f64; 5] = [1.0, 2.0, 8.0, 32.0, 128.0];
/// The most threads that list directories.
const LISTERS: f64 = 8.0;

/// Processor or waiting time of the parts of one build, in seconds.
struct Service {
    list: f64,
    encode: f64,
    order: f64,
    write: f64,
    metadata: f64,
    total: f64,
}

impl Service {
    /// Builds with one worker.
    fn measure(bench: &Bench, source: &Path, options: &[&str], workers: &str) -> Result<Self> {
        let image = bench.images.join("cores");
        let mut command = Command::new(&bench.ferofs);
        command.args(["build", "--json", "--workers", workers]).args(options).args([source, &image]);
        let output = command.output().context("ferofs build")?;
        let summary: Value = serde_json::from_slice(&output.stdout).context("the summary of ferofs build")?;
        std::fs::remove_file(&image)?;
        let seconds = |value: &Value| value.as_f64().context("a number of seconds is missing");
        let activity = |name: &str| seconds(&summary["timings"][name]["seconds"]);
        let stage = |name: &str| seconds(&summary["seconds"][name]);
        let encode = ["read", "hash", "dedupe", "compress"].into_iter().map(activity).sum::<Result<f64>>()?;
        let (list, data, metadata) = (stage("walk")?, stage("data")?, stage("metadata")?);
        Ok(Self {
            list,
            encode,
            order: activity("order")?,
            write: activity("write")?,
            metadata,
            total: list + data + metadata,
        })
    }

    /// Seconds of the same build on `cores` processors. `self` was measured with one worker.
    fn on(&self, cores: f64) -> f64 {
        // The threads share the processors: with few, the sum of all counts.
        let all = (self.encode + self.order + self.write) / cores;
        let data = (self.encode / cores).max(self.order).max(self.write).max(all);
        self.list / cores.min(LISTERS) + data + self.metadata
    }

    /// The part that limits a build on many processors.
    fn limit(&self) -> &'static str {
        let parts = [
            (self.order, "order"),
            (self.write, "write"),
            (self.metadata, "metadata"),
            (self.list / LISTERS, "listing"),
        ];
        parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, name)| name)
    }
}

pub(super) fn cores(bench: &mut Bench) -> Result<()> {
    let source = cold::tree(&bench.disk)?;
    let mut rows = Vec::new();
    for options in SETTINGS {
        // The first build reads the source into memory.
        Service::measure(bench, &source, options, "2")?;
        let one = Service::measure(bench, &source, options, "1")?;
        let two = Service::measure(bench, &source, options, "2")?;
        let mut row = vec![format!("`{}`", options.join(" ")), number(one.total), number(two.total)];
        row.extend(CORES.iter().map(|cores| number(one.on(*cores))));
        row.push(one.limit().to_owned());
        rows.push(row);
    }
    bench.report.add(&Table {
        title: "More processors".into(),
        text: "The table shows seconds of builds of the same tree in memory: measured with one and with two workers on this machine of two processors, and \
               calculated from the times of the parts with one worker (listing, workers, the thread that places content in order, the thread that \
               writes, metadata). The last column names the part that limits a build on 128 processors. The calculation leaves out what nobody can \
               measure on two processors: the bandwidth of memory, and waiting for locks."
            .into(),
        head: vec![
            "options", "1 worker, measured", "2 workers, measured", "1", "2", "8", "32", "128", "limited by",
        ],
        rows,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_limits_many_processors() {
        let service =
            Service { list: 0.8, encode: 100.0, order: 2.0, write: 1.0, metadata: 0.5, total: 104.3 };
        assert!((service.on(1.0) - 104.3).abs() < 1e-9);
        assert!((service.on(10.0) - (0.1 + 10.3 + 0.5)).abs() < 1e-9);
        assert!((service.on(1000.0) - (0.1 + 2.0 + 0.5)).abs() < 1e-9);
        assert_eq!(service.limit(), "order");
    }
}
