//! What reading all files through a mount costs, compared with fetching the whole image first.

use std::fs;

use anyhow::{Result, bail};
use ferofs_test_server::Server;

use super::images::LARGE_FILE;
use super::remote::{CacheDir, Order, read_all, timed};
use super::{Bench, DIRECT, FAR, NARROW, Network, Traffic};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::rotated_order;
use ferofs_devtools::shell::run_quietly;

/// How the bytes come.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// `ferofs mount`, and reads.
    Lazy,
    /// `ferofs pull`, then a mount of the file, and reads.
    Pull,
}

#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    cpu: f64,
    traffic: Traffic,
}

pub(super) fn complete(bench: &mut Bench) -> Result<()> {
    const NETWORKS: [Network; 3] = [DIRECT, FAR, NARROW];
    const METHODS: [Method; 2] = [Method::Lazy, Method::Pull];
    let mut rows = Vec::new();
    for network in &NETWORKS {
        let server = bench.serve(network)?;
        for order in [Order::FourThreads, Order::Tree] {
            let mut runs: [Vec<Run>; 2] = Default::default();
            for round in 0..bench.rounds {
                for number in rotated_order(2, round) {
                    runs[number].push(run(bench, &server, METHODS[number], order)?);
                }
            }
            let [lazy, pull] = &runs;
            println!("complete reads: {}, {} is measured", network.name, order.name());
            let column = |runs: &[Run], value: &dyn Fn(&Run) -> f64| spread(runs.iter().map(value));
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

fn run(bench: &Bench, server: &Server, method: Method, order: Order) -> Result<Run> {
    let image = &bench.container;
    let location = image.url(server);
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let pulled = bench.dir.join("pulled.erofs");
    let (traffic, cpu) = (Traffic::of(server), bench.ferofs.processes.cpu()?);
    let (mounted, time) = timed(|| {
        let root = ["--roothash", image.root.as_str()];
        let mounted = match method {
            Method::Lazy => {
                bench.ferofs.mount(&location, &bench.mount_point(), &[root[0], root[1], &cache_option])?
            }
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
    Ok(Run { seconds: time.as_secs_f64(), cpu, traffic: traffic.until_now(server) })
}
