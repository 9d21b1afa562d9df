//! `cargo xtask bench codec`: the codecs alone, in memory.

use anyhow::Result;
use ferofs_devtools::{install, shell};
use ferofs_tests::need;

use crate::common::linux_source;

pub(crate) fn codec(options: &[&str]) -> Result<()> {
    // The Linux source is one of the samples. Systems without apt-get measure the other samples.
    if linux_source::archive().is_err() && need::find_tool("apt-get").is_some() {
        install::install_package("linux-source")?;
    }
    shell::run(shell::cargo().args(["bench", "--package", "ferofs-codec", "--"]).args(options))
}
