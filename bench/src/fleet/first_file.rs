//! How soon the first file is there: with a cold cache, with a full one and no server, and from other servers.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::images::Image;
use super::line::Traffic;
use super::remote::{CacheDir, read_file, timed};
use super::servers::{Certificate, Server, store_object};
use super::{Bench, DIRECT, FAR, FAR_SLOW_START, NARROW, NamedNetwork, Way};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::{rotated_order, run_quietly};

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

/// Where the file that is read first is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In the first directories: few names are looked up.
    NearRoot,
    /// In the middle of the tree: each directory above is another part of the metadata.
    Deep,
}

/// A small file.
fn file_of(image: &Image, place: Place) -> Result<PathBuf> {
    let file = match place {
        Place::NearRoot => {
            image.sample(usize::MAX, 0).into_iter().min_by_key(|file| file.components().count())
        }
        Place::Deep => image.sample(3, 0).into_iter().nth(1),
    };
    file.context("no small file")
}

/// Mounts and reads the first file with an empty cache. `traffic` asks the server for its counters.
fn start(
    bench: &Bench,
    image: &Image,
    location: &str,
    place: Place,
    options: &[&str],
    traffic: &dyn Fn() -> Result<Traffic>,
) -> Result<Start> {
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let mut all = vec!["--roothash", &image.root, &cache_option];
    all.extend(options);
    let file = bench.mount_point().join(file_of(image, place)?);
    let (traffic_before, cpu_before) = (traffic()?, bench.ferofs.processes.cpu()?);
    let ((mounted, time), read) = timed(|| {
        let mounted = timed(|| bench.ferofs.mount(location, &bench.mount_point(), &all))?;
        read_file(&file)?;
        Ok(mounted)
    })?;
    sleep(SETTLE);
    let cpu = bench.ferofs.processes.cpu()? - cpu_before;
    mounted.end()?;
    let traffic = traffic()?.since(traffic_before);
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
    const NETWORKS: [NamedNetwork; 4] = [DIRECT, FAR, NARROW, FAR_SLOW_START];
    let ways = NETWORKS.iter().map(|network| Way::to(bench.web.address, network));
    let ways = ways.collect::<Result<Vec<Way>>>()?;
    let mut rows = Vec::new();
    for (place, place_name) in [(Place::NearRoot, "near the root"), (Place::Deep, "deep")] {
        let mut starts = vec![Vec::new(); ways.len()];
        for round in 0..bench.options.rounds * MORE_ROUNDS {
            for number in rotated_order(ways.len(), round) {
                let location = ways[number].url(&bench.tree.name());
                let traffic = || bench.web.traffic();
                starts[number].push(start(bench, &bench.tree, &location, place, &[], &traffic)?);
            }
        }
        for (network, starts) in NETWORKS.iter().zip(&starts) {
            let (median, cells) = row(&format!("{}, {place_name}", network.name), starts)?;
            if network.name == FAR.name {
                let what = format!("first file, {place_name}, 20 ms");
                bench.report.aim(what, median, Wanted::AtMost(150.0), " ms");
            }
            rows.push(cells);
        }
    }
    let components = |place| file_of(&bench.tree, place).map(|file| file.components().count());
    let (near, deep) = (components(Place::NearRoot)?, components(Place::Deep)?);
    bench.report.add(&Table {
        title: "First file".into(),
        text: format!(
            "From the start of `ferofs mount` until a small file of an image of {} MB was read, with an empty cache; nginx. The \
             path of the file near the root has {near} names, the path of the deep one {deep}. “Slow start”: each connection begins with a window of ten segments, as TCP does. Requests and bytes include the prefetch of metadata that \
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
    let file = bench.mount_point().join(file_of(image, Place::Deep)?);
    let way = Way::counted(bench.web.address, &DIRECT)?;
    let location = way.url(&image.name());
    let mounted = bench.ferofs.mount(&location, &bench.mount_point(), &options)?;
    read_file(&file)?;
    mounted.end()?;
    // From now on nobody listens there.
    drop(way);
    sleep(SETTLE);
    let before = bench.web.traffic()?;
    let (mut mount, mut read) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds * MORE_ROUNDS {
        let ((mounted, time), total) = timed(|| {
            let mounted = timed(|| bench.ferofs.mount(&location, &bench.mount_point(), &options))?;
            read_file(&file)?;
            Ok(mounted)
        })?;
        mounted.end()?;
        mount.push(time.as_secs_f64() * 1e3);
        read.push(total.as_secs_f64() * 1e3);
    }
    let requests = bench.web.traffic()?.since(before).requests;
    let (median, read) = spread(read)?;
    let rows = vec![vec![read, spread(mount)?.1, requests.to_string()]];
    bench.report.aim("mounted again without a server, first file", median, Wanted::AtMost(50.0), " ms");
    bench.report.aim("mounted again without a server, requests", requests as f64, Wanted::AtMost(0.0), "");
    bench.report.add(&Table {
        title: "Mounted again, without the server".into(),
        text: "The same file of the same image with a cache that has it, after the server has gone.".into(),
        head: vec!["first file read, ms", "mount returned, ms", "requests"],
        rows,
    });
    Ok(())
}

/// The first file from each kind of server.
pub(super) fn other_servers(bench: &mut Bench) -> Result<()> {
    let image = bench.container.clone();
    let certificate = Certificate::make(&bench.server_dir("tls"))?;
    let tls = Server::nginx(&bench.server_dir("nginx-tls"), &bench.dir, Some(&certificate))?;
    let registry = Server::registry(&bench.server_dir("registry"))?;
    let mut push = bench.ferofs.command("push");
    run_quietly(push.arg(&image.path).arg(format!("oci://{}/fleet:1", registry.address)))?;
    let store = Server::s3_store()?;
    if let Some(store) = &store {
        store_object(store.address, "bucket", &image.path)?;
    } else {
        println!("left out: an S3 store needs moto_server (pip install 'moto[server]')");
    }
    let authorities = format!("--cacert={}", certificate.certificate.display());
    let name = image.name();
    let mut kinds = vec![
        ("http, nginx", bench.web.address, format!("http://ADDRESS/{name}"), vec![]),
        ("https, nginx", tls.address, format!("https://ADDRESS/{name}"), vec![authorities]),
        ("oci, docker-registry", registry.address, "oci://ADDRESS/fleet:1".to_owned(), vec![]),
    ];
    if let Some(store) = &store {
        let options = vec!["--s3-endpoint=http://ADDRESS".to_owned()];
        kinds.push(("s3, moto", store.address, format!("s3://bucket/{name}"), options));
    }
    let ways = kinds.iter().map(|(_, server, ..)| Way::counted(*server, &FAR)).collect::<Result<Vec<_>>>()?;
    let mut starts = vec![Vec::new(); kinds.len()];
    for round in 0..bench.options.rounds * MORE_ROUNDS {
        for number in rotated_order(kinds.len(), round) {
            let (kind, _, location, options) = &kinds[number];
            let way = &ways[number];
            let replaced = |text: &str| text.replace("ADDRESS", &way.address.to_string());
            let options: Vec<String> = options.iter().map(|option| replaced(option)).collect();
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            // The line cannot see requests in encrypted bytes.
            let traffic = || match &way.line {
                Some(line) if !kind.starts_with("https") => Ok(line.traffic()),
                _ => tls.traffic(),
            };
            let location = replaced(location);
            starts[number].push(start(bench, &image, &location, Place::NearRoot, &options, &traffic)?);
        }
    }
    let mut rows = Vec::new();
    for ((name, ..), starts) in kinds.iter().zip(&starts) {
        rows.push(row(name, starts)?.1);
    }
    bench.report.add(&Table {
        title: "Other servers".into(),
        text: format!(
            "The first file of an image of {} MB with an empty cache at 20 ms, from each kind of server. https has the handshake of TLS; the \
             name in a registry is resolved by requests of its own; moto copies the whole object for each range.",
            image.size / 1_000_000
        ),
        head: HEAD.to_vec(),
        rows,
    });
    Ok(())
}

/// curl, which fetches `bytes` bytes of an address and forgets them.
pub(super) fn curl(location: &str, bytes: u64) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--silent", "--show-error", "--noproxy", "*", "--output", "/dev/null"]);
    curl.args(["--range", &format!("0-{}", bytes.saturating_sub(1))]).arg(location);
    curl
}
