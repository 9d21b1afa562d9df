//! `cargo xtask bench fleet`: images on servers. How soon is the first file there, what does a complete read cost compared with a
//! download, how do many mounts share a machine and many machines a server?
//!
//! Servers are real ones ([`servers`]). [`line`] puts latency and bandwidth between them and ferofs. Programs that are compared take
//! turns. [`report`] prints tables, compares figures with their aims, and writes those into `docs/results/fleet.md`.

mod calculation;
mod complete;
mod first_file;
mod images;
mod line;
mod many;
mod processes;
mod reference;
mod remote;
mod sequential;
mod servers;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, CURL, DOCKER_REGISTRY, NGINX, OPENSSL};
use ferofs_devtools::shell;
use ferofs_tests::{need, scratch};

use self::calculation::NodeCosts;
use self::images::{Image, Which};
use self::line::{Line, Network};
use self::remote::Ferofs;
use self::servers::Server;
use crate::common::report::Report;

/// A line, and its name in tables.
pub(crate) struct NamedNetwork {
    name: &'static str,
    network: Network,
}

const fn network(
    name: &'static str,
    milliseconds: u64,
    bandwidth: Option<u64>,
    slow_start: bool,
) -> NamedNetwork {
    let round_trip = Duration::from_millis(milliseconds);
    NamedNetwork { name, network: Network { round_trip, bandwidth, slow_start } }
}

/// Without a line: clients connect to the server itself.
const DIRECT: NamedNetwork = network("0 ms", 0, None, false);
const FAR: NamedNetwork = network("20 ms", 20, None, false);
/// 200 Mbit/s.
const NARROW: NamedNetwork = network("5 ms, 200 Mbit/s", 5, Some(25_000_000), false);
const FAR_SLOW_START: NamedNetwork = network("20 ms, slow start", 20, None, true);

/// What all measurements use.
pub(crate) struct Bench {
    options: Options,
    /// Images, servers, caches, mount points.
    dir: PathBuf,
    ferofs: Ferofs,
    tree: Image,
    container: Image,
    /// nginx, which serves `dir`.
    web: Server,
    report: Report,
    costs: NodeCosts,
}

/// The way to a server.
pub(crate) struct Way {
    /// `None`: a direct connection.
    line: Option<Line>,
    address: SocketAddr,
}

impl Way {
    fn to(server: SocketAddr, network: &NamedNetwork) -> Result<Self> {
        if network.network == DIRECT.network {
            return Ok(Self { line: None, address: server });
        }
        let line = Line::open(server, network.network)?;
        Ok(Self { address: line.address(), line: Some(line) })
    }

    /// A line even where it does nothing but count.
    fn counted(server: SocketAddr, network: &NamedNetwork) -> Result<Self> {
        let line = Line::open(server, network.network)?;
        Ok(Self { address: line.address(), line: Some(line) })
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

/// A part of the benchmark.
type Measure = fn(&mut Bench) -> Result<()>;

/// The parts, by the names that `--only` selects.
const PARTS: [(&str, Measure); 7] = [
    ("first-file", first_file::first_file),
    ("remount", first_file::remount),
    ("servers", first_file::other_servers),
    ("complete", complete::complete),
    ("sequential", sequential::sequential),
    ("reference", reference::reference),
    ("many", many::many),
];

pub(crate) fn fleet(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    if !need::is_root() {
        bail!("mounting 200 images, and reading the memory of their processes, needs root");
    }
    if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        bail!("needs /dev/fuse");
    }
    install::install(&[CURL, DOCKER_REGISTRY, NGINX, OPENSSL])?;
    let program = shell::build_ferofs("release")?;
    let dir = options.dir.clone().unwrap_or_else(|| scratch::target_dir().join("bench-fleet"));
    fs::create_dir_all(dir.join("mount"))?;
    let dir = fs::canonicalize(dir)?;
    let ferofs = Ferofs::copy(&program, &dir)?;
    let image = |which| Image::get(&ferofs.program, &dir, which, options.quick);
    let (tree, container) = (image(Which::Tree)?, image(Which::Container)?);
    println!(
        "images: {} MB with {} files, {} MB",
        tree.size / 1_000_000,
        tree.files.len(),
        container.size / 1_000_000
    );
    let web = Server::nginx(&dir.join("nginx"), &dir, None)?;
    let (report, costs) = (Report::new("fleet"), NodeCosts::default());
    let mut bench = Bench { options, dir, ferofs, tree, container, web, report, costs };
    for (name, measure) in PARTS {
        if bench.options.has_part(name) {
            measure(&mut bench).with_context(|| name.to_owned())?;
        }
    }
    if bench.options.only.is_empty() {
        calculation::calculation(&mut bench);
    }
    bench.report.print_aims();
    if bench.options.publish {
        bench.report.publish(&page(), bench.options.rounds)?;
    }
    Ok(())
}

fn page() -> PathBuf {
    shell::repository().join("docs/results/fleet.md")
}

impl Bench {
    fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// A directory for a server's own files.
    fn server_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

struct Options {
    rounds: usize,
    only: Vec<String>,
    publish: bool,
    quick: bool,
    dir: Option<PathBuf>,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self { rounds: 0, only: Vec::new(), publish: false, quick: false, dir: None };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--publish" => parsed.publish = true,
                "--quick" => parsed.quick = true,
                "--rounds" => parsed.rounds = value()?.parse().context("--rounds")?,
                "--only" => parsed.only.push((*value()?).to_owned()),
                "--dir" => parsed.dir = Some(Path::new(value()?).to_owned()),
                unknown => bail!("unknown option {unknown}"),
            }
        }
        if let Some(part) = parsed.only.iter().find(|part| PARTS.iter().all(|(name, _)| name != part)) {
            let names = PARTS.map(|(name, _)| name).join(", ");
            bail!("--only: no such part: {part}; the parts are {names}");
        }
        if parsed.publish && (parsed.quick || !parsed.only.is_empty()) {
            bail!(
                "--publish needs all parts and the large images: it cannot be combined with --only and --quick"
            );
        }
        if parsed.rounds == 0 {
            parsed.rounds = if parsed.quick { 1 } else { 5 };
        }
        Ok(parsed)
    }

    fn has_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| part == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_exclude_each_other() {
        assert!(Options::parse(&["--only", "many", "--rounds", "2"]).unwrap().has_part("many"));
        assert!(!Options::parse(&["--only", "many"]).unwrap().has_part("remount"));
        assert_eq!(Options::parse(&["--quick"]).unwrap().rounds, 1);
        for wrong in
            [&["--only", "x"][..], &["--only"], &["--rounds", "x"], &["--publish", "--quick"], &["--x"]]
        {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
