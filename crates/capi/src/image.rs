//! Opens and closes an image.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::ptr;

use ferofs_read::{FileSource, Image, Source};

use crate::status::{Failure, run_int};

/// An open image.
pub struct ferofs_image {
    pub(crate) image: Image,
}

/// Where the bytes of an image come from, if not from a file. The functions may be called from any
/// thread that uses the image, from several at once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ferofs_source {
    /// Passed to the functions.
    pub context: *mut c_void,
    /// Bytes of the image.
    pub size: u64,
    /// Fills `buffer` with the `length` bytes at `position`. Returns 0, or a negative errno.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            position: u64,
            buffer: *mut c_void,
            length: usize,
        ) -> c_int,
    >,
    /// Called once when the image is closed, or could not be opened. May be NULL.
    pub close: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// A [`ferofs_source`] that is closed when it is dropped.
pub(crate) struct Callbacks(pub(crate) ferofs_source);

// SAFETY: whoever passes a `ferofs_source` promises that its functions may be called from any
// thread.
unsafe impl Send for Callbacks {}
// SAFETY: as above, from several threads at once.
unsafe impl Sync for Callbacks {}

impl Source for Callbacks {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = self.0.read.ok_or(io::ErrorKind::Unsupported)?;
        let len = u64::try_from(buf.len()).unwrap_or(u64::MAX);
        if pos.checked_add(len).is_none_or(|end| end > self.0.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the caller of `ferofs_open_source` promises that the function takes its context
        // and a buffer of this length.
        match unsafe { read(self.0.context, pos, buf.as_mut_ptr().cast(), buf.len()) } {
            0 => Ok(()),
            errno => Err(errno_of(errno)),
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(close) = self.0.close {
            // SAFETY: as for `read`; this is the only call.
            unsafe { close(self.0.context) }
        }
    }
}

/// Opens the image in a file or block device, `offset` bytes from its start. Returns 0 and sets
/// `*image`, or returns a negative errno and sets `*image` to NULL: `-EISDIR` for a directory,
/// `-EINVAL` for anything else that is neither a file nor a block device.
///
/// # Safety
/// `path` must be a string that ends with NUL, and `image` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_open(
    path: *const c_char,
    offset: u64,
    image: *mut *mut ferofs_image,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises that `image` is NULL or valid for a write.
        let image = unsafe { image.as_mut() }.ok_or_else(null)?;
        *image = ptr::null_mut();
        if path.is_null() {
            return Err(null());
        }
        // SAFETY: the caller promises a string that ends with NUL.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        // Opening a pipe would wait for its writer. Opening what cannot be looked at says why.
        if let Ok(kind) = std::fs::metadata(path).map(|metadata| metadata.file_type()) {
            if kind.is_dir() {
                return Err(Failure::new(libc::EISDIR, "is a directory"));
            } else if !kind.is_file() && !kind.is_block_device() {
                return Err(Failure::new(libc::EINVAL, "neither a file nor a block device"));
            }
        }
        let source = FileSource::open(path, offset)?;
        *image = opened(source)?;
        Ok(0)
    })
}

/// Opens the image that `source` reads. Returns 0 and sets `*image`, or returns a negative errno
/// and sets `*image` to NULL. The source is copied; its context must stay valid until `close` is
/// called.
///
/// # Safety
/// `source` must be valid for a read, `image` for a write, and the functions of the source must be
/// as described there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_open_source(
    source: *const ferofs_source,
    image: *mut *mut ferofs_image,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises that `source` is NULL or valid for a read.
        let source = unsafe { source.as_ref() }.ok_or_else(null)?;
        let source = Callbacks(*source);
        // SAFETY: the caller promises that `image` is NULL or valid for a write.
        let image = unsafe { image.as_mut() }.ok_or_else(null)?;
        *image = ptr::null_mut();
        *image = opened(source)?;
        Ok(0)
    })
}

fn opened(source: impl Source + 'static) -> Result<*mut ferofs_image, Failure> {
    let image = Image::open(source)?;
    Ok(Box::into_raw(Box::new(ferofs_image { image })))
}

/// Closes an image. NULL is allowed.
///
/// # Safety
/// `image` must be NULL or come from [`ferofs_open`] or [`ferofs_open_source`], and not be used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_close(image: *mut ferofs_image) {
    if !image.is_null() {
        // SAFETY: the caller promises that it is an image, which `opened` has boxed, and that this
        // is its last use.
        drop(unsafe { Box::from_raw(image) });
    }
}

/// The image that C passes.
///
/// # Safety
/// `image` must be NULL or an open image.
pub(crate) unsafe fn image_of<'a>(image: *const ferofs_image) -> Result<&'a Image, Failure> {
    // SAFETY: the caller promises it.
    unsafe { image.as_ref() }.map(|image| &image.image).ok_or_else(null)
}

/// The failure of a function of the program, which returned this instead of 0.
pub(crate) fn errno_of(result: c_int) -> io::Error {
    match result {
        ..0 => io::Error::from_raw_os_error(result.saturating_neg()),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

pub(crate) fn null() -> Failure {
    Failure::new(libc::EINVAL, "a pointer is NULL")
}
