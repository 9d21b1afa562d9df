//! Images whose fields lie, through every command and the daemon.

use anyhow::{Result, bail};

pub(crate) fn run(_options: &[&str]) -> Result<()> {
    bail!("not written yet")
}
