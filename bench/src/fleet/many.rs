//! Many mounts of one image on one machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use super::remote::{CacheDir, read_file, timed};
use super::{Bench, DIRECT, Traffic};
use crate::common::report::{Table, Wanted, number};

/// Files that each mount reads, as a program reads when it starts: the same ones in all mounts, ...
const COMMON: usize = 30;
/// ... and others in each mount.
const OWN: usize = 3;
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
    let counts: &[usize] = if bench.is_quick { &[1, 5, 20] } else { &[1, 10, 50, 200] };
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
    Ok(())
}

/// Mounts `count` times, and reads; unmounts at the end.
fn mounts(bench: &Bench, count: usize) -> Result<Sum> {
    let image = &bench.tree;
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let server = bench.serve(&DIRECT)?;
    let location = image.url(&server);
    let common = image.sample(COMMON, 0);
    let (traffic, cpu) = (Traffic::of(&server), bench.ferofs.processes.cpu()?);
    let ((mounted, read), time) = timed(|| {
        let (mut mounted, mut read) = (Vec::with_capacity(count), 0);
        for number in 0..count {
            let dir = bench.dir.join(format!("mounts/{number}"));
            fs::create_dir_all(&dir)?;
            let mount =
                bench.ferofs.mount(&location, &dir, &["--roothash", &image.root, &cache_option])?;
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
    let traffic = traffic.until_now(&server);
    Ok(Sum { mounts: count, seconds: time.as_secs_f64(), memory, traffic, cpu, read })
}

/// Reads files. Returns the number of bytes.
fn read_files(mounted: &Path, files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| read_file(&mounted.join(file))).sum()
}
