//! Finds the programs of erofs-utils that tests compare with: the version of this machine, and the newest one.

use std::path::{Path, PathBuf};

use ferofs_tests::need;

/// The programs of this name: the machine's, and the newest if `cargo xtask peers` was run.
pub(crate) fn programs(name: &str, what: &str) -> Vec<PathBuf> {
    let peer =
        std::env::var_os("FEROFS_PEERS").map(|dir| Path::new(&dir).join(name)).filter(|file| file.is_file());
    let machine = if peer.is_some() { need::find_tool(name) } else { need::tool(name, what) };
    machine.into_iter().chain(peer).collect()
}

/// The newest program of this name: in `FEROFS_PEERS`, or where `cargo xtask peers` puts them. If it is not there, what
/// wants it is skipped, even in CI: Debian unstable is not always to be had.
pub(crate) fn newest(name: &str) -> Option<PathBuf> {
    let default = || ferofs_tests::scratch::target_dir().join("peers/bin").into_os_string();
    let dir = std::env::var_os("FEROFS_PEERS").unwrap_or_else(default);
    let found = Some(Path::new(&dir).join(name)).filter(|file| file.is_file());
    if found.is_none() {
        need::skipped(&format!("a comparison with the newest {name}"), "cargo xtask peers");
    }
    found
}
