//! `cargo xtask fuzz options|faults|hostile`: builds ferofs and the campaigns, and starts one of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use ferofs_devtools::install::{self, EROFS_UTILS, FUSE, MOUNT};
use ferofs_devtools::{peers, shell};
use ferofs_tests::scratch;

use crate::test::VIRTUAL_MACHINE_TOOLS;

/// `cargo xtask fuzz NAME OPTIONS`: builds both programs and runs the campaign.
pub(crate) fn campaign(name: &str, options: &[&str]) -> Result<()> {
    install::install(&[FUSE, MOUNT, EROFS_UTILS])?;
    if options.iter().any(|option| option.starts_with("--linux")) {
        install::install(VIRTUAL_MACHINE_TOOLS)?;
    }
    shell::run(&mut build_command())?;
    run(name, options, &ferofs())
}

/// `cargo xtask test --kernels OPTIONS`: releases of Linux read images in virtual machines.
pub(crate) fn kernels(options: &[&str]) -> Result<()> {
    install::install(VIRTUAL_MACHINE_TOOLS)?;
    shell::run(&mut build_command())?;
    run("kernels", options, &ferofs())
}

/// Builds ferofs, with overflow checks, and the program of the campaigns. One command for both: two would select different features of
/// shared dependencies, and compile them twice.
pub(crate) fn build_command() -> Command {
    let mut cargo = shell::cargo();
    // Not the whole workspace: benchmarks turn on features that the published programs do not have.
    cargo.args([
        "build",
        "--profile",
        "checked",
        "-p",
        "ferofs-cli",
        "-p",
        "ferofs-device",
        "-p",
        "ferofs-campaigns",
    ]);
    cargo
}

/// The ferofs that [`build_command`] builds.
pub(crate) fn ferofs() -> PathBuf {
    scratch::target_dir().join("checked/ferofs")
}

/// Runs a campaign that is built already.
pub(crate) fn run(name: &str, options: &[&str], ferofs: &Path) -> Result<()> {
    let target = scratch::target_dir();
    let mut run = Command::new(target.join("checked/ferofs-campaigns"));
    run.arg(name).args(options).env("FEROFS_BIN", ferofs);
    if let Some(bin) = peers::installed(&target) {
        run.env("FEROFS_PEERS", bin);
    }
    shell::run(&mut run)
}
