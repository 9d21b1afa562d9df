//! Attributes and bytes of files.

use std::ffi::{c_int, c_void};

use ferofs_read::{FileOffset, FileType, Inode, Nid};
use libc::ssize_t;

use crate::image::{ferofs_image, image_of, null};
use crate::status::{Failure, run, run_int};

/// The attributes of an inode.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ferofs_stat {
    /// The inode's number.
    pub nid: u64,
    /// Bytes of its content.
    pub size: u64,
    /// Modification time: seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds, added to the seconds.
    pub mtime_nsec: u32,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names.
    pub nlink: u32,
    /// The major number of a device file.
    pub rdev_major: u32,
    /// The minor number of a device file.
    pub rdev_minor: u32,
}

impl ferofs_stat {
    fn of(inode: &Inode) -> Self {
        let (mtime, rdev) = (inode.mtime(), inode.rdev());
        Self {
            nid: inode.nid().get(),
            size: inode.size(),
            mtime: mtime.secs,
            mtime_nsec: mtime.nanos,
            mode: u32::from(inode.file_type().mode_bits() | inode.permissions()),
            uid: inode.uid(),
            gid: inode.gid(),
            nlink: inode.nlink(),
            rdev_major: rdev.map_or(0, |rdev| rdev.major),
            rdev_minor: rdev.map_or(0, |rdev| rdev.minor),
        }
    }
}

/// Sets `*stat` to the attributes of inode `nid`. Returns 0, or a negative errno.
///
/// # Safety
/// `image` must be an open image, and `stat` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_stat_inode(
    image: *const ferofs_image,
    nid: u64,
    stat: *mut ferofs_stat,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        if stat.is_null() {
            return Err(null());
        }
        let found = ferofs_stat::of(&image.inode(Nid::new(nid))?);
        // SAFETY: it is not NULL, and the caller promises that it is valid for a write.
        unsafe { stat.write(found) };
        Ok(0)
    })
}

/// Reads up to `length` bytes of a regular file from `offset` on into `buffer`. Returns the number
/// of bytes, which is less than `length` only at the file's end, or a negative errno.
///
/// # Safety
/// `image` must be an open image, and `buffer` valid for a write of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_pread(
    image: *const ferofs_image,
    nid: u64,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> ssize_t {
    let read = run(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        let inode = image.inode(Nid::new(nid))?;
        if inode.file_type() != FileType::Regular {
            let errno = if inode.is_dir() { libc::EISDIR } else { libc::EINVAL };
            return Err(Failure::new(errno, "not a regular file"));
        }
        // SAFETY: the caller promises it.
        let buffer = unsafe { buffer_of(buffer.cast(), length) }?;
        Ok(len(image.read_at(&inode, FileOffset::new(offset), buffer)?))
    });
    // No system has a buffer of more bytes than this type counts.
    ssize_t::try_from(read).unwrap_or(ssize_t::MAX)
}

/// The bytes that C passes. They are zeroed if that is needed to make them valid for Rust: the
/// program may not have set them.
///
/// # Safety
/// `buffer` must be NULL, or valid for a write of `length` bytes.
pub(crate) unsafe fn buffer_of<'a>(
    buffer: *mut u8,
    length: usize,
) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() || isize::try_from(length).is_err() {
        return Err(null());
    }
    // SAFETY: the caller promises that these bytes are valid for a write.
    unsafe { buffer.write_bytes(0, length) };
    // SAFETY: as above; all of them were just written, and nothing else uses them during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer, length) })
}

/// As the result of a call.
pub(crate) fn len(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
