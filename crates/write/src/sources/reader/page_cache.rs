//! Reads source files, and asks the kernel what of them is in its page cache.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The most bytes of one request to read in the background: the kernel may ignore what is beyond
/// the usual read-ahead of a disk.
const REQUEST: u64 = 128 << 10;

/// The result of [`fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// All bytes were in the page cache, or the file system does not say.
    FromCache,
    /// Some bytes had to be read from the disk.
    FromDisk,
    /// The file ends before.
    Ended,
}

/// Fills `buf` with the bytes of `file` from `offset` on.
pub(crate) fn fill(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<Filled, Errno> {
    let (mut filled, mut asks, mut from) = (0, true, Filled::FromCache);
    while filled < buf.len() {
        let (rest, at) = (&mut buf[filled..], offset + filled as u64);
        let read = match asks {
            true => preadv2(file, &mut [IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT),
            false => rustix::io::pread(file, rest, at),
        };
        match read {
            // Linux 5.9 and 5.10 return 0 also where the file does not end: readv(2), "Bugs".
            Ok(0) if asks => asks = false,
            Ok(0) => return Ok(Filled::Ended),
            Ok(len) => filled += len,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if asks => (asks, from) = (false, Filled::FromDisk),
            // A file system without this flag.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if asks => asks = false,
            Err(error) => return Err(error),
        }
    }
    Ok(from)
}

/// Asks for `len` bytes of `file` from `offset` on in the background, unless the first of them is
/// in the page cache. Returns whether it is there, or the file system does not say.
pub(crate) fn will_need(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let mut first = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut first)], offset, ReadWriteFlags::NOWAIT);
    // 0: see `fill`.
    if !matches!(read, Err(Errno::AGAIN) | Ok(0)) {
        return true;
    }
    let end = offset.saturating_add(len);
    for at in (offset..end).step_by(REQUEST as usize) {
        // Only advice: without it, the bytes are read later.
        let _ = fadvise(file, at, NonZeroU64::new(REQUEST.min(end - at)), Advice::WillNeed);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn files_are_read_to_their_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let mut buf = [0; 4000];
        assert_ne!(fill(file.as_fd(), &mut buf, 6000), Ok(Filled::Ended));
        assert_eq!(buf, [7; 4000]);
        assert_eq!(fill(file.as_fd(), &mut buf, 6001), Ok(Filled::Ended));
        // It was written a moment ago.
        assert!(will_need(file.as_fd(), 0, 10_000));
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(fill(read.as_fd(), &mut buf, 0).is_err());
    }
}
