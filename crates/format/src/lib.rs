//! The EROFS on-disk format: structures, feature bits, index codecs, checksums.
//!
//! This crate knows bytes and nothing else: no I/O, no allocation by claim, no `unsafe`. Both directions
//! of one structure share a file, so that what is written is what is read.
//!
//! | room | what it holds | docs/FORMAT.md |
//! |---|---|---|
//! | [`units`] | addresses, positions, offsets and sizes as distinct types | |
//! | [`error`], [`view`] | what can be wrong with bytes; a cursor that checks before it hands out | 8 |
//! | [`feature`], [`superblock`], [`checksum`], [`device`] | the image as a whole | 1, 5 |
//! | [`inode`], [`dirent`], [`xattr`] | the tree | 2, 3, 4 |
//! | [`algorithm`] | compression algorithms and their configurations | 6.1 |
//! | [`map`] | where a file's bytes are: chunks, compression indexes, extents | 5, 6 |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod algorithm;
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
