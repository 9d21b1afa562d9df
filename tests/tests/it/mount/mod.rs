//! Mounts by the kernel and by the FUSE daemon.
//!
//! - `daemon`: permissions, messages and failures of the daemon.
//! - `fuse`: the daemon shows the source.
//! - `helper`: `/sbin/mount.erofs` for mount(8).
//! - `kernel`: Linux shows the source.

mod daemon;
mod fuse;
mod helper;
mod kernel;
