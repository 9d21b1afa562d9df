//! The header of a patch file, and the tables after it: pieces, and the compressors that encode its
//! content again. Layout: docs/PATCH_FORMAT.md.

use std::ops::Range;

use ferofs_codec::{Algorithm, Filling, LzmaBits, Params};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use ferofs_format::BytePos;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::error::Locate;
use ferofs_read::{Image, Source};

use super::prediction::{Prediction, Relocations};
use crate::error::{Error, PatchFault, Result};
use crate::format::change::NewParents;
use crate::image::digest::{Digest, PieceDigest};
use crate::image::history::{Origin, RECORD, Record};
use crate::image::{SECTOR_POS, Sector};

pub(super) const MAGIC: [u8; 8] = *b"ferofspt";
pub(super) const VERSION: u32 = 5;
/// Bytes of the decoded header with its tables at most: 40 for each piece, so 1.7 TB of content. A
/// patch with a longer one is malformed.
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
    /// What the patch with these `relocations` appends to `image`, whose bytes are `source`, as far
    /// as it is predicted.
    ///
    /// # Errors
    /// [`Error`] if the base is not valid, or lacks inodes of the list.
    pub fn predict(
        &self,
        relocations: Relocations,
        image: &Image,
        source: &dyn Source,
    ) -> Result<Prediction> {
        let superblock = Superblock::parse(&self.sector).located_at(BytePos::new(SECTOR_POS))?;
        Prediction::new(relocations, image, superblock, self.record(source)?)
    }

    /// The position and the bytes of the record that the patch adds to the history.
    fn record(&self, source: &dyn Source) -> Result<(u64, Vec<u8>)> {
        let before = Record::read(source, self.base_size)?;
        // Exact: it has at most `ROOT_MAX` bytes.
        let root_len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let record = Record {
            origin: Origin::Patch,
            number: self.base_state.wrapping_add(1),
            time: self.time,
            start: self.base_size,
            end: self.result_size,
            previous: before.map_or(0, |before| before.end),
            before: self.base_sector,
            after: self.sector,
            root: self.root.as_ref().map_or((0, 0), |(pos, bytes)| (*pos, root_len(bytes))),
        };
        Ok((self.result_size.saturating_sub(RECORD), record.to_bytes()))
    }

    /// The range of the root's inode, if it goes into free slots of the base.
    pub(crate) fn root_range(&self) -> Option<Range<u64>> {
        self.root.as_ref().map(|(pos, bytes)| *pos..pos.saturating_add(to_u64(bytes.len())))
    }
}

/// Methods that a patch may have: more than any build has.
pub(super) const METHODS_MAX: u32 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawMethod {
    algorithm: u8,
    level: u8,
    lc: u8,
    lp: u8,
    pb: u8,
    dictionary: U32,
    window: U32,
    /// See [`ferofs_codec::encoder_version`].
    encoder: U32,
    /// See [`raw_filling`].
    filling: U16,
}

/// [`Filling::Bytes`]; smaller values are of [`Filling::Trials`].
const BYTES: u16 = 128;
/// Of [`Filling::Blocks`], with log2 of the size of a block added.
const BLOCKS: u16 = 256;

/// How a compressor fills an output, as patches store it.
fn raw_filling(filling: Filling) -> u16 {
    match filling {
        Filling::Trials { unused } => unused,
        Filling::Bytes => BYTES,
        Filling::Blocks { log } => BLOCKS + u16::from(log),
    }
}

/// The reverse of [`raw_filling`]; values out of range become one that [`Params::check`] refuses.
fn filling(raw: u16) -> Filling {
    match raw.checked_sub(BLOCKS) {
        Some(log) => Filling::Blocks { log: u8::try_from(log).unwrap_or(u8::MAX) },
        None if raw == BYTES => Filling::Bytes,
        None => Filling::Trials { unused: raw },
    }
}

impl RawMethod {
    pub(super) fn new(params: &Params) -> Self {
        let LzmaBits { lc, lp, pb } = params.bits;
        Self {
            algorithm: params.algorithm.id(),
            level: params.level,
            lc,
            lp,
            pb,
            dictionary: params.dictionary.into(),
            // Exact: checked parameters have a window of at most 12 MiB.
            window: u32::try_from(params.window).unwrap_or(u32::MAX).into(),
            encoder: ferofs_codec::encoder_version(params).into(),
            filling: raw_filling(params.filling).into(),
        }
    }

    /// The parameters, if this program has the very encoder that the patch was made with.
    pub(crate) fn params(&self) -> Result<Params> {
        let malformed = |what| Error::Patch(PatchFault::Malformed(what));
        let algorithm = Algorithm::from_id(self.algorithm)
            .ok_or_else(|| malformed("it names an unknown compression algorithm"))?;
        let params = Params {
            algorithm,
            level: self.level,
            dictionary: self.dictionary.get(),
            bits: LzmaBits { lc: self.lc, lp: self.lp, pb: self.pb },
            window: to_usize(self.window.get()),
            filling: filling(self.filling.get()),
        };
        params.check().map_err(|_| malformed("a compression parameter is out of range"))?;
        let (expected, found) = (self.encoder.get(), ferofs_codec::encoder_version(&params));
        if expected != found {
            return Err(Error::Patch(PatchFault::Encoder {
                algorithm: algorithm.name(),
                expected,
                found,
            }));
        }
        Ok(params)
    }
}
