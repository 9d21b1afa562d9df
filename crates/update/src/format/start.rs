//! The start of a patch file: the first bytes and the header with its tables.
//!
//! It says which image the patch is for, and so whether it is needed at all. Nothing else of it may
//! be used before the digest of the file was checked.

use std::ops::Range;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::change::NewParents;
use super::columns::decompress;
use super::header::{HEADER_MAX, Header, MAGIC, RawHeader, RawPiece, RawStart, VERSION};
use crate::error::{Error, PatchFault, Result};
use crate::format::header::{METHODS_MAX, RawMethod};
use crate::image::ROOT_MAX;
use crate::image::digest::{Digest, PieceDigest};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::Source;

/// Reads the parts of a patch file in their order.
pub(super) struct Cursor<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) at: u64,
    pub(super) end: u64,
}

impl Cursor<'_> {
    pub(super) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.end);
        let too_long = || Error::Patch(PatchFault::Malformed("a table is longer than the file"));
        let end = end.ok_or_else(too_long)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_long())?];
        self.source
            .read_exact_at(self.at, &mut bytes)
            .map_err(|e| Error::io_unnamed("read the patch", e))?;
        self.at = end;
        Ok(bytes)
    }

    fn table<T: FromBytes + Immutable + KnownLayout + Unaligned + Clone>(
        &mut self,
        count: u32,
    ) -> Result<Vec<T>> {
        let len = u64::from(count).saturating_mul(to_u64(size_of::<T>()));
        let bytes = self.bytes(len)?;
        // This cannot fail: the length is a multiple of the record's, and records need no
        // alignment.
        Ok(<[T]>::ref_from_bytes(&bytes).map(<[T]>::to_vec).unwrap_or_default())
    }
}

/// The start of a patch file.
pub(crate) struct Start {
    pub(super) header: Header,
    pub(super) methods: Vec<RawMethod>,
    pub(super) pieces: Vec<RawPiece>,
    /// Bytes of the first bytes and of the header as stored.
    pub(super) len: u64,
    pub(super) changes_len: u64,
    pub(super) changes_decoded: u64,
    pub(super) relocations_len: u64,
    pub(super) file_len: u64,
}

impl Start {
    /// Bytes before the header.
    pub(crate) const FIXED: usize = size_of::<RawStart>();
    /// Bytes of any patch at least: it ends with a digest.
    const LEN_MIN: usize = Self::FIXED + size_of::<Digest>();

    /// The first bytes of the patch in `source`, which may be longer than the patch.
    pub(super) fn fixed(source: &dyn Source) -> Result<RawStart> {
        let fault = |fault| Err(Error::Patch(fault));
        let found = source.size();
        if found < to_u64(Self::LEN_MIN) {
            let mut start = [0; 8];
            let is_cut =
                found >= 8 && source.read_exact_at(0, &mut start).is_ok() && start == MAGIC;
            let expected = to_u64(Self::FIXED);
            return fault(if is_cut {
                PatchFault::Length { expected, found }
            } else {
                PatchFault::NotAPatch
            });
        }
        let bytes = Cursor { source, at: 0, end: found }.bytes(to_u64(Self::FIXED))?;
        let Ok(start) = RawStart::read_from_bytes(&bytes) else {
            return fault(PatchFault::NotAPatch);
        };
        if start.magic != MAGIC {
            return fault(PatchFault::NotAPatch);
        }
        if start.version.get() != VERSION {
            return fault(PatchFault::Version(start.version.get()));
        }
        Ok(start)
    }

    /// Bytes of the patch that starts with `first`, its first [`Self::FIXED`] bytes.
    pub(crate) fn file_len_of(first: &[u8]) -> Result<u64> {
        let found = to_u64(first.len());
        if first.len() < Self::FIXED {
            let is_cut = first.starts_with(&MAGIC);
            let expected = to_u64(Self::FIXED);
            return Err(Error::Patch(match is_cut {
                true => PatchFault::Length { expected, found },
                false => PatchFault::NotAPatch,
            }));
        }
        // The digest is missing, without which no patch is accepted.
        let mut padded = first.to_vec();
        padded.resize(Self::LEN_MIN, 0);
        Ok(Self::fixed(&padded)?.file_len.get())
    }

