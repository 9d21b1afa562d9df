//! Opens the destination of the FUSE daemon's messages. The daemon replaces its standard error by it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::args::overwrite::open_without_waiting;
use crate::exit::Failure;

/// The socket of syslog or journald.
const SYSLOG: &str = "/dev/log";

/// Opens `file`. Without `file`, a daemon in the background gets syslog, or /dev/null if there is no syslog, and a daemon in
/// the foreground keeps its standard error (`None`).
///
/// Must be called before the sandbox starts: the sandbox forbids opening files.
pub(crate) fn open(file: Option<&Path>, background: bool) -> Result<Option<OwnedFd>, Failure> {
    if let Some(path) = file {
        let file = open_without_waiting(File::options().append(true).create(true), path)?;
        return Ok(Some(file.into()));
    }
    if !background {
        return Ok(None);
    }
    Ok(Some(match syslog() {
        Ok(socket) => socket.into(),
        Err(_) => File::options().write(true).open("/dev/null")?.into(),
    }))
}

/// Opens a socket on which each write is one message of syslog.
fn syslog() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SYSLOG)?;
    // The daemon must not block if syslog does not read: it rather loses messages.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
