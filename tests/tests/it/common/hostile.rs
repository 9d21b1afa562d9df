//! Runs commands and mounts on images that may be damaged, and checks that they end as documented:
//! with a message, without a panic, and within limits on memory and time.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ferofs_tests::{Mount, Outcome, Run, ferofs_path};

/// The limit on a command's address space: enough for its buffers and the stacks of its threads,
/// not for sizes that an image claims.
const ADDRESS_SPACE: u64 = 2 << 30;
/// The limit on resident memory. The images have about a megabyte.
const RESIDENT: u64 = 100 << 20;
/// A command that takes longer hangs: reading a megabyte takes milliseconds.
const HANG: Duration = Duration::from_secs(60);

/// Runs `ferofs ARGS IMAGE MORE` with the limits.
pub(crate) fn command(args: &[&str], image: &Path, more: &[&Path]) -> Outcome {
    Run::limited(ferofs_path(), Some(ADDRESS_SPACE), HANG).args(args).arg(image).args(more).run()
}

/// Fails unless the command ended with a documented exit code, with a message if it failed, and
/// within the memory limit.
#[track_caller]
pub(crate) fn assert_handled(outcome: &Outcome, context: &str) {
    let Outcome { code, stderr, peak, .. } = outcome;
    assert!(!stderr.contains("panicked"), "{context}: {stderr}");
    // 0 clean, 1 findings or failure; fsck(8): 4 errors left, 8 operational error.
    assert!([0, 1, 2, 4, 8].contains(code), "{context}: code {code}, {stderr}");
    assert!(*peak < RESIDENT, "{context}: {peak} bytes of memory");
    if *code != 0 {
        assert!(
            stderr.lines().any(|line| line.starts_with("ferofs: ")),
            "{context}: code {code}, stderr {stderr:?}"
        );
    }
}

/// Fails unless the daemon refuses `image` with a message, or serves all of it and ends with exit
/// code 0.
pub(crate) fn assert_mount_handled(image: &Path, dir: &Path, name: &str) {
    match Mount::fuse(ferofs_path(), image, dir) {
        Ok(mount) => {
            read_all(mount.path(), 12);
            let (code, stderr) = mount.unmount().unwrap();
            assert_eq!(code, Some(0), "{name}: {stderr}");
            assert!(!stderr.contains("panicked"), "{name}: {stderr}");
        }
        Err(error) => {
            let stderr = error.to_string();
            assert!(
                stderr.contains("ferofs: ") && !stderr.contains("panicked"),
                "{name}: {stderr}"
            );
        }
    }
}

/// Reads everything below `path`, as far as possible. The depth is limited, because a damaged tree
/// may contain itself.
fn read_all(path: &Path, depth: usize) {
    for entry in fs::read_dir(path).into_iter().flatten().map_while(Result::ok) {
        let path = entry.path();
        match fs::symlink_metadata(&path).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_dir() && depth > 0 => read_all(&path, depth - 1),
            Ok(kind) if kind.is_symlink() => drop(fs::read_link(&path)),
            Ok(kind) if kind.is_file() => {
                // Some files claim a size of exabytes.
                let read = fs::File::open(&path)
                    .and_then(|file| file.take(1 << 20).read_to_end(&mut Vec::new()));
                drop(read);
            }
            _ => {}
        }
    }
}
