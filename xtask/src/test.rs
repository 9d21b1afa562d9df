//! `cargo xtask test`: all that must pass. CI runs this, and people run this.

use std::path::PathBuf;

use anyhow::Result;
use ferofs_tests::tools::TEST_TOOLS;
use ferofs_tests::{need, scratch};

use crate::install::{self, MODPROBE};
use crate::{campaigns, peers, shell};

pub(crate) fn test(full: bool) -> Result<()> {
    install::install(TEST_TOOLS)?;
    if need::is_root() && !need::kernel_has_erofs() {
        install::install(&[MODPROBE])?;
    }
    // Toolchains from packages may lack these two; tests run without them.
    if has_subcommand("fmt") {
        shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    }
    if has_subcommand("clippy") {
        let lint = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        shell::run(shell::cargo().args(lint))?;
    }
    let ferofs = shell::build_ferofs("checked")?;
    let mut test = shell::cargo();
    test.args(["test", "--workspace"]).env("FEROFS_BIN", ferofs);
    if let Some(bin) = newest_peers() {
        test.env("FEROFS_PEERS", bin);
    }
    if full {
        test.env("FEROFS_TEST_FULL", "1");
    }
    shell::run(&mut test)?;
    campaigns::campaign("options", &["--seconds", SEARCH, "--seed", "1"])
}

/// Seconds for which random trees and options are tried: some hundred images on a slow machine. What is rare is found by
/// longer runs with other seeds.
const SEARCH: &str = "60";

/// Where the newest of the other tools are, which are installed if they can be. Debian unstable may be out of reach or
/// broken for a day, and that is no fault of ours.
fn newest_peers() -> Option<PathBuf> {
    let target = scratch::target_dir();
    if need::is_root()
        && peers::installed(&target).is_none()
        && let Err(error) = peers::peers()
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
