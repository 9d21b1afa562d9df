//! Divides this process into two (fork(2)).
#![allow(unsafe_code)]

use std::io;

use rustix::process::Pid;

const THREADS: &str = "/proc/self/task";

/// Makes a copy of this process, which has only one thread. Returns the copy's number, and `None`
/// in the copy.
///
/// # Errors
/// Errors of fork(2); also if this process has other threads.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    let threads = std::fs::read_dir(THREADS).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(e.kind(), format!("{THREADS}: {e}; is /proc mounted?"))
        }
        _ => e,
    })?;
    if threads.count() != 1 {
        return Err(io::Error::other("other threads run already"));
    }
    // SAFETY: fork(2) copies the memory and only the calling thread. The copy could find locks that
    // another thread holds, and data that another thread is changing; there is no other thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(Pid::from_raw(number)),
    }
}
