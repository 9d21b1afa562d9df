//! Converts nids, attributes and errors of the image to inode numbers, attributes and error numbers
//! of the kernel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferofs_read::Error;
use ferofs_read::{FileType, Inode, Nid, Place, Rdev, Timestamp};
use fuser::{Errno, FileAttr, INodeNo};

/// The inode number of the root in FUSE.
const ROOT_INO: u64 = 1;
/// The inode number of nid 0. In FUSE, 0 is not an inode number, and 1 is the root.
const FIRST_INO: u64 = 2;

/// Converts nids to inode numbers and back. Hard links have the same nid, and so the same inode
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeNumbers {
    root: Nid,
}

impl InodeNumbers {
    pub(crate) const fn new(root: Nid) -> Self {
        Self { root }
    }

    pub(crate) fn ino(self, nid: Nid) -> INodeNo {
        // No image has inodes at the highest nids. Their numbers must not be 0, which hides a name,
        // nor that of the root.
        if nid == self.root {
            INodeNo(ROOT_INO)
        } else {
            INodeNo(nid.get().saturating_add(FIRST_INO))
        }
    }

    pub(crate) fn nid(self, ino: INodeNo) -> Nid {
        if ino.0 == ROOT_INO { self.root } else { Nid::new(ino.0.wrapping_sub(FIRST_INO)) }
    }
}

/// The attributes of an inode for stat(2).
pub(crate) fn attributes(inode: &Inode, ino: INodeNo, block_size: u32) -> FileAttr {
    let disk = inode.on_disk();
    let time = system_time(disk.mtime);
    let sectors = u64::from(block_size) / 512;
    let blocks = match disk.place {
        Place::Compressed { blocks } => blocks.saturating_mul(sectors),
        _ => disk.size.div_ceil(u64::from(block_size)).saturating_mul(sectors),
    };
    FileAttr {
        ino,
        size: disk.size,
        blocks,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: kind(disk.file_type),
        perm: disk.permissions,
        nlink: disk.nlink,
        uid: disk.uid,
        gid: disk.gid,
        rdev: match disk.place {
            Place::Device(Rdev { major, minor }) => Rdev { major, minor }.encode(),
            _ => 0,
        },
        blksize: block_size,
        flags: 0,
    }
}

/// The attributes of a name that does not exist: inode number 0.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The attributes of a listed name whose inode cannot be read. Linux accepts no such size: it lists
/// the name, keeps nothing of the inode, and asks again when a program uses the name. With inode
/// number 0, readdir(3) would leave out the name, and copies would lack the file.
pub(crate) fn unreadable(ino: INodeNo, file_type: Option<FileType>) -> FileAttr {
    FileAttr { ino, kind: listed_kind(file_type), size: u64::MAX, ..absent() }
}

/// The type of a listed name. If neither the directory nor the inode tells it, the name is that of
/// a damaged file.
pub(crate) fn listed_kind(file_type: Option<FileType>) -> fuser::FileType {
    file_type.map_or(fuser::FileType::RegularFile, kind)
}

const fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

/// Converts a time, which may be before 1970. A time beyond the range of `SystemTime` becomes 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.min(999_999_999).into());
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let secs =
        if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    secs.and_then(|secs| secs.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// The error number that a program sees.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound(_) => Errno::ENOENT,
        Error::NotADirectory(_) => Errno::ENOTDIR,
        Error::TooManyLinks(_) => Errno::ELOOP,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_become_inode_numbers_and_back() {
        let numbers = InodeNumbers::new(Nid::new(36));
        assert_eq!(numbers.ino(Nid::new(36)), INodeNo(ROOT_INO));
        for raw in [0, 1, 35, 36, 37, 1 << 63, u64::MAX - 2] {
            let ino = numbers.ino(Nid::new(raw));
            assert_eq!(numbers.nid(ino), Nid::new(raw));
            assert_ne!(ino, INodeNo(0));
        }
        for raw in [u64::MAX - 1, u64::MAX] {
            assert_eq!(numbers.ino(Nid::new(raw)), INodeNo(u64::MAX));
        }
    }

    #[test]
    fn times_before_1970_and_out_of_range_are_converted() {
        let before = system_time(Timestamp { secs: -2, nanos: 250_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1750));
        system_time(Timestamp { secs: i64::MIN, nanos: u32::MAX });
        system_time(Timestamp { secs: i64::MAX, nanos: u32::MAX });
    }
}
