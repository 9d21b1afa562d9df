//! Finds the programs of erofs-utils that tests compare with: the version of this machine, and the newest one.

use std::path::{Path, PathBuf};

use ferofs_tests::need;

/// The programs of this name: the one of this machine, and the newest one if `cargo xtask peers` has installed it. None in a quick run.
pub(crate) fn programs(name: &str, what: &str) -> Vec<PathBuf> {
    if need::is_quick() {
        need::lacks(what, need::WITHOUT_QUICK);
        return Vec::new();
    }
    let peer =
        std::env::var_os("FEROFS_PEERS").map(|dir| Path::new(&dir).join(name)).filter(|file| file.is_file());
    let machine = if peer.is_some() { need::find_tool(name) } else { need::tool(name, what) };
    machine.into_iter().chain(peer).collect()
}

/// The newest program of this name: in `FEROFS_PEERS`, or where `cargo xtask peers` installs it. If it is missing, the comparison is
/// skipped, even in CI, because Debian unstable is not always reachable. None in a quick run.
pub(crate) fn newest(name: &str) -> Option<PathBuf> {
    if need::is_quick() {
        return None;
    }
    let default = || ferofs_tests::scratch::target_dir().join("peers/bin").into_os_string();
    let dir = std::env::var_os("FEROFS_PEERS").unwrap_or_else(default);
    let found = Some(Path::new(&dir).join(name)).filter(|file| file.is_file());
    if found.is_none() {
        need::lacks(&format!("a comparison with the newest {name}"), need::PEERS);
    }
    found
}
