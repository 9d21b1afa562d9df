//! Looks up paths, lists directories, reads links and extended attributes.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ferofs_read::{DirCookie, FileType, Nid};
use libc::ssize_t;

use crate::content::{buffer_of, len};
use crate::image::{ferofs_image, image_of, null};
use crate::status::{Failure, run, run_int};

/// Bytes of the longest name, without its NUL.
const NAME_MAX: usize = 255;

/// One name in a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ferofs_dirent {
    /// The inode.
    pub nid: u64,
    /// The type, as the bits of `st_mode` (`S_IFMT`); 0 if the directory does not have it.
    pub mode: u32,
    /// The name, which ends with NUL.
    pub name: [c_char; 256],
}

/// The inode number of the root directory; 0 if `image` is NULL.
///
/// # Safety
/// `image` must be NULL or an open image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_root(image: *const ferofs_image) -> u64 {
    // SAFETY: the caller promises it.
    unsafe { image_of(image) }.map_or(0, |image| image.superblock().root.get())
}

/// Sets `*nid` to the inode of a path from the root. If the path ends in a symbolic link, that one
/// is followed if `follow` is not 0. Returns 0, or a negative errno.
///
/// # Safety
/// `image` must be an open image, `path` a string that ends with NUL, and `nid` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_lookup(
    image: *const ferofs_image,
    path: *const c_char,
    follow: c_int,
    nid: *mut u64,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        // SAFETY: the caller promises it.
        let path = unsafe { string_of(path) }?;
        if nid.is_null() {
            return Err(null());
        }
        let found = image.resolve(Path::new(OsStr::from_bytes(path)), follow != 0)?.nid().get();
        // SAFETY: it is not NULL, and the caller promises that it is valid for a write.
        unsafe { nid.write(found) };
        Ok(0)
    })
}

/// Sets `*entry` to the next name of directory `nid`. `*cookie` says where to continue; a program
/// sets it to 0 before the first call, and does not change it between calls. Returns 1; 0 after the
/// last name; or a negative errno, also for a name that no file can have, with a zero byte or a
/// slash: no further name is returned then. `.` and `..` are among the names.
///
/// # Safety
/// `image` must be an open image, `cookie` valid for reads and writes, and `entry` valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_readdir(
    image: *const ferofs_image,
    nid: u64,
    cookie: *mut u64,
    entry: *mut ferofs_dirent,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        // SAFETY: the caller promises that it is NULL or valid for reads and writes.
        let cookie = unsafe { cookie.as_mut() }.ok_or_else(null)?;
        if entry.is_null() {
            return Err(null());
        }
        let mut names = image.read_dir_from(Nid::new(nid), DirCookie::from_raw(*cookie))?;
        let Some(next) = names.next().transpose()? else { return Ok(0) };
        let mut found = ferofs_dirent {
            nid: next.nid.get(),
            mode: next.file_type.map_or(0, |file_type| file_type.mode_bits().into()),
            name: [0; 256],
        };
        // The format has no longer names.
        for (to, from) in found.name.iter_mut().take(NAME_MAX).zip(&next.name) {
            *to = c_char::from_ne_bytes([*from]);
        }
        *cookie = names.cookie().to_raw();
        // SAFETY: it is not NULL, and the caller promises that it is valid for a write.
        unsafe { entry.write(found) };
        Ok(1)
    })
}

/// Copies the target of symbolic link `nid` to `buffer`, without a NUL. Returns its length, or a
/// negative errno: `-ERANGE` if it is longer than `size`, `-EINVAL` if the inode is not a symbolic
/// link. With a `size` of 0, only returns the length.
///
/// # Safety
/// `image` must be an open image, and `buffer` valid for a write of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_readlink(
    image: *const ferofs_image,
    nid: u64,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    sized(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        let inode = image.inode(Nid::new(nid))?;
        if inode.file_type() != FileType::Symlink {
            return Err(Failure::new(libc::EINVAL, "not a symbolic link"));
        }
        let target = image.read_link(&inode)?;
        // SAFETY: the caller promises it.
        unsafe { give(&target, buffer, size) }
    })
}

