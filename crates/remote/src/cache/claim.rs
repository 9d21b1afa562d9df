//! Claims: one process fetches a part of an object, the others wait for it.
//!
//! A claim is a locked file for each MiB that is being fetched. The lock ends with the process, also when it is killed.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Bytes that one claim covers.
const CLAIM: u64 = 1 << 20;

/// Claimed parts, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    files: Vec<(PathBuf, File)>,
}

impl Claim {
    /// Claims the bytes of `range` of the entry in `folder`; claims of another kind are independent. Returns `None` if another process, or another thread, has claimed some of them.
    pub(crate) fn take(folder: &Path, kind: &str, range: Range<u64>) -> io::Result<Option<Self>> {
        let mut claim = Self::default();
        for number in range.start / CLAIM..range.end.div_ceil(CLAIM) {
            let path = folder.join(format!("{kind}.{number}"));
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // The process that had it before may have removed the file between open(2) and flock(2).
            let own = file.metadata()?.ino();
            match std::fs::metadata(&path) {
                Ok(named) if named.ino() == own => claim.files.push((path, file)),
                _ => return Ok(None),
            }
        }
        Ok(Some(claim))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for (path, _file) in &self.files {
            // While the lock is held, nobody else uses the file. If it stays, the next claim uses it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = Claim::take(folder.path(), "claim", 0..3 * CLAIM).unwrap().unwrap();
        assert!(Claim::take(folder.path(), "claim", 2 * CLAIM..5 * CLAIM).unwrap().is_none());
        let next = Claim::take(folder.path(), "claim", 3 * CLAIM..5 * CLAIM).unwrap().unwrap();
        drop(first);
        assert!(Claim::take(folder.path(), "claim", 2 * CLAIM + 5..3 * CLAIM - 7).unwrap().is_some());
        assert!(Claim::take(folder.path(), "claim", 2 * CLAIM..5 * CLAIM).unwrap().is_none());
        drop(next);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn threads_that_compete_exclude_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 300 {
                        if let Some(claim) = Claim::take(folder.path(), "claim", 0..2 * CLAIM).unwrap() {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(holders.fetch_add(1, SeqCst), 0);
                            taken += 1;
                            assert_eq!(holders.fetch_sub(1, SeqCst), 1);
                            drop(claim);
                        }
                    }
                });
            }
        });
    }
}
