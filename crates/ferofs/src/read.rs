//! Read: from an image to names, attributes and bytes.
//!
//! Flows one way: [`Source`] -> [`Image`] (superblock) -> [`Inode`] -> directory entries, [`Xattr`]s or
//! [`Extent`]s -> decoded bytes in the caller's buffer. Knows nothing of building.
//!
//! ```no_run
//! use ferofs::read::{FileOffset, FileSource, Image};
//!
//! let image = Image::open(FileSource::open("usr.erofs", 0)?)?;
//! let file = image.resolve("bin/ls".as_ref(), true)?;
//! let mut start = [0; 4];
//! image.read_at(&file, FileOffset::new(0), &mut start)?;
//! assert_eq!(&start, b"\x7fELF");
//! # Ok::<(), ferofs::Error>(())
//! ```

mod cache;
mod dir;
mod engine;
mod extent;
mod file;
mod image;
mod inode;
mod map;
mod source;
mod xattr;

pub use dir::{DirCookie, DirEntry, ReadDir};
pub use engine::{
    BOOKKEEPING, EngineOptions, HotRange, Io, LowMemory, Pinned, Policy, Profile, ProfileError, Stats,
    Strategy,
};
pub use extent::{Extent, ExtentData, Location};
pub use ferofs_format::inode::{DataLayout, FileType, Place, Rdev, Timestamp};
pub use ferofs_format::superblock::Superblock;
pub use ferofs_format::{FileOffset, Nid};
pub use file::Extents;
pub use image::{Image, MetadataPlace, OpenOptions};
pub use inode::Inode;
pub use source::{FileSource, Source};
pub use xattr::Xattr;
