//! Sealed images: `ferofs verity` and `--roothash`.
//!
//! - `formats`: veritysetup and fsverity agree with our hash trees.
//! - `interrupted`: `ferofs verity format` that is killed or fails at any system call, and files
//!   that cannot be read at any position.
//! - `signatures`: openssl agrees with our signatures; wrong, weak and expired ones are refused.
//! - `tampering`: a changed image gives its bytes or an error, never other bytes.

mod formats;
mod interrupted;
mod signatures;
mod tampering;

/// Makes a named pipe. A program that opens it waits for a writer.
fn make_fifo(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, mknodat};

    mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
}
