//! The FUSE daemon over [`ferofs::read`]: mounts an image where the kernel's driver cannot, or may not.
//!
//! | room | what it does |
//! |---|---|
//! | [`session`](mount) | mounts, and serves until unmounted |
//! | `filesystem` | answers the kernel's requests from an open image |
//! | `neighbours` | gives the kernel's page cache more than a read asked for |
//! | `pattern` | how files are being read: here and there, all over, in strides |
//! | [`sandbox`](restrict) | gives up what serving does not need |
//! | `complaints` | says what is damaged, without filling a log |
//! | [`stats`](STATS_XATTR) | counters of a live daemon |
//! | `attr` | inode numbers, attributes and error numbers as the kernel wants them |
//!
//! An image never changes, so the kernel may keep all that it is told for as long as it likes: names,
//! attributes, targets of links, content. Nothing is counted or remembered per open file.

#![forbid(unsafe_code)]

mod attr;
mod complaints;
mod filesystem;
mod neighbours;
mod sandbox;
mod session;
mod stats;

pub use sandbox::{Sandbox, SandboxError, restrict};
pub use session::{MountError, MountOptions, Mounted, mount};
pub use stats::STATS_XATTR;