    /// Reads the start of the patch in `source`, which may be longer than the patch.
    pub(crate) fn read(source: &dyn Source) -> Result<Self> {
        let fixed = Self::fixed(source)?;
        let found = source.size();
        if found < header_len(&fixed)?.saturating_add(to_u64(Self::FIXED)) {
            return Err(Error::Patch(PatchFault::Length { expected: fixed.file_len.get(), found }));
        }
        Self::after(&fixed, source)
    }

    /// As [`Self::read`], after the first bytes.
    pub(super) fn after(start: &RawStart, source: &dyn Source) -> Result<Self> {
        let fault = |fault| Err(Error::Patch(fault));
        let file_len = start.file_len.get();
        let mut cursor =
            Cursor { source, at: to_u64(Self::FIXED), end: source.size().min(file_len) };
        let stored = cursor.bytes(header_len(start)?)?;
        let len = cursor.at;
        let tables = decompress(&stored, HEADER_MAX, "its header cannot be decoded")?;
        let mut tables = Cursor { source: &tables, at: 0, end: to_u64(tables.len()) };
        let raw: Vec<RawHeader> = tables.table(1)?;
        let Some(raw) = raw.first() else { return fault(PatchFault::NotAPatch) };
        let root_len = raw.root_len.get();
        if to_usize(root_len) > ROOT_MAX {
            return fault(PatchFault::Malformed("the root's inode is too long"));
        }
        let root = tables.bytes(root_len.into())?;
        if raw.methods.get() > METHODS_MAX {
            return fault(PatchFault::Malformed("it has too many compression methods"));
        }
        let methods: Vec<RawMethod> = tables.table(raw.methods.get())?;
        let pieces: Vec<RawPiece> = tables.table(raw.pieces.get())?;
        if tables.at != tables.end {
            return fault(PatchFault::Malformed("its header is too long"));
        }
        let header = Header {
            uuid: raw.uuid,
            time: raw.time.get().cast_signed(),
            base_state: raw.base_state.get(),
            base_size: raw.base_size.get(),
            base_digest: raw.base_digest,
            base_sector: raw.base_sector,
            result_size: raw.result_size.get(),
            result_digest: raw.result_digest,
            sector: raw.sector,
            root: (root_len > 0).then_some((raw.root_pos.get(), root)),
            content_len: raw.content_len.get(),
            metadata_len: raw.metadata_len.get(),
            new_parents: NewParents {
                directories: raw.new_parents.get(),
                bytes: raw.new_parents_bytes.get(),
            },
            longest_extent: raw.longest_extent.get(),
        };
        Ok(Self {
            header,
            methods,
            pieces,
            len,
            changes_len: raw.changes_len.get(),
            changes_decoded: raw.changes_decoded.get(),
            relocations_len: raw.relocations_len.get(),
            file_len,
        })
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    /// As [`super::reader::Patch::appended`].
    pub(crate) fn appended(&self) -> impl Iterator<Item = (Range<u64>, PieceDigest)> + '_ {
        appended(&self.header, &self.pieces)
    }

    /// Bytes of the patch.
    pub(crate) const fn file_len(&self) -> u64 {
        self.file_len
    }
}

/// The positions in the result of the bytes that each of `pieces` appends, and their digest.
pub(super) fn appended<'a>(
    header: &Header,
    pieces: &'a [RawPiece],
) -> impl Iterator<Item = (Range<u64>, PieceDigest)> + use<'a> {
    let mut at = header.base_size;
    pieces.iter().map(move |piece| {
        let start = at;
        at = at.saturating_add(piece.region_len.get().into());
        (start..at, piece.digest)
    })
}

/// Bytes of the header as stored.
fn header_len(start: &RawStart) -> Result<u64> {
    let len = u64::from(start.header_len.get());
    if len > to_u64(HEADER_MAX) {
        return Err(Error::Patch(PatchFault::Malformed("its header is too long")));
    }
    Ok(len)
}
