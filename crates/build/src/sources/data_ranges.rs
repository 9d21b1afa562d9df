//! Which byte ranges of a sparse file hold data.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The most ranges that are listed, to limit memory and system calls. A file with more is read as if it had no holes.
const RANGES_MAX: usize = 1 << 20;

/// Ranges of bytes, ascending, each with its start and end.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The ranges of `file` that hold data; `None` if the file system does not report them, or there are more than
/// [`RANGES_MAX`].
pub(crate) fn data_ranges(file: impl AsFd, size: u64) -> Option<Ranges> {
    let mut ranges = Ranges::new();
    let mut pos = 0;
    while pos < size && ranges.len() < RANGES_MAX {
        let start = match seek(&file, SeekFrom::Data(pos)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => return Some(ranges),
            Err(_) => return None,
        };
        let end = seek(&file, SeekFrom::Hole(start)).ok()?.min(size);
        if end <= start {
            return None;
        }
        ranges.push((start, end));
        pos = end;
    }
    (pos >= size).then_some(ranges)
}
