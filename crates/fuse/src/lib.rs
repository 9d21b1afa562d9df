//! The FUSE daemon over [`ferofs::read`]: mounts an image where the kernel's driver cannot mount it.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`](mount) | mounts, and serves until unmounted |
//! | `filesystem` | answers the kernel's requests from an open image |
//! | `page_store` | stores more pages in the kernel's page cache than a read asked for |
//! | [`sandbox`](restrict) | removes the rights that serving does not need |
//! | `damage_log` | logs which files are damaged, a limited number of lines |
//! | [`stats`](STATS_XATTR) | counters of a live daemon |
//! | `attr` | inode numbers, attributes and error numbers as the kernel wants them |
//!
//! An image never changes, so that the kernel may cache everything without a time limit: names, attributes, targets of
//! links, content. The daemon keeps no state for open files.

#![forbid(unsafe_code)]

mod attr;
mod damage_log;
mod filesystem;
mod page_store;
mod sandbox;
mod session;
mod stats;

pub use sandbox::{Sandbox, SandboxError, restrict};
pub use session::{MountError, MountOptions, Mounted, mount};
pub use stats::STATS_XATTR;
