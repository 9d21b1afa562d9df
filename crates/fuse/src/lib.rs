//! The FUSE daemon over [`ferofs_read`]: mounts an image where the kernel's driver cannot mount it.
//!
//! Mount an image on a directory, as this user, until `fusermount3 -u /mnt`:
//!
//! ```no_run
//! use ferofs_fuse::{MountOptions, mount};
//! use ferofs_read::{FileSource, Image};
//!
//! let image = Image::open(FileSource::open("image.erofs", 0)?)?;
//! let options = MountOptions { source: "image.erofs".to_owned(), ..MountOptions::default() };
//! mount("/mnt", &options)?.serve(image, None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To mount a hostile image, first [`mount`], then [`restrict`] the process, and only then open the
//! image.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`](mount) | mounts, and answers requests until the unmount |
//! | `filesystem` | answers each kind of request from an open image |
//! | `page_store` | stores more pages in the kernel's page cache than a read asked for |
//! | [`sandbox`](restrict) | removes the privileges that the daemon does not need to answer requests |
//! | `damage_log` | logs damaged files, a limited number of lines |
//! | [`stats`](STATS_XATTR) | counters of the running daemon |
//! | `attr` | converts nids, attributes and errors to those of the kernel |
//!
//! An image never changes, so the kernel may cache names, attributes, link targets and data without
//! a time limit. The daemon keeps no state for open files.

#![forbid(unsafe_code)]
// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod attr;
mod damage_log;
mod filesystem;
mod page_store;
mod read_around;
mod sandbox;
mod session;
mod stats;
mod waiting_threads;

pub use filesystem::Access;
pub use sandbox::{Sandbox, SandboxError, forbid_unmount, restrict, restrict_keeper};
pub use session::{
    MountOptions, Mounted, attach, can_survive_process, check_memory, has_no_daemon, mount,
    open_device,
};
pub use stats::{MoreStats, STATS_XATTR};
