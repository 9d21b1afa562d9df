//! Mounts by the kernel and by the FUSE daemon.
//!
//! - `daemon`: messages, counters and failures of the daemon.
//! - `fuse`: the daemon shows the source.
//! - `helper`: `/sbin/mount.erofs` for mount(8).
//! - `kernel`: Linux shows the source.
//! - `options`: options of FUSE, what is missing, and unmounting.
//! - `permissions`: the daemon without root, and access control lists.
//! - `restart`: the mount outlives its daemon.

mod daemon;
mod fuse;
mod helper;
mod kernel;
mod options;
mod permissions;
mod restart;
