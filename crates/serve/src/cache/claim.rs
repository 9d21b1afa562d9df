//! Claims: one process fetches a part of an object, the others wait for it.
//!
//! A claim is a lock on the range of units in the file `claims`. The file has no content. Its locks
//! end with the process, also when it is killed. The workers of one fetcher share an open file, and
//! so do not exclude each other: its queue gives each part to one of them.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

#[derive(Debug)]
pub(crate) struct Claims {
    file: File,
}

/// Claimed units, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    units: Range<u64>,
}

impl Claims {
    /// Claims of parts of the entry in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Self { file: file.open(folder.join("claims"))? })
    }

    /// Claims `units`, which are not empty. Returns `None` if another process has claimed some of
    /// them.
    pub(crate) fn take(&self, units: &Range<u64>) -> io::Result<Option<Claim<'_>>> {
        match self.lock(libc::F_WRLCK, units) {
            Ok(()) => Ok(Some(Claim { claims: self, units: units.clone() })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// fcntl(2), "Open file description locks". A length of 0 would mean all that follows.
    #[expect(clippy::as_conversions, reason = "constants of a few bits")]
    fn lock(&self, kind: libc::c_int, units: &Range<u64>) -> Result<(), Errno> {
        let number = |number: u64| libc::off_t::try_from(number).map_err(|_| Errno::EOVERFLOW);
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: number(units.start)?,
            l_len: number(units.end.saturating_sub(units.start).max(1))?,
            l_pid: 0,
        };
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // It cannot fail for a lock that was taken; it would end with the process.
        let _ = self.claims.lock(libc::F_UNLCK, &self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_claimed_by_one_fetcher() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) =
            (Claims::open(folder.path()).unwrap(), Claims::open(folder.path()).unwrap());
        let first = own.take(&(0..300)).unwrap().unwrap();
        let _next = own.take(&(300..500)).unwrap().unwrap();
        assert!(other.take(&(299..300)).unwrap().is_none());
        assert!(other.take(&(400..600)).unwrap().is_none());
        let behind = other.take(&(500..600)).unwrap().unwrap();
        drop(first);
        assert!(other.take(&(0..300)).unwrap().is_some());
        assert!(
            own.take(&(200..501)).unwrap().is_none(),
            "what it failed to take is not taken in part"
        );
        assert!(other.take(&(200..300)).unwrap().is_some());
        drop(behind);
        assert!(own.take(&(200..501)).unwrap().is_some());
    }

    #[test]
    fn fetchers_that_compete_exclude_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let claims = Claims::open(folder.path()).unwrap();
                    let mut taken = 0;
                    while taken < 300 {
                        if let Some(claim) = claims.take(&(5..512)).unwrap() {
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
