//! `cargo xtask bench codec`: the codecs alone, in memory.

use anyhow::Result;
use ferofs_tests::need;

use super::read;
use crate::{install, shell};

pub(crate) fn codec(options: &[&str]) -> Result<()> {
    // One of the samples; elsewhere than on Debian there is one less.
    if read::linux_archive().is_err() && need::find_tool("apt-get").is_some() {
        install::package("linux-source")?;
    }
    shell::run(shell::cargo().args(["bench", "--package", "ferofs-codec", "--"]).args(options))
}
