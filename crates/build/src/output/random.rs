//! Random bytes from the system, for UUIDs and names of temporary files.

use crate::error::{Error, Result};

/// Fills `bytes`.
pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .map(|_| ())
        .map_err(|e| Error::io_unnamed("get random bytes", e))
}
