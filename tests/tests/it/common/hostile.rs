//! Runs commands and mounts on images that may be damaged, and checks that they end as documented: with a message, without a panic, and
//! within limits on memory and time.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, Outcome, Run};

/// Address space a command may take: buffers and stacks of its threads, but no claim of the image.
const ADDRESS_SPACE: u64 = 2 << 30;
/// Resident memory a command may take. The images have about a megabyte.
const RESIDENT: u64 = 100 << 20;
/// Reading a megabyte takes milliseconds; this is a hang.
const HANG: Duration = Duration::from_secs(60);

pub(crate) fn command(args: &[&str], image: &Path, more: &[&Path]) -> Outcome {
    Run::limited(ferofs_path(), Some(ADDRESS_SPACE), HANG).args(args).arg(image).args(more).run()
}

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

/// Fails unless the daemon refuses `image` by name, or serves all of it and ends well.
pub(crate) fn assert_mount_handled(image: &Path, dir: &Path, name: &str) {
    match Mount::fuse(ferofs_path(), image, dir) {
        Ok(mount) => {
            read_all(mount.path(), 12);
            let (code, said) = mount.unmount().unwrap();
            assert_eq!(code, Some(0), "{name}: {said}");
            assert!(!said.contains("panicked"), "{name}: {said}");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("ferofs: ") && !said.contains("panicked"), "{name}: {said}");
        }
    }
}

/// Looks at everything below `path`, as far as it can be read. The depth is bounded, for some trees are not.
fn read_all(path: &Path, depth: usize) {
    for entry in fs::read_dir(path).into_iter().flatten().map_while(Result::ok) {
        let path = entry.path();
        match fs::symlink_metadata(&path).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_dir() && depth > 0 => read_all(&path, depth - 1),
            Ok(kind) if kind.is_symlink() => drop(fs::read_link(&path)),
            Ok(kind) if kind.is_file() => {
                // Some claim exabytes.
                let read =
                    fs::File::open(&path).and_then(|file| file.take(1 << 20).read_to_end(&mut Vec::new()));
                drop(read);
            }
            _ => {}
        }
    }
}
