//! Readers in one process, the fetcher in another: the process that decodes a hostile image needs
//! no network, and the process with the network never sees the image's files.
//!
//! They share a socket that keeps the borders of messages (`SOCK_SEQPACKET`). If the fetcher is
//! killed, another one continues with the same socket: it says that it is new, and the client sends
//! again what waits.

mod client;
mod message;
mod server;

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub use self::client::{BACKGROUND_MAX, Client};
pub use self::server::serve;
#[cfg(test)]
pub(crate) use self::server::serve_some;

/// The two ends of a new channel: of the client and of the server.
///
/// # Errors
/// The errors of socketpair(2).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
