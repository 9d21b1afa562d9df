//! `cargo xtask bench fleet`: images on servers. How soon is the first file there, what does a
//! complete read cost compared with a download, how do many mounts share a machine?
//!
//! The server is that of the tests, which adds latency and limits the bandwidth. Programs that are
//! compared take turns. The report prints tables, compares figures with their aims, and writes
//! those into `docs/results/fleet.md`.

mod first_file;
mod images;
mod many;
mod reads;
mod remote;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::install::{self, CURL};
use ferofs_test_server::Server;
use ferofs_tests::{need, scratch};

use self::images::{Image, Which};
use self::remote::Ferofs;
use crate::common::options::PartArgs;
use crate::common::programs;
use crate::common::report::Report;

/// The way to a server, and its name in tables.
pub(crate) struct Network {
    name: &'static str,
    /// Time from each request to its answer.
    latency: Duration,
    /// Bytes a second of all connections together; 0: no limit.
    bandwidth: u64,
}

const fn network(name: &'static str, milliseconds: u64, bandwidth: u64) -> Network {
    Network { name, latency: Duration::from_millis(milliseconds), bandwidth }
}

const DIRECT: Network = network("0 ms", 0, 0);
const FAR: Network = network("20 ms", 20, 0);
const NARROW: Network = network("5 ms, 200 Mbit/s", 5, 25_000_000);

/// What clients have asked a server for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    requests: u64,
    bytes: u64,
}

impl Traffic {
    fn of(server: &Server) -> Self {
        let counts = server.counts();
        Self { requests: counts.requests, bytes: counts.bytes }
    }

    /// The traffic of `server` since it was `self`.
    fn until_now(self, server: &Server) -> Self {
        let now = Self::of(server);
        Self { requests: now.requests - self.requests, bytes: now.bytes - self.bytes }
    }
}

/// What all measurements use.
pub(crate) struct Bench {
    is_quick: bool,
    rounds: usize,
    /// Images, servers, caches, mount points.
    dir: PathBuf,
    ferofs: Ferofs,
    tree: Image,
    container: Image,
    report: Report,
}

/// A part of the benchmark.
type Measure = fn(&mut Bench) -> Result<()>;

/// The parts, by the names that `--only` selects.
const PARTS: [(&str, Measure); 5] = [
    ("first-file", first_file::first_file),
    ("remount", first_file::remount),
    ("complete", reads::complete),
    ("sequential", reads::sequential),
    ("many", many::many),
];

#[derive(Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    common: PartArgs,
    /// Smaller images, one round, two minutes
    #[arg(long, conflicts_with = "publish")]
    quick: bool,
}

pub(crate) fn fleet(FleetArgs { common, quick: is_quick }: FleetArgs) -> Result<()> {
    let PartArgs { parts, rounds, dir } = common;
    parts.check(&PARTS.map(|(name, _)| name))?;
    let rounds = rounds.unwrap_or(if is_quick { 1 } else { 3 });
    if !need::is_root() {
        bail!("mounting 200 images, and reading the memory of their processes, needs root");
    }
    if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        bail!("needs /dev/fuse");
    }
    install::install(&[CURL])?;
    let program = programs::ferofs()?;
    let dir = dir.unwrap_or_else(|| scratch::target_dir().join("bench-fleet"));
    fs::create_dir_all(dir.join("mount"))?;
    let dir = fs::canonicalize(dir)?;
    let ferofs = Ferofs::copy(&program, &dir)?;
    let image = |which| Image::get(&ferofs.program, &dir, which, is_quick);
    let (tree, container) = (image(Which::Tree)?, image(Which::Container)?);
    let images = format!(
        " The image for first files has {} MB in {} files, the one for complete reads {} MB in {} files.",
        tree.size / 1_000_000,
        tree.files.len(),
        container.size / 1_000_000,
        container.files.len() + 1
    );
    println!("{images}");
    let report = Report::new("fleet", &[("ferofs", &program, "--version")])?;
    let mut bench = Bench { is_quick, rounds, dir, ferofs, tree, container, report };
    for (name, measure) in PARTS {
        if parts.has(name) {
            measure(&mut bench).with_context(|| name.to_owned())?;
        }
    }
    bench.report.print_aims();
    if parts.publish {
        bench.report.publish_aims(bench.rounds, &images)?;
    }
    Ok(())
}

impl Bench {
    fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// Serves the images over `network`.
    fn serve(&self, network: &Network) -> Result<Server> {
        let server = Server::start()?;
        server.serve_folder(&self.dir);
        server.shape(network.latency, network.bandwidth);
        Ok(server)
    }
}
