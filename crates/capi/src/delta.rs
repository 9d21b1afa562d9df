//! Applies exact deltas.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::sync::Arc;

use ferofs_read::{Cancel, Hex, Source};
use ferofs_update::{Delta, DeltaHeader, DeltaOutput};
use libc::ssize_t;

use crate::image::{Callbacks, errno_of, ferofs_source, null};
use crate::status::{Failure, run_int};

/// What a delta says about itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ferofs_delta_info {
    /// Bytes of the old image.
    pub old_size: u64,
    /// Bytes of the new image.
    pub new_size: u64,
    /// An upper bound for the memory of a process that applies the delta, in bytes.
    pub memory: u64,
    /// SHA-256 of the old image.
    pub old_sha256: [u8; 32],
    /// SHA-256 of the new image.
    pub new_sha256: [u8; 32],
    /// The text that `ferofs delta sign` signs: 64 hexadecimal digits and NUL. A signature of it
    /// covers all fields above and each byte that is written.
    pub digest: [c_char; 65],
}

impl ferofs_delta_info {
    fn new(header: &DeltaHeader, digest: &[u8]) -> Self {
        let mut text = [0; 65];
        for (to, from) in text.iter_mut().zip(Hex(digest).to_string().bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        Self {
            old_size: header.old_size,
            new_size: header.new_size,
            memory: header.memory,
            old_sha256: header.old_digest,
            new_sha256: header.new_digest,
            digest: text,
        }
    }
}

/// Where a delta comes from, and where the new image goes. The functions are called from the thread
/// that calls [`ferofs_delta_apply`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ferofs_delta {
    /// Passed to the functions.
    pub context: *mut c_void,
    /// A delta that states more memory than these bytes is refused with `-ENOMEM`, before the first
    /// byte is written. 0: no limit.
    pub memory_limit: u64,
    /// Sets `buffer` to the next bytes of the delta, at most `length`. Returns their number, 0 at
    /// the end, or a negative errno. No byte after the delta is read.
    pub read: Option<
        unsafe extern "C" fn(context: *mut c_void, buffer: *mut c_void, length: usize) -> ssize_t,
    >,
    /// Decides whether the delta is applied, for example by a signature of `info->digest`. It is
    /// called once, before the old image is read and before the first byte is written. Returns 0,
    /// or a negative errno, which [`ferofs_delta_apply`] returns. May be NULL.
    pub accept:
        Option<unsafe extern "C" fn(context: *mut c_void, info: *const ferofs_delta_info) -> c_int>,
    /// Takes the next `length` bytes of the new image, whose digest was compared. Returns 0, or a
    /// negative errno.
    pub write: Option<
        unsafe extern "C" fn(context: *mut c_void, buffer: *const c_void, length: usize) -> c_int,
    >,
}

impl Read for ferofs_delta {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.read.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the caller of `ferofs_delta_apply` promises that the function takes its context
        // and a buffer of this length.
        let result = unsafe { read(self.context, buf.as_mut_ptr().cast(), buf.len()) };
        match usize::try_from(result) {
            Ok(len) if len <= buf.len() => Ok(len),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(_) => Err(errno_of(c_int::try_from(result).unwrap_or(-libc::EIO))),
        }
    }
}

impl Write for ferofs_delta {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let write = self.write.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the caller of `ferofs_delta_apply` promises that the function takes its context
        // and the bytes of a buffer of this length.
        match unsafe { write(self.context, buf.as_ptr().cast(), buf.len()) } {
            0 => Ok(buf.len()),
            errno => Err(errno_of(errno)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the new image from `old` and a delta, byte for byte. The delta is read once, and the new
/// image is written in order.
///
/// Returns 0 after the last byte, or a negative errno: `-EUCLEAN` for a damaged delta, `-ESTALE` if
/// `old` is another image than the delta is for, `-EOPNOTSUPP` for a delta that needs another
/// version of this library, or what a function returned. Nothing is written unless the SHA-256 of
/// `old` is right. After a later failure some right bytes from the start of the new image are
/// written. `old->close` is called before the function returns.
///
/// # Safety
/// `old` and `delta` must be valid for a read, and their functions must be as described there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ferofs_delta_apply(
    old: *const ferofs_source,
    delta: *const ferofs_delta,
) -> c_int {
    run_int(|| {
        // SAFETY: the caller promises that `old` is NULL or valid for a read.
        let old = unsafe { old.as_ref() }.ok_or_else(null)?;
        let old: Arc<dyn Source> = Arc::new(Callbacks(*old));
        // SAFETY: the caller promises that `delta` is NULL or valid for a read.
        let functions = *unsafe { delta.as_ref() }.ok_or_else(null)?;
        let opened = Delta::read(functions)?;
        let info = ferofs_delta_info::new(opened.header(), &opened.digest());
        if functions.memory_limit > 0 && info.memory > functions.memory_limit {
            let (needed, limit) = (info.memory, functions.memory_limit);
            let message =
                format!("the delta needs {needed} bytes of memory, and the limit is {limit}");
            return Err(Failure::new(libc::ENOMEM, &message));
        }
        if let Some(accept) = functions.accept {
            // SAFETY: the caller promises that the function takes its context and a pointer that is
            // valid during the call.
            match unsafe { accept(functions.context, &raw const info) } {
                0 => {}
                errno => {
                    let errno = errno_of(errno).raw_os_error().unwrap_or(libc::EIO);
                    return Err(Failure::new(errno, "the delta was not accepted"));
                }
            }
        }
        let mut output = functions;
        opened.apply(&old, DeltaOutput::Stream(&mut output), |_| {}, &Cancel::default())?;
        Ok(0)
    })
}
