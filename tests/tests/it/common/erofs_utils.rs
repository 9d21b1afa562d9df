//! Finds the programs of erofs-utils that tests compare with: the version of this machine, and the
//! newest one.
//!
//! [`mkfs`] runs ferofs under the name `mkfs.erofs`, and [`assert_valid`] checks images with both
//! implementations.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferofs_tests::{Outcome, Run, ferofs, need};

use super::fixture::Fixture;

/// The programs of this name: the one of this machine, and the newest one if `cargo xtask peers`
/// has installed it. None in a quick run.
pub(crate) fn programs(name: &str) -> Vec<PathBuf> {
    if need::is_quick() {
        need::lacks(need::WITHOUT_QUICK);
        return Vec::new();
    }
    let peer = std::env::var_os("FEROFS_PEERS")
        .map(|dir| Path::new(&dir).join(name))
        .filter(|file| file.is_file());
    let machine = if peer.is_some() { need::find_tool(name) } else { need::tool(name) };
    machine.into_iter().chain(peer).collect()
}

/// The same, and those of other versions: in the directories of `FEROFS_OTHER_PEERS`, a list like
/// that of `PATH`.
pub(crate) fn programs_of_all_versions(name: &str) -> Vec<PathBuf> {
    let mut found = programs(name);
    if !found.is_empty() {
        let list = std::env::var_os("FEROFS_OTHER_PEERS").unwrap_or_default();
        found.extend(
            std::env::split_paths(&list).map(|dir| dir.join(name)).filter(|file| file.is_file()),
        );
    }
    found
}

/// The newest program of this name: in `FEROFS_PEERS`, or where `cargo xtask peers` installs it. If
/// it is missing, the comparison is skipped, even in CI, because Debian unstable is not always
/// reachable. None in a quick run.
pub(crate) fn newest(name: &str) -> Option<PathBuf> {
    if need::is_quick() {
        return None;
    }
    let default = || ferofs_tests::scratch::target_dir().join("peers/bin").into_os_string();
    let dir = std::env::var_os("FEROFS_PEERS").unwrap_or_else(default);
    let found = Some(Path::new(&dir).join(name)).filter(|file| file.is_file());
    if found.is_none() {
        need::lacks(need::PEERS);
    }
    found
}

/// Runs `mkfs.erofs` on the source with these options.
pub(crate) fn mkfs(fixture: &Fixture, options: &str, image: &Path) -> Outcome {
    fixture
        .tool("mkfs.erofs")
        .args(options.split_whitespace())
        .args([image, &fixture.source()])
        .run()
}

/// Fails if `ferofs check` or the newest `fsck.erofs` finds an error.
pub(crate) fn assert_valid(image: &Path) {
    let checked = ferofs!("check", image).run();
    assert_eq!(checked.code, 0, "{}{}", checked.stderr, checked.text());
    // fsck.erofs does not support blocks larger than a page.
    let mut bits = [0];
    fs::File::open(image).unwrap().read_exact_at(&mut bits, 1024 + 0x0C).unwrap();
    if let Some(fsck) = newest("fsck.erofs").filter(|_| 1 << bits[0] <= rustix::param::page_size())
    {
        let out = image.with_extension("erofs-utils");
        let mut extract = OsString::from("--extract=");
        extract.push(&out);
        Run::new(fsck).arg(extract).arg(image).success();
        fs::remove_dir_all(out).unwrap();
    }
}
