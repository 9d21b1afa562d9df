//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! The EROFS on-disk format: structures, feature bits, index codecs, checksums.
//!
//! This crate only converts between bytes and types: no I/O, no `unsafe`, and no allocation whose
//! size an image claims. Reading and writing of a structure are in the same file, so that they stay
//! consistent.
//!
//! | module | what it holds | docs/FORMAT.md |
//! |---|---|---|
//! | [`units`] | addresses, positions, offsets and sizes as distinct types | |
//! | [`error`], [`view`] | the rules that an image can break; a cursor over bytes with bounds checks | 8 |
//! | [`text`], [`byte_size`] | UUIDs, bytes and numbers of bytes as text | |
//! | [`feature`], [`superblock`], [`device`] | the image as a whole | 1, 5 |
//! | [`inode`], [`dirent`], [`xattr`] | the tree | 2, 3, 4 |
//! | [`algorithm`] | compression algorithms and their configurations | 6.1 |
//! | [`area`] | allocates places in the metadata area: for building and for patches | 2 |
//! | [`map`] | where a file's data is: chunks, compression indexes, extents | 5, 6 |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod algorithm;
pub mod area;
pub mod byte_size;
pub mod device;
pub mod dirent;
pub mod error;
pub mod feature;
pub mod inode;
pub mod map;
pub mod superblock;
pub mod text;
pub mod units;

pub mod view;
pub mod xattr;

pub use algorithm::Algorithm;
pub use error::{Fault, FormatError, Structure};
pub use feature::{Compat, Incompat};
pub use text::{Hex, ParseUuidError, Uuid};
pub use units::{BlockAddr, BlockSize, BytePos, ClusterSize, DeviceId, FileOffset, Lcn, Nid};
