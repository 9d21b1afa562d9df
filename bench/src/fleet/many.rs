//! Many mounts of one image on one machine, and many machines behind a caching proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use super::calculation::Cost;
use super::line::Traffic;
use super::remote::{CacheDir, read_file, timed};
use super::servers::Server;
use super::{Bench, DIRECT, Way};
use crate::common::report::{Table, Wanted, number};

/// Files that each mount reads, as a program that starts: the same in all mounts, and others.
const COMMON: usize = 30;
const OWN: usize = 3;
/// Machines behind the proxy.
const NODES: usize = 10;
/// Time in which prefetches end.
const SETTLE: Duration = Duration::from_millis(300);

struct Sum {
    mounts: usize,
    seconds: f64,
    memory: u64,
    traffic: Traffic,
    cpu: f64,
    /// Bytes that the programs have read.
    read: u64,
}

pub(super) fn many(bench: &mut Bench) -> Result<()> {
    let counts: &[usize] = if bench.options.quick { &[1, 5, 20] } else { &[1, 10, 50, 200] };
    let mut sums = Vec::new();
    for &count in counts {
        let sum = mounts(bench, count)?;
        bench.ferofs.processes.wait_for_end()?;
        sums.push(sum);
    }
    let rows = sums.iter().map(|sum| {
        let mounts = sum.mounts as f64;
        vec![
            sum.mounts.to_string(),
            number(sum.seconds),
            number(sum.seconds / mounts * 1e3),
            number(sum.memory as f64 / 1e6),
            number(sum.memory as f64 / 1e6 / mounts),
            sum.traffic.requests.to_string(),
            number(sum.traffic.bytes as f64 / 1e6),
            number(sum.read as f64 / 1e6),
            number(sum.cpu),
        ]
    });
    let rows = rows.collect();
    if let (Some(first), Some(last)) = (sums.first(), sums.last()) {
        bench.costs.start =
            Some(Cost { requests: first.traffic.requests as f64, bytes: first.traffic.bytes as f64 });
        let times = last.mounts as f64;
        let aims = [
            ("memory", last.memory as f64 / first.memory as f64),
            ("requests", last.traffic.requests as f64 / first.traffic.requests as f64),
            ("bytes", last.traffic.bytes as f64 / first.traffic.bytes as f64),
        ];
        for (what, ratio) in aims {
            let what = format!("{} mounts compared with one, {what}", last.mounts);
            // Less than linear.
            bench.report.aim(what, ratio, Wanted::AtMost(times - 1.0), " times");
        }
    }
    bench.report.add(&Table {
        title: "Many mounts on one machine".into(),
        text: format!(
            "Mounts of one image of {} MB with one cache that is empty at first, one after the other; each reads the same {COMMON} files and {OWN} of its \
             own; the files lie far apart. Memory is that of all processes of all mounts; pages that they share count once.",
            bench.tree.size / 1_000_000
        ),
        head: vec!["mounts", "s", "ms each", "memory, MB", "MB each", "requests", "fetched, MB", "read, MB", "CPU, s"],
        rows,
    });
    proxy(bench)
}

/// Mounts `count` times, and reads; unmounts at the end.
fn mounts(bench: &Bench, count: usize) -> Result<Sum> {
    let image = &bench.tree;
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let location = Way::to(bench.web.address, &DIRECT)?.url(&image.name());
    let common = image.sample(COMMON, 0);
    let (traffic, cpu) = (bench.web.traffic()?, bench.ferofs.processes.cpu()?);
    let ((mounted, read), time) = timed(|| {
        let (mut mounted, mut read) = (Vec::with_capacity(count), 0);
        for number in 0..count {
            let dir = bench.dir.join(format!("mounts/{number}"));
            fs::create_dir_all(&dir)?;
            let mount = bench.ferofs.mount(&location, &dir, &["--roothash", &image.root, &cache_option])?;
            read += read_files(&dir, &common)? + read_files(&dir, &image.sample(OWN, number + 1))?;
            mounted.push(mount);
        }
        Ok((mounted, read))
    })?;
    sleep(SETTLE);
    let memory = bench.ferofs.processes.memory()?;
    let cpu = bench.ferofs.processes.cpu()? - cpu;
    drop(mounted);
    bench.ferofs.processes.wait_for_end()?;
    let traffic = bench.web.traffic()?.since(traffic);
    Ok(Sum { mounts: count, seconds: time.as_secs_f64(), memory, traffic, cpu, read })
}

/// Reads files. Returns the number of bytes.
fn read_files(mounted: &Path, files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| read_file(&mounted.join(file))).sum()
}

/// Machines with caches of their own behind one caching proxy: what the origin sends, and what the proxy sends.
fn proxy(bench: &mut Bench) -> Result<()> {
    let image = &bench.tree;
    let dir = bench.server_dir("nginx-proxy");
    if dir.exists() {
        // What another run has fetched.
        fs::remove_dir_all(&dir)?;
    }
    let proxy = Server::caching_proxy(&dir, bench.web.address)?;
    let location = format!("http://{}/{}", proxy.address, image.name());
    let common = image.sample(COMMON, 0);
    let mut rows = Vec::new();
    for node in 1..=NODES {
        let cache = CacheDir::new(&bench.dir)?;
        let cache_option = cache.option();
        let before = (bench.web.traffic()?, proxy.traffic()?);
        let options = ["--roothash", image.root.as_str(), &cache_option];
        let mounted = bench.ferofs.mount(&location, &bench.mount_point(), &options)?;
        read_files(mounted.path(), &common)?;
        read_files(mounted.path(), &image.sample(OWN, node))?;
        sleep(SETTLE);
        mounted.end()?;
        let (origin, sent) = (bench.web.traffic()?.since(before.0), proxy.traffic()?.since(before.1));
        if node == 1 || node == 2 || node == NODES {
            rows.push(vec![
                node.to_string(),
                sent.requests.to_string(),
                number(sent.bytes as f64 / 1e6),
                origin.requests.to_string(),
                number(origin.bytes as f64 / 1e6),
            ]);
        }
    }
    bench.report.add(&Table {
        title: "A caching proxy".into(),
        text: "Machines with caches of their own start the same program, one after the other, behind nginx with `proxy_cache` and `slice 1m`. The table \
               shows what one machine asks of the proxy, and the proxy of the origin."
            .into(),
        head: vec!["machine", "requests to the proxy", "MB", "requests to the origin", "MB"],
        rows,
    });
    Ok(())
}
