//! Where the FUSE daemon's messages go: they are lines on its standard error, which is pointed there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::exit::Failure;

/// Where syslog, or journald in its place, listens.
const SYSLOG: &str = "/dev/log";

/// What standard error becomes: the file that was named; without one, for a daemon in the background, syslog where
/// there is one, and otherwise nothing. `None` leaves it as it is.
///
/// Opened early: the sandbox opens nothing.
pub(crate) fn open(file: Option<&Path>, background: bool) -> Result<Option<OwnedFd>, Failure> {
    if let Some(path) = file {
        let file = OpenOptions::new().append(true).create(true).open(path);
        return Ok(Some(file.map_err(|e| Failure::about(path, e))?.into()));
    }
    if !background {
        return Ok(None);
    }
    Ok(Some(match syslog() {
        Ok(socket) => socket.into(),
        Err(_) => File::options().write(true).open("/dev/null")?.into(),
    }))
}

/// A socket on which each write is a message of syslog's.
fn syslog() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SYSLOG)?;
    // Messages are better lost than waited for.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
