//! How fast one large file is read, compared with a plain download and with a local image, and what
//! verification costs. What reading all files through a mount costs, compared with fetching the
//! whole image first.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell::run_quietly;
use ferofs_test_server::Server;

use super::images::LARGE_FILE;
use super::remote::{CacheDir, Mounted, Order, read_all, read_file, timed};
use super::{Bench, DIRECT, FAR, NARROW, Network, Traffic};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::rotated_order;

/// One read of the file.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    cpu: f64,
    bytes: f64,
    traffic: Traffic,
}

const NETWORKS: [Network; 3] = [DIRECT, FAR, NARROW];

/// What takes turns.
const COLD: usize = 0;
const DOWNLOAD: usize = 1;
const UNVERIFIED: usize = 2;
const WARM: usize = 3;
const LOCAL: usize = 4;

pub(super) fn sequential(bench: &mut Bench) -> Result<()> {
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

fn compare_with_local(
    bench: &mut Bench,
    [cold, unverified, warm, local]: [&[Run]; 4],
) -> Result<()> {
    let speed = |runs: &[Run]| spread(runs.iter().map(|run| run.bytes / run.seconds / 1e6));
    let cpu = |runs: &[Run]| spread(runs.iter().map(|run| run.cpu));
    let ratio = spread(warm.iter().zip(local).map(|(warm, local)| local.seconds / warm.seconds))?;
    let share = spread(
        cold.iter().zip(unverified).map(|(all, less)| 100.0 * (all.cpu - less.cpu) / all.cpu),
    )?;
    bench.report.aim(
        "sequential read, full cache / local image",
        ratio.0,
        Wanted::AtLeast(0.95),
        "",
    );
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
        row(
            "empty cache, not verified",
            unverified,
            format!("verification takes {} % of the CPU", share.1),
        )?,
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

/// How the bytes come.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// `ferofs mount`, and reads.
    Lazy,
    /// `ferofs pull`, then a mount of the file, and reads.
    Pull,
}

#[derive(Clone, Copy)]
struct CompleteRead {
    seconds: f64,
    cpu: f64,
    traffic: Traffic,
}

pub(super) fn complete(bench: &mut Bench) -> Result<()> {
    const METHODS: [Method; 2] = [Method::Lazy, Method::Pull];
    let mut rows = Vec::new();
    for network in &NETWORKS {
        let server = bench.serve(network)?;
        for order in [Order::FourThreads, Order::Tree] {
            let mut runs: [Vec<CompleteRead>; 2] = Default::default();
            for round in 0..bench.rounds {
                for number in rotated_order(2, round) {
                    runs[number].push(read_complete(bench, &server, METHODS[number], order)?);
                }
            }
            let [lazy, pull] = &runs;
            println!("complete reads: {}, {} is measured", network.name, order.name());
            let column = |runs: &[CompleteRead], value: &dyn Fn(&CompleteRead) -> f64| {
                spread(runs.iter().map(value))
            };
            let ratios = lazy.iter().zip(pull).map(|(lazy, pull)| lazy.seconds / pull.seconds);
            let (ratio, ratio_text) = spread(ratios)?;
            bench.report.aim(
                format!("complete read, lazily / by pull, {}, {}", network.name, order.name()),
                ratio,
                Wanted::AtMost(1.05),
                "",
            );
            let requests = column(lazy, &|run| run.traffic.requests as f64)?.0;
            let bytes = column(lazy, &|run| run.traffic.bytes as f64)?.0;
            rows.push(vec![
                format!("{}, {}", network.name, order.name()),
                ratio_text,
                column(lazy, &|run| run.seconds)?.1,
                column(pull, &|run| run.seconds)?.1,
                number(column(lazy, &|run| run.cpu)?.0),
                number(column(pull, &|run| run.cpu)?.0),
                requests.to_string(),
                column(pull, &|run| run.traffic.requests as f64)?.0.to_string(),
                number(bytes / bench.container.size as f64),
            ]);
        }
    }
    bench.report.add(&Table {
        title: "Complete reads".into(),
        text: format!(
            "Mounting an image of {} MB with {} files and reading all of them, with an empty cache (lazily), compared with `ferofs pull`, a mount of \
             the fetched file, and the same reads. “As tar”: one thread reads in the order of the tree. The last column has the fetched bytes as a \
             multiple of the image.",
            bench.container.size / 1_000_000,
            bench.container.files.len() + 1
        ),
        head: vec![
            "",
            "lazily / pull",
            "lazily, s",
            "pull, s",
            "CPU, s",
            "CPU of pull",
            "requests",
            "of pull",
            "fetched",
        ],
        rows,
    });
    Ok(())
}

fn read_complete(
    bench: &Bench,
    server: &Server,
    method: Method,
    order: Order,
) -> Result<CompleteRead> {
    let image = &bench.container;
    let location = image.url(server);
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let pulled = bench.dir.join("pulled.erofs");
    let (traffic, cpu) = (Traffic::of(server), bench.ferofs.processes.cpu()?);
    let (mounted, time) = timed(|| {
        let root = ["--roothash", image.root.as_str()];
        let mounted = match method {
            Method::Lazy => bench.ferofs.mount(
                &location,
                &bench.mount_point(),
                &[root[0], root[1], &cache_option],
            )?,
            Method::Pull => {
                run_quietly(bench.ferofs.command("pull").args(root).arg(&location).arg(&pulled))?;
                let file = pulled.to_string_lossy();
                bench.ferofs.mount(&file, &bench.mount_point(), &[root[0], root[1], "--fuse"])?
            }
        };
        let bytes = read_all(image, mounted.path(), Some(LARGE_FILE), order)?;
        let files = image.files.iter().map(|(_, len)| len).sum::<u64>();
        if bytes <= files {
            bail!("only {bytes} bytes were read");
        }
        Ok(mounted)
    })?;
    let cpu = bench.ferofs.processes.cpu()? - cpu;
    mounted.end()?;
    if method == Method::Pull {
        fs::remove_file(&pulled)?;
    }
    Ok(CompleteRead { seconds: time.as_secs_f64(), cpu, traffic: traffic.until_now(server) })
}
