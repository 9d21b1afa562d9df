//! Errors for C: a negative errno as the result, and a message for each thread.

use std::cell::RefCell;
use std::error::Error as _;
use std::ffi::{CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ferofs_read::Error;
use ferofs_update::{Error as PatchError, PatchFault};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, message: &str) -> Self {
        Self { errno, message: message.into() }
    }
}

fn errno_of_io(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        let errno = match &error {
            PatchError::Read(_) => libc::EUCLEAN,
            PatchError::Io(error) => errno_of_io(&error.source),
            PatchError::Patch(PatchFault::OtherOld { .. } | PatchFault::Truncated { .. }) => {
                libc::ESTALE
            }
            PatchError::Patch(PatchFault::Version(_) | PatchFault::Encoder { .. }) => {
                libc::EOPNOTSUPP
            }
            PatchError::Patch(_) => libc::EUCLEAN,
            PatchError::Interrupted => libc::EINTR,
            PatchError::Threads(error) => {
                error.source().and_then(|e| e.downcast_ref()).map_or(libc::EIO, errno_of_io)
            }
            _ => libc::EIO,
        };
        Self { errno, message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = match &error {
            Error::Io(error) => errno_of_io(&error.source),
            // Linux's number for a damaged file system.
            Error::Corrupt(_) => libc::EUCLEAN,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::NotFound(_) => libc::ENOENT,
            Error::NotADirectory(_) => libc::ENOTDIR,
            Error::TooManyLinks(_) => libc::ELOOP,
            Error::NotAFile(_) | Error::Option { .. } => libc::EINVAL,
            Error::Interrupted => libc::EINTR,
            _ => libc::EIO,
        };
        Self { errno, message: error.to_string() }
    }
}

thread_local!(static MESSAGE: RefCell<CString> = RefCell::default());

/// Why the last call of this thread that failed did so, as one line of text. It is valid until the
/// next call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ferofs_error_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Runs `call`; returns its result, or the negative errno of its failure. A panic, which would be a
/// defect of this library, is EIO.
pub(crate) fn run(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    // After a panic the image may be used again: its locks take no harm from one.
    let result = catch_unwind(AssertUnwindSafe(call));
    let result =
        result.unwrap_or_else(|_| Err(Failure::new(libc::EIO, "internal error of libferofs")));
    result.unwrap_or_else(|failure| {
        let text: Vec<u8> =
            failure.message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
        MESSAGE.set(CString::new(text).unwrap_or_default());
        -i64::from(failure.errno)
    })
}

/// As [`run`], for calls that return 0 or another small number.
pub(crate) fn run_int(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    // A value that does not fit is not a result of such a call.
    i32::try_from(run(|| call().map(i64::from))).unwrap_or(-libc::EIO)
}
