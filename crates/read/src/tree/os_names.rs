//! Names of files: bytes in an image, strings of the operating system in paths.

use std::ffi::{OsStr, OsString};

/// The bytes of a name. On Unix these are its bytes; elsewhere its text as UTF-8.
pub(crate) fn bytes_of(name: &OsStr) -> &[u8] {
    name.as_encoded_bytes()
}

/// A name of these bytes.
#[cfg(unix)]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// A name of these bytes. What is not UTF-8 is replaced, because other systems have no names of any bytes.
#[cfg(not(unix))]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
