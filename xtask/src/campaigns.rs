//! `cargo xtask fuzz options|faults|hostile`: builds ferofs and the campaigns, and starts one of them.

use std::process::Command;

use anyhow::Result;
use ferofs_devtools::install::{self, EROFS_UTILS, FUSE, MOUNT};
use ferofs_devtools::{peers, shell};
use ferofs_tests::scratch;

/// Runs the campaign `name` with `options`. ferofs is built with overflow checks.
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
