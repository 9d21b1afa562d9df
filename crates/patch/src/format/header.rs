//! The header of a patch file, and the tables after it. Layout: docs/PATCH_FORMAT.md.

use std::ops::Range;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::change::NewParents;
use crate::image::Sector;
use crate::image::digest::{Digest, PieceDigest};
use crate::numbers::to_u64;

pub(super) const MAGIC: [u8; 8] = *b"ferofspt";
pub(super) const VERSION: u32 = 3;
/// Bytes of the decoded header with its tables at most: 40 for each piece, so 1.7 TB of content. A patch with a longer one is
/// malformed.
pub(super) const HEADER_MAX: usize = 16 << 20;

/// The first bytes of a patch file. The header is compressed after them.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawStart {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    /// Bytes of the header as stored.
    pub(super) header_len: U32,
    pub(super) file_len: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) pieces: U32,
    pub(super) methods: U32,
    pub(super) uuid: [u8; 16],
    pub(super) time: U64,
    pub(super) base_state: U64,
    pub(super) base_size: U64,
    pub(super) base_digest: Digest,
    pub(super) base_sector: Sector,
    pub(super) result_size: U64,
    pub(super) result_digest: Digest,
    pub(super) sector: Sector,
    pub(super) root_pos: U64,
    pub(super) root_len: U32,
    pub(super) content_len: U64,
    pub(super) metadata_len: U64,
    pub(super) changes_len: U64,
    pub(super) changes_decoded: U64,
    pub(super) relocations_len: U64,
    pub(super) new_parents: U64,
    pub(super) new_parents_bytes: U64,
    pub(super) longest_extent: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawPiece {
    /// Bytes that it appends.
    pub(super) region_len: U32,
    /// Bytes of the decoded payload.
    pub(super) payload_len: U32,
    /// Bytes of the plan as stored.
    pub(super) plan_stored: U32,
    /// Bytes of the payload as stored.
    pub(super) payload_stored: U32,
    /// [`METADATA`] and [`COMPRESSED`].
    pub(super) flags: U32,
    /// Bytes of the payload as a [delta](super::piece::delta); 0: the payload as it is.
    pub(super) delta_len: U32,
    /// That of the bytes that it appends.
    pub(super) digest: PieceDigest,
}

/// The piece describes metadata, not content.
pub(super) const METADATA: u32 = 1;
/// The payload is a Zstandard frame.
pub(super) const COMPRESSED: u32 = 2;

/// The checked header: base, result, and what else the patch changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The UUID of the base.
    pub uuid: [u8; 16],
    /// When the patch was made, in seconds since 1970.
    pub time: i64,
    /// The number of the base's state in its history.
    pub base_state: u64,
    /// Bytes of the base.
    pub base_size: u64,
    /// The digest of the base.
    pub base_digest: Digest,
    /// The base's sector with the superblock.
    pub base_sector: Sector,
    /// Bytes of the patched image.
    pub result_size: u64,
    /// The digest of the patched image.
    pub result_digest: Digest,
    /// The sector with the superblock of the patched image.
    pub sector: Sector,
    /// Position and bytes of the root's inode, if it goes into free slots of the base.
    pub root: Option<(u64, Vec<u8>)>,
    /// Appended bytes of content.
    pub content_len: u64,
    /// Appended bytes of metadata.
    pub metadata_len: u64,
    /// Directories in which only `..` changes.
    pub new_parents: NewParents,
    /// Decoded bytes of the longest extent of the base's files that pieces read.
    pub longest_extent: u32,
}

impl Header {
    /// The range of the root's inode, if it goes into free slots of the base.
    pub(crate) fn root_range(&self) -> Option<Range<u64>> {
        self.root.as_ref().map(|(pos, bytes)| *pos..pos.saturating_add(to_u64(bytes.len())))
    }
}
