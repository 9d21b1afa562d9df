//! `cargo xtask test`: all that must pass. CI runs this, and people run this.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, MODPROBE};
use ferofs_devtools::{peers, shell};
use ferofs_tests::tools::{TEST_TOOLS, Tool};
use ferofs_tests::{need, scratch};

use crate::campaigns;

/// What containers are pulled and run with, besides containerd.
const CONTAINER_TOOLS: &[Tool] = &[
    Tool { program: "busybox", package: "busybox-static" },
    Tool { program: "docker-registry", package: "docker-registry" },
    Tool { program: "python3", package: "python3" },
    Tool { program: "runc", package: "runc" },
    Tool { program: "skopeo", package: "skopeo" },
];

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What an edit needs: no mounts, no other tools, no campaigns, and the build of the tests themselves.
    Quick,
    /// What must pass.
    Normal,
    /// The slow tests, too.
    Full,
}

pub(crate) fn test(scope: Scope) -> Result<()> {
    let mut stages = Stages::default();
    if scope != Scope::Quick {
        stages.run("install", || {
            install::install(TEST_TOOLS)?;
            if need::is_root() && !need::kernel_has_erofs() {
                install::install(&[MODPROBE])?;
            }
            Ok(())
        })?;
    }
    // Toolchains from packages may lack these two; tests run without them.
    if has_subcommand("fmt") {
        stages.run("fmt", || shell::run(shell::cargo().args(["fmt", "--all", "--check"])))?;
    }
    if has_subcommand("clippy") {
        let lint = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        stages.run("clippy", || shell::run(shell::cargo().args(lint)))?;
    }
    let profile = if scope == Scope::Quick { "dev" } else { "checked" };
    let ferofs = stages.run("build", || shell::build_ferofs(profile))?;
    let mut test = shell::cargo();
    test.args(["test", "--workspace"]).env("FEROFS_BIN", ferofs);
    match scope {
        Scope::Quick => drop(test.env(need::QUICK, "1")),
        Scope::Normal => {}
        Scope::Full => drop(test.env("FEROFS_TEST_FULL", "1")),
    }
    if scope != Scope::Quick
        && let Some(bin) = stages.run("peers", || Ok(newest_peers()))?
    {
        test.env("FEROFS_PEERS", bin);
    }
    stages.run("tests", || shell::run(&mut test))?;
    if scope != Scope::Quick {
        if cfg!(target_arch = "x86_64") {
            stages.run("faults", || campaigns::campaign("faults", &["--every", FAULTS_STEP]))?;
        }
        stages.run("options", || campaigns::campaign("options", &["--images", SEARCH, "--seed", "1"]))?;
    }
    stages.print();
    Ok(())
}

/// The stages so far, and how long each took.
#[derive(Default)]
struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    fn run<T>(&mut self, name: &'static str, stage: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("{}", shell::bold(&format!("== {name}")));
        let start = Instant::now();
        let done = stage();
        self.0.push((name, start.elapsed()));
        done.with_context(|| format!("stage {name}"))
    }

    fn print(&self) {
        for (name, time) in &self.0 {
            println!("{name:>10} {:6.1} s", time.as_secs_f64());
        }
        let all: Duration = self.0.iter().map(|(_, time)| *time).sum();
        println!("{:>10} {:6.1} s", "all", all.as_secs_f64());
    }
}

/// One in so many system calls of each command fails: a prime number, so that each kind of failure has its turn. There are some
/// 6,000 in all, of which a processor does 20 a second: half a minute on two.
const FAULTS_STEP: &str = "5";

/// Images of random trees and options: half a minute on two processors. What is rare is found by
/// longer runs with other seeds.
const SEARCH: &str = "600";

/// `cargo xtask test --containers [MODE]...`: tests/containerd/run.sh, which tells what its modes are.
pub(crate) fn containers(modes: &[&str]) -> Result<()> {
    install::install(CONTAINER_TOOLS)?;
    if need::find_tool("go").is_none() {
        bail!("Go is missing, which containerd 2.x is built with: a newer one than Debian stable's");
    }
    let ferofs = shell::build_ferofs("checked")?;
    let script = shell::repository().join("tests/containerd/run.sh");
    let target = scratch::target_dir().join("containerd");
    shell::run(Command::new(script).arg(ferofs).args(modes).env("CONTAINERD_BIN", target))
}

/// Where the newest of the other tools are, which are installed if they can be. Debian unstable may be out of reach or
/// broken for a day, and that is no fault of ours.
fn newest_peers() -> Option<PathBuf> {
    let target = scratch::target_dir();
    if need::is_root()
        && peers::installed(&target).is_none()
        && let Err(error) = peers::install_peers()
    {
        eprintln!("left out: comparisons with the newest erofs-utils: {error:#}");
    }
    peers::installed(&target)
}

fn has_subcommand(name: &str) -> bool {
    let found = shell::cargo().args([name, "--version"]).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("left out: cargo {name} is not installed");
    }
    found
}
