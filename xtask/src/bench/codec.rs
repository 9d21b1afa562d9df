//! `cargo xtask bench codec`: the codecs alone, in memory.

use anyhow::Result;

use crate::shell;

pub(crate) fn codec(options: &[&str]) -> Result<()> {
    shell::run(shell::cargo().args(["bench", "--package", "ferofs-codec"]).args(options))
}
