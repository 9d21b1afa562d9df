//! `cargo xtask fuzz options|faults|hostile`: builds the command and the campaigns, and starts one.

use std::process::Command;

use anyhow::Result;
use ferofs_tests::scratch;

use crate::install::{self, EROFS_UTILS, FUSE, MOUNT};
use crate::{peers, shell};

/// Runs the campaign `name` with `options` against a build that reports overflows.
pub(crate) fn campaign(name: &str, options: &[&str]) -> Result<()> {
    install::install(&[FUSE, MOUNT, EROFS_UTILS])?;
    let ferofs = shell::build_ferofs("checked")?;
    shell::run(shell::cargo().args(["build", "--package", "ferofs-campaigns", "--profile", "checked"]))?;
    let target = scratch::target_dir();
    let mut run = Command::new(target.join("checked/ferofs-campaigns"));
    run.arg(name).args(options).env("FEROFS_BIN", ferofs);
    if let Some(bin) = peers::installed(&target) {
        run.env("FEROFS_PEERS", bin);
    }
    shell::run(&mut run)
}
