//! How soon the first file is there: with a cold cache, and with a full one and no server.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use ferofs_test_server::Server;

use super::images::Image;
use super::remote::{CacheDir, read_file, timed};
use super::{Bench, DIRECT, FAR, NARROW, Network, Traffic};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::rotated_order;

/// Rounds of these short measurements for each round of others.
const MORE_ROUNDS: usize = 3;
/// Time in which a prefetch that nobody waits for ends, and a server notes it.
const SETTLE: Duration = Duration::from_millis(200);

/// One mount and the first file.
#[derive(Clone, Copy)]
struct Start {
    /// Seconds until the command returned, and until the file was read.
    mounted: f64,
    read: f64,
    cpu: f64,
    traffic: Traffic,
}

/// How deep in the tree the file is that is read first.
#[derive(Clone, Copy, PartialEq)]
enum Depth {
    /// In the first directories: few names are looked up.
    NearRoot,
    /// In the middle of the tree: each directory above is another part of the metadata.
    Deep,
}

/// A small file.
fn file_of(image: &Image, depth: Depth) -> Result<PathBuf> {
    let file = match depth {
        Depth::NearRoot => {
            image.sample(usize::MAX, 0).into_iter().min_by_key(|file| file.components().count())
        }
        Depth::Deep => image.sample(3, 0).into_iter().nth(1),
    };
    file.context("no small file")
}

/// Mounts the large image and reads the first file with an empty cache.
fn read_first_file(bench: &Bench, server: &Server, depth: Depth) -> Result<Start> {
    let image = &bench.tree;
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let options = ["--roothash", &image.root, &cache_option];
    let file = bench.mount_point().join(file_of(image, depth)?);
    let (traffic, cpu_before) = (Traffic::of(server), bench.ferofs.processes.cpu()?);
    let ((mounted, time), read) = timed(|| {
        let mounted =
            timed(|| bench.ferofs.mount(&image.url(server), &bench.mount_point(), &options))?;
        read_file(&file)?;
        Ok(mounted)
    })?;
    sleep(SETTLE);
    let cpu = bench.ferofs.processes.cpu()? - cpu_before;
    mounted.end()?;
    let traffic = traffic.until_now(server);
    Ok(Start { mounted: time.as_secs_f64(), read: read.as_secs_f64(), cpu, traffic })
}

const HEAD: [&str; 6] =
    ["", "first file read, ms", "mount returned, ms", "CPU, s", "requests", "fetched, MB"];

/// The row of a table. Returns the median of the time of the first file, too.
fn row(name: &str, starts: &[Start]) -> Result<(f64, Vec<String>)> {
    let column = |value: &dyn Fn(&Start) -> f64| spread(starts.iter().map(value));
    let (median, read) = column(&|start| start.read * 1e3)?;
    let cells = vec![
        name.to_owned(),
        read,
        column(&|start| start.mounted * 1e3)?.1,
        number(column(&|start| start.cpu)?.0),
        column(&|start| start.traffic.requests as f64)?.0.to_string(),
        number(column(&|start| start.traffic.bytes as f64 / 1e6)?.0),
    ];
    Ok((median, cells))
}

/// The first file of the large image, with an empty cache.
pub(super) fn first_file(bench: &mut Bench) -> Result<()> {
    const NETWORKS: [Network; 3] = [DIRECT, FAR, NARROW];
    let servers =
        NETWORKS.iter().map(|network| bench.serve(network)).collect::<Result<Vec<Server>>>()?;
    let mut rows = Vec::new();
    for (depth, depth_name) in [(Depth::NearRoot, "near the root"), (Depth::Deep, "deep")] {
        let mut starts = vec![Vec::new(); servers.len()];
        for round in 0..bench.rounds * MORE_ROUNDS {
            for number in rotated_order(servers.len(), round) {
                starts[number].push(read_first_file(bench, &servers[number], depth)?);
            }
        }
        for (network, starts) in NETWORKS.iter().zip(&starts) {
            let (median, cells) = row(&format!("{}, {depth_name}", network.name), starts)?;
            if network.name == FAR.name {
                let what = format!("first file, {depth_name}, 20 ms");
                bench.report.aim(what, median, Wanted::AtMost(150.0), " ms");
            }
            rows.push(cells);
        }
    }
    let components = |depth| file_of(&bench.tree, depth).map(|file| file.components().count());
    let (near, deep) = (components(Depth::NearRoot)?, components(Depth::Deep)?);
    bench.report.add(&Table {
        title: "First file".into(),
        text: format!(
            "From the start of `ferofs mount` until a small file of an image of {} MB was read, with an empty cache. The \
             path of the file near the root has {near} names, the path of the deep one {deep}. Requests and bytes include the prefetch of metadata that \
             went on meanwhile.",
            bench.tree.size / 1_000_000
        ),
        head: HEAD.to_vec(),
        rows,
    });
    Ok(())
}

/// The first file again, from the cache, when the server does not answer any more.
pub(super) fn remount(bench: &mut Bench) -> Result<()> {
    let image = &bench.tree;
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let options = ["--roothash", image.root.as_str(), &cache_option];
    let file = bench.mount_point().join(file_of(image, Depth::Deep)?);
    let server = bench.serve(&DIRECT)?;
    let location = image.url(&server);
    let mounted = bench.ferofs.mount(&location, &bench.mount_point(), &options)?;
    read_file(&file)?;
    mounted.end()?;
    sleep(SETTLE);
    // From now on it resets each connection.
    server.set_down(true);
    let before = server.counts().connections;
    let (mut mount, mut read) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds * MORE_ROUNDS {
        let ((mounted, time), total) = timed(|| {
            let mounted = timed(|| bench.ferofs.mount(&location, &bench.mount_point(), &options))?;
            read_file(&file)?;
            Ok(mounted)
        })?;
        mounted.end()?;
        mount.push(time.as_secs_f64() * 1e3);
        read.push(total.as_secs_f64() * 1e3);
    }
    let requests = server.counts().connections - before;
    let (median, read) = spread(read)?;
    let rows = vec![vec![read, spread(mount)?.1, requests.to_string()]];
    bench.report.aim(
        "mounted again without a server, first file",
        median,
        Wanted::AtMost(50.0),
        " ms",
    );
    bench.report.aim(
        "mounted again without a server, requests",
        requests as f64,
        Wanted::AtMost(0.0),
        "",
    );
    bench.report.add(&Table {
        title: "Mounted again, without the server".into(),
        text:
            "The same file of the same image with a cache that has it, after the server has gone."
                .into(),
        head: vec!["first file read, ms", "mount returned, ms", "requests"],
        rows,
    });
    Ok(())
}
