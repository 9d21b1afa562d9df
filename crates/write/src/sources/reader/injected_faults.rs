//! Failures that tests inject into reads of sources, by the names of files.

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Names of files, and how many reads from their start succeed before all reads fail.
pub(crate) static READS_LEFT: Mutex<Vec<(&str, u32)>> = Mutex::new(Vec::new());

/// [`crate::sources::reader::Reader`] calls this before each read. It fails for files with certain
/// names.
pub(crate) fn fail_if_asked(name: &[u8], offset: u64) -> Result<()> {
    let error = || Error::io("read", crate::paths::as_path(name), Errno::IO);
    match name {
        b"panics" => panic!("asked to"),
        b"unreadable" => Err(error()),
        b"unreadable-in-the-middle" if offset >= 4 << 20 => Err(error()),
        b"changed" => Err(Error::SourceChanged(crate::paths::as_path(name).into())),
        _ => {
            let mut left = READS_LEFT.lock();
            match left.iter_mut().find(|(known, _)| known.as_bytes() == name) {
                Some((_, 0)) => Err(error()),
                Some((_, left)) if offset == 0 => {
                    *left -= 1;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    }
}
