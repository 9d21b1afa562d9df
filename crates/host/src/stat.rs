//! What the system says about a file: its size, its ranges of data, its file system, and when it
//! changed.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ferofs_format::inode::Timestamp;
use rustix::fs::{AtFlags, SeekFrom, Stat, seek};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Calls fstatat(2) for `name` in the directory `dir`. Not statx(2), which not all preloaded
/// libraries see.
pub fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Calls fstat(2) for the open file `fd`.
pub fn stat_fd(fd: BorrowedFd<'_>) -> Result<Stat, Errno> {
    rustix::fs::fstat(fd)
}

/// Bytes of the file.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Bytes of the file's blocks: fewer than its size if it is sparse.
pub fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The type of the file system, a number of Linux's `magic.h`; `None` if it is unknown.
pub fn file_system_type(file: impl AsFd) -> Option<u32> {
    rustix::fs::fstatfs(file).ok().and_then(|fs| u32::try_from(fs.f_type).ok())
}

/// Whether files of this type of file system keep their inode numbers. FAT and exFAT number files
/// again when Linux has evicted the inode, and so do many servers of FUSE, 9P and SMB.
pub fn keeps_inode_numbers(file_system: Option<u32>) -> bool {
    /// FUSE, MSDOS, EXFAT, V9FS, SMB, CIFS and SMB2 of Linux's `magic.h`.
    const MAGIC: [u32; 7] =
        [0x6573_5546, 0x4d44, 0x2011_bab0, 0x0102_1997, 0x517b, 0xff53_4d42, 0xfe53_4d42];
    file_system.is_none_or(|magic| !MAGIC.contains(&magic))
}

/// The time of the last change of the content.
pub fn mtime(stat: &Stat) -> Timestamp {
    // Less than a second.
    Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

/// The most ranges that are listed, to limit memory and system calls. A file with more is read as
/// if it had no holes.
const RANGES_MAX: usize = 1 << 20;

/// Ranges of bytes, ascending, each with its start and end.
pub type Ranges = Vec<(u64, u64)>;

/// The ranges of `file` that hold data; `None` if the file system does not report them, or there
/// are more than `RANGES_MAX`.
pub fn data_ranges(file: impl AsFd, size: u64) -> Option<Ranges> {
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

/// The largest tick of file systems that store whole seconds only: 2 s on FAT.
const COARSE: Duration = Duration::from_secs(2);
/// Twice the longest tick, that of a kernel with 100 Hz. A `ctime` that is further ahead comes from
/// another machine's clock, so that waiting would not help.
const TICKS: Duration = Duration::from_millis(20);
/// Time between two reads of the clock: the shortest tick, that of a kernel with 1000 Hz.
const STEP: Duration = Duration::from_millis(1);

/// Waits until the next change of a file would give it a `ctime` other than this one. A file system
/// takes `ctime` from a clock that moves in ticks of up to 10 ms, or stores whole seconds. A second
/// change within one tick does not change `ctime`, so the build could not detect it.
pub fn wait_for_tick(ctime: Timestamp) {
    while is_within_tick(ctime, now()) {
        std::thread::sleep(STEP);
    }
}

/// The clock that file systems take times from.
fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    // The kernel returns less than 10^9 nanoseconds.
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec.try_into().unwrap_or(0) }
}

/// Whether a change at `now` could give a file the time `ctime`.
fn is_within_tick(ctime: Timestamp, now: Timestamp) -> bool {
    let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let tick = if ctime.nanos == 0 { COARSE } else { Duration::ZERO };
    let left = nanos(ctime) + tick.as_nanos() as i128 - nanos(now);
    (0..=(tick + TICKS).as_nanos() as i128).contains(&left)
}