/// Copies the value of the extended attribute `name` of inode `nid` to `buffer`. Returns its
/// length, or a negative errno: `-ENODATA` if there is none, `-ERANGE` if it is longer than `size`.
/// With a `size` of 0, only returns the length.
///
/// # Safety
/// `image` must be an open image, `name` a string that ends with NUL, and `buffer` valid for a
/// write of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_getxattr(
    image: *const ferofs_image,
    nid: u64,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    sized(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        // SAFETY: the caller promises it.
        let name = unsafe { string_of(name) }?;
        let value = image.xattr(Nid::new(nid), name)?;
        let value =
            value.ok_or_else(|| Failure::new(libc::ENODATA, "no such extended attribute"))?;
        // SAFETY: the caller promises it.
        unsafe { give(&value, buffer, size) }
    })
}

/// Copies the names of all extended attributes of inode `nid` to `buffer`; each ends with NUL.
/// Returns their length, or a negative errno: `-ERANGE` if it is above `size`. With a `size` of 0,
/// only returns the length.
///
/// # Safety
/// `image` must be an open image, and `buffer` valid for a write of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_listxattr(
    image: *const ferofs_image,
    nid: u64,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    sized(|| {
        // SAFETY: the caller promises it.
        let image = unsafe { image_of(image) }?;
        let mut names = Vec::new();
        for xattr in image.xattrs(Nid::new(nid))? {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        // SAFETY: the caller promises it.
        unsafe { give(&names, buffer, size) }
    })
}

fn sized(call: impl FnOnce() -> Result<i64, Failure>) -> ssize_t {
    // No value is longer than this type counts.
    ssize_t::try_from(run(call)).unwrap_or(ssize_t::MAX)
}

/// Copies `bytes` to `buffer`, unless `size` is 0; returns their length.
///
/// # Safety
/// `buffer` must be valid for a write of `size` bytes.
unsafe fn give(bytes: &[u8], buffer: *mut c_char, size: usize) -> Result<i64, Failure> {
    if size > 0 {
        // SAFETY: the caller promises it.
        let buffer = unsafe { buffer_of(buffer.cast(), size) }?;
        let place = buffer.get_mut(..bytes.len());
        place
            .ok_or_else(|| Failure::new(libc::ERANGE, "the buffer is too small"))?
            .copy_from_slice(bytes);
    }
    Ok(len(bytes.len()))
}

/// The string that C passes, without its NUL.
///
/// # Safety
/// `string` must be NULL, or a string that ends with NUL.
unsafe fn string_of<'a>(string: *const c_char) -> Result<&'a [u8], Failure> {
    if string.is_null() {
        return Err(null());
    }
    // SAFETY: the caller promises it.
    Ok(unsafe { CStr::from_ptr(string) }.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::path::Path;
    use std::ptr;

    use super::*;
    use crate::image::{ferofs_close, ferofs_open};

    fn open(path: &Path) -> (c_int, *mut ferofs_image) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut image = ptr::null_mut();
        // SAFETY: the string ends with NUL, and the pointer is valid for a write.
        let result = unsafe { ferofs_open(path.as_ptr(), 0, &raw mut image) };
        (result, image)
    }

    #[test]
    fn what_is_of_another_kind_has_an_errno_that_says_so() {
        let dir = ferofs_tests::scratch();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(open(dir.path()).0, -libc::EISDIR);
        assert_eq!(open(&pipe).0, -libc::EINVAL);
        assert_eq!(open(Path::new("/dev/zero")).0, -libc::EINVAL);
        assert_eq!(open(&dir.path().join("missing")).0, -libc::ENOENT);
        let (source, file) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), "content").unwrap();
        ferofs_write::build(&ferofs_write::Options::new(source), &file).unwrap();
        let (result, image) = open(&file);
        assert_eq!(result, 0);
        let (mut nid, mut buffer) = (0, [0; 100]);
        // SAFETY: the image is open, the string ends with NUL, and `nid` is valid for a write.
        assert_eq!(unsafe { ferofs_lookup(image, c"/file".as_ptr(), 0, &raw mut nid) }, 0);
        // SAFETY: the image is open, and the buffer has this length.
        let result = unsafe { ferofs_readlink(image, nid, buffer.as_mut_ptr(), buffer.len()) };
        assert_eq!(result, -(libc::EINVAL as ssize_t));
        // SAFETY: the image is open, and is not used after this.
        unsafe { ferofs_close(image) };
    }
}
