//! `/dev/fd/N` as the mount point: an open FUSE device, whose mount another program has made. This
//! is how libfuse takes it: programs that mount for containers without the right to mount pass it
//! on.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::{FdFlags, fcntl_setfd};

/// The number of `/dev/fuse`. Source: Linux, Documentation/admin-guide/devices.txt.
const FUSE_DEVICE: (u32, u32) = (10, 229);

/// The number of the file descriptor that `dir` names.
pub(crate) fn number(dir: &Path) -> Option<RawFd> {
    dir.to_str()?.strip_prefix("/dev/fd/")?.parse().ok().filter(|number| *number >= 0)
}

/// Fails unless `dir` is an open FUSE device.
pub(crate) fn check(dir: &Path) -> io::Result<()> {
    let found = std::fs::metadata(dir)?;
    let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    match found.file_type().is_char_device() && number == FUSE_DEVICE {
        true => Ok(()),
        false => Err(io::Error::other(
            "not an open FUSE device: `/dev/fd/N` takes that of an existing mount",
        )),
    }
}

/// Takes the device that `dir` names, so that programs started later do not inherit it. `None` for
/// other mount points. To be called once, before this process opens a FUSE device of its own.
pub(crate) fn take(dir: &Path) -> io::Result<Option<OwnedFd>> {
    let Some(number) = number(dir) else { return Ok(None) };
    check(dir)?;
    // SAFETY: the descriptor is open. It is a FUSE device, and this process has not opened one, so
    // that it was inherited and nothing else here owns it.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&device, FdFlags::CLOEXEC)?;
    Ok(Some(device))
}
