//! Extended attributes of an entry of an open directory, also of symlinks themselves.
//!
//! The system calls need a path. `/proc/self/fd/N/NAME` is a short path for a descriptor, however
//! deep the directory is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;

/// All attributes of one file: full name to value.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A short path to `name` in `dir`, however deep `dir` is. It is valid while `dir` is open.
pub fn path_in(dir: impl AsFd, name: &[u8]) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()));
    path.push(OsStr::from_bytes(name));
    path
}

/// Sets one attribute.
///
/// # Errors
/// The error of the file system: it may not support xattrs, or not of this size.
pub fn set(dir: impl AsFd, name: &[u8], key: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(lsetxattr(path_in(&dir, name), key, value, XattrFlags::empty())?)
}

/// Reads all attributes; a file system without xattrs has none.
///
/// # Errors
/// The error of the file system.
pub fn all(dir: impl AsFd, name: &[u8]) -> io::Result<Xattrs> {
    let path = path_in(&dir, name);
    let keys = match read_with_buffer(|buffer| llistxattr(&path, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(Xattrs::new()),
        keys => keys?,
    };
    let mut xattrs = Xattrs::new();
    for key in keys.split(|byte| *byte == 0).filter(|key| !key.is_empty()) {
        xattrs.insert(key.to_vec(), read_with_buffer(|buffer| lgetxattr(&path, key, buffer))?);
    }
    Ok(xattrs)
}

/// Calls `read` with a small buffer, then with the largest that Linux allows.
fn read_with_buffer(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 512];
    let len = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(64 << 10, 0);
            read(&mut buffer)?
        }
        len => len?,
    };
    buffer.truncate(len);
    Ok(buffer)
}
