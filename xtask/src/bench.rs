//! `cargo xtask bench ...`: builds the crate `ferofs-bench` with optimisation, and starts it with the same arguments.

use anyhow::Result;
use ferofs_devtools::shell;

pub(crate) fn bench(arguments: &[&str]) -> Result<()> {
    let program = ["run", "--quiet", "--release", "--package", "ferofs-bench", "--"];
    shell::run(shell::cargo().args(program).args(arguments).current_dir(std::env::current_dir()?))
}
