//! How fast one large file is read, compared with a plain download and with a local image, and what verification costs.

use std::process::Command;

use anyhow::{Context, Result};
use ferofs_test_server::Server;

use super::images::LARGE_FILE;
use super::remote::{CacheDir, Mounted, read_file, timed};
use super::{Bench, DIRECT, FAR, NARROW, Network, Traffic};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::rotated_order;
use ferofs_devtools::shell::run_quietly;

/// One read of the file.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    cpu: f64,
    bytes: f64,
    traffic: Traffic,
}

/// What takes turns.
const COLD: usize = 0;
const DOWNLOAD: usize = 1;
const UNVERIFIED: usize = 2;
const WARM: usize = 3;
const LOCAL: usize = 4;

pub(super) fn sequential(bench: &mut Bench) -> Result<()> {
    const NETWORKS: [Network; 3] = [DIRECT, FAR, NARROW];
    let mut rows = Vec::new();
    for network in &NETWORKS {
        let server = bench.serve(network)?;
        // Without bandwidth limits the other reads do not depend on the line.
        let kinds = if network.name == DIRECT.name { 5 } else { 2 };
        let mut runs: [Vec<Run>; 5] = Default::default();
        // The download needs to know what a read fetches.
        let mut fetched = bench.container.size / 2;
        for round in 0..bench.rounds {
            for number in rotated_order(kinds, round) {
                let run = run(bench, &server, number, fetched).with_context(|| network.name)?;
                if number == COLD {
                    fetched = run.traffic.bytes.min(bench.container.size);
                }
                runs[number].push(run);
            }
        }
        let [cold, download, unverified, warm, local] = &runs;
        let speed = |runs: &[Run]| spread(runs.iter().map(|run| run.bytes / run.seconds / 1e6));
        let ratio = |a: &[Run], b: &[Run], value: &dyn Fn(&Run, &Run) -> f64| {
            spread(a.iter().zip(b).map(|(a, b)| value(a, b)))
        };
        let fetched_ratio = ratio(cold, download, &|cold, download| {
            (cold.traffic.bytes as f64 / cold.seconds) / (download.bytes / download.seconds)
        })?;
        let decoded_ratio = ratio(cold, download, &|cold, download| {
            (cold.bytes / cold.seconds) / (download.bytes / download.seconds)
        })?;
        for (what, figure) in [("fetched", fetched_ratio.0), ("decoded", decoded_ratio.0)] {
            let what = format!("sequential read / curl, {what} bytes, {}", network.name);
            bench.report.aim(what, figure, Wanted::AtLeast(0.9), "");
        }
        rows.push(vec![
            network.name.to_owned(),
            decoded_ratio.1,
            fetched_ratio.1,
            speed(cold)?.1,
            speed(download)?.1,
            number(spread(cold.iter().map(|run| run.cpu))?.0),
            cold.first().map_or(0, |run| run.traffic.requests).to_string(),
        ]);
        if network.name == DIRECT.name {
            compare_with_local(bench, [cold, unverified, warm, local])?;
        }
    }
    bench.report.add(&Table {
        title: "One large file, with an empty cache".into(),
        text: "A program reads one large file in sequence through the mount; curl fetches as many bytes of the image as the read did, and forgets \
               them. A decoded byte is one that the program gets; a fetched byte is one that the server sends, and LZ4 makes them fewer."
            .into(),
        head: vec![
            "",
            "ferofs / curl, decoded bytes",
            "fetched bytes",
            "ferofs, MB/s decoded",
            "curl, MB/s",
            "CPU, s",
            "requests",
        ],
        rows,
    });
    Ok(())
}

fn compare_with_local(bench: &mut Bench, [cold, unverified, warm, local]: [&[Run]; 4]) -> Result<()> {
    let speed = |runs: &[Run]| spread(runs.iter().map(|run| run.bytes / run.seconds / 1e6));
    let cpu = |runs: &[Run]| spread(runs.iter().map(|run| run.cpu));
    let ratio = spread(warm.iter().zip(local).map(|(warm, local)| local.seconds / warm.seconds))?;
    let share =
        spread(cold.iter().zip(unverified).map(|(all, less)| 100.0 * (all.cpu - less.cpu) / all.cpu))?;
    bench.report.aim("sequential read, full cache / local image", ratio.0, Wanted::AtLeast(0.95), "");
    bench.report.aim(
        "verification, of all CPU of a cold sequential read",
        share.0,
        Wanted::AtMost(10.0),
        " %",
    );
    let row = |name: &str, runs: &[Run], note: String| -> Result<Vec<String>> {
        Ok(vec![name.into(), speed(runs)?.1, cpu(runs)?.1, note])
    };
    let rows = vec![
        row("empty cache, with a root hash", cold, String::new())?,
        row("empty cache, not verified", unverified, format!("verification takes {} % of the CPU", share.1))?,
        row("full cache, with a root hash", warm, format!("{} of the local image", ratio.1))?,
        row("local image, with a root hash", local, String::new())?,
    ];
    bench.report.add(&Table {
        title: "One large file, verified and not, from the cache and from a file".into(),
        text: "The same read without latency. CPU is that of all processes of ferofs.".into(),
        head: vec!["", "MB/s decoded", "CPU, s", ""],
        rows,
    });
    Ok(())
}

fn run(bench: &Bench, server: &Server, kind: usize, fetched: u64) -> Result<Run> {
    let image = &bench.container;
    let location = image.url(server);
    let processes = &bench.ferofs.processes;
    if kind == DOWNLOAD {
        let cpu = processes.cpu()?;
        let ((), time) = timed(|| run_quietly(&mut curl(&location, fetched)))?;
        let cpu = processes.cpu()? - cpu;
        return Ok(Run {
            seconds: time.as_secs_f64(),
            cpu,
            bytes: fetched as f64,
            traffic: Traffic::default(),
        });
    }
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let verified = ["--roothash", image.root.as_str(), &cache_option];
    let mount_point = bench.mount_point();
    let mount = |options: &[&str]| bench.ferofs.mount(&location, &mount_point, options);
    let mounted: Mounted<'_> = match kind {
        UNVERIFIED => mount(&["--insecure-no-verify", &cache_option])?,
        WARM => {
            let mounted = mount(&verified)?;
            read_file(&mounted.path().join(LARGE_FILE))?;
            mounted.end()?;
            mount(&verified)?
        }
        LOCAL => {
            let options = ["--fuse", verified[0], verified[1]];
            bench.ferofs.mount(&image.path.to_string_lossy(), &mount_point, &options)?
        }
        _ => mount(&verified)?,
    };
    let (traffic, cpu) = (Traffic::of(server), processes.cpu()?);
    let (bytes, time) = timed(|| read_file(&mounted.path().join(LARGE_FILE)))?;
    let cpu = processes.cpu()? - cpu;
    mounted.end()?;
    let traffic = traffic.until_now(server);
    Ok(Run { seconds: time.as_secs_f64(), cpu, bytes: bytes as f64, traffic })
}

/// curl, which fetches `bytes` bytes of an address and forgets them.
fn curl(location: &str, bytes: u64) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--silent", "--show-error", "--noproxy", "*", "--output", "/dev/null"]);
    curl.args(["--range", &format!("0-{}", bytes.saturating_sub(1))]).arg(location);
    curl
}
