//! Loop devices: Linux shows a file, or a part of one, as a block device (loop(4), linux/loop.h).
//!
//! Unsafe code: the two ioctl(2) calls have no safe wrapper.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// ioctl(2) request on `/dev/loop-control`: returns the number of a free device, and creates a
/// device if all are in use.
const LOOP_CTL_GET_FREE: u32 = 0x4c82;
/// ioctl(2) request on a loop device: attaches a file, with all settings at once (Linux 5.8).
const LOOP_CONFIGURE: u32 = 0x4c0a;

const READ_ONLY: u32 = 1;
/// The device is detached when its last user closes it: when the file system is unmounted.
const AUTOCLEAR: u32 = 4;
/// Reads bypass the page cache of the file, so that data is not cached twice. Linux ignores the
/// flag for files that do not support it.
const DIRECT_IO: u32 = 16;

/// Bytes of a sector of the device. EROFS has blocks of 512 bytes and more, and Linux refuses
/// blocks smaller than a sector.
const SECTOR: u32 = 512;

/// How many free devices are tried: another process can take the device between the two calls.
/// Beyond this, the system attaches devices faster than this process, and the mount fails with
/// EBUSY.
const ATTEMPTS: usize = 64;

/// `struct loop_config`, with its `struct loop_info64` in place.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

// As in linux/loop.h: 8 + 232 + 64 bytes.
const _: () = assert!(size_of::<LoopConfig>() == 304);

/// A loop device that this process attached. Linux detaches it when this value and all mounts of it
/// are gone.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    /// Keeps the device attached until it is mounted.
    _device: File,
}

impl LoopDevice {
    /// Attaches `file` from `offset` on, at most `size_limit` bytes of it, to a free device,
    /// read-only.
    ///
    /// # Errors
    /// The reason of the kernel, with the path of the file or device.
    pub(crate) fn attach(file: &Path, offset: u64, size_limit: Option<u64>) -> io::Result<Self> {
        let name = |path: &Path, e: io::Error| {
            io::Error::new(e.kind(), format!("{}: {e}", path.display()))
        };
        let backing = File::open(file).map_err(|e| name(file, e))?;
        let control_path = Path::new("/dev/loop-control");
        let control = OpenOptions::new().read(true).write(true).open(control_path);
        let control = control.map_err(|e| name(control_path, e))?;
        let mut config = LoopConfig {
            fd: backing.as_raw_fd().cast_unsigned(),
            block_size: SECTOR,
            device: 0,
            inode: 0,
            rdevice: 0,
            offset,
            // For Linux, 0 means: up to the end of the file.
            size_limit: size_limit.unwrap_or(0),
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: READ_ONLY | AUTOCLEAR | DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
            reserved: [0; 8],
        };
        // losetup(8) shows this name. The last byte must stay 0.
        for (to, from) in config.file_name.iter_mut().take(63).zip(file.as_os_str().as_bytes()) {
            *to = *from;
        }
        let mut last = io::Error::from(rustix::io::Errno::BUSY);
        for _ in 0..ATTEMPTS {
            let path = PathBuf::from(format!("/dev/loop{}", free_device(&control)?));
            let device = File::open(&path).map_err(|e| name(&path, e))?;
            match configure(&device, &config) {
                Ok(()) => return Ok(Self { path, _device: device }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
                Err(error) => return Err(name(&path, error)),
            }
        }
        Err(last)
    }

    /// The device's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The number of a free loop device.
fn free_device(control: &File) -> io::Result<i32> {
    // SAFETY: the descriptor is open, and LOOP_CTL_GET_FREE takes no argument (loop(4)).
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

fn configure(device: &File, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: the descriptor is open; LOOP_CONFIGURE reads one `struct loop_config` from the
    // pointer, whose layout `LoopConfig` has, and writes nothing there (drivers/block/loop.c,
    // lo_ioctl).
    let result =
        unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, std::ptr::from_ref(config)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
