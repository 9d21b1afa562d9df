//! Random trees with random options and sequences of commands.

use anyhow::{Result, bail};

pub(crate) fn run(_options: &[&str]) -> Result<()> {
    bail!("not written yet")
}
