//! The patch file: what it says, and the bytes it brings. docs/PATCH.md has the layout.
//!
//! A file is hashed as a whole before anything in it is believed. What it brings is a row of pieces, each compressed by
//! itself, some of them against bytes of the base.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PatchFault;
use super::digest::Digest;
use super::sector::{SECTOR, SECTOR_POS, Sector, covered_end};
use crate::{Error, Result};
use ferofs_read::{FileSource, Source};

const MAGIC: [u8; 8] = *b"ferofspt";
const VERSION: u32 = 1;
/// Bytes of a piece, decoded, at most.
pub(crate) const PIECE_MAX: usize = 4 << 20;
/// Bytes of the base that a piece may be compressed against.
pub(crate) const REFERENCES_MAX: usize = 16 << 20;
/// Bytes of the root's inode with its attributes, where that does not stand among what is appended.
pub(crate) const ROOT_MAX: usize = 4096;
/// Bytes of the list of changes, decoded.
const CHANGES_MAX: u64 = 1 << 30;
const HASH_AT_ONCE: usize = 1 << 20;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    pieces: U32,
    file_len: U64,
    uuid: [u8; 16],
    time: U64,
    base_state: U64,
    base_size: U64,
    base_digest: Digest,
    base_sector: Sector,
    result_size: U64,
    result_digest: Digest,
    sector: Sector,
    root_pos: U64,
    root_len: U32,
    references: U32,
    content_len: U64,
    metadata_len: U64,
    changes_len: U64,
    changes_decoded: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPiece {
    len: U32,
    stored_len: U32,
    /// 0: as it is; 1: a Zstandard frame.
    encoding: U32,
    references: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReference {
    pos: U64,
    len: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChange {
    kind: U32,
    path_len: U32,
    bytes: U64,
}

/// What a patch says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) uuid: [u8; 16],
    pub(crate) time: i64,
    /// The number of the base's state.
    pub(crate) base_state: u64,
    pub(crate) base_size: u64,
    pub(crate) base_digest: Digest,
    pub(crate) base_sector: Sector,
    pub(crate) result_size: u64,
    pub(crate) result_digest: Digest,
    pub(crate) sector: Sector,
    /// Where the root's inode goes if it is not among what is appended, and its bytes.
    pub(crate) root: Option<(u64, Vec<u8>)>,
    /// Bytes of content among what is appended.
    pub(crate) content_len: u64,
    /// Bytes of metadata among it.
    pub(crate) metadata_len: u64,
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content differs.
    Content,
    /// Its attributes differ, or how many names it has.
    Attributes,
    /// It is an older file's content under this name.
    Moved,
    /// A directory that is written anew.
    Directory,
    /// It is gone.
    Removed,
}

/// A file that a patch changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// Its path, from the root: as in the new tree, or, if it is gone, in the old one.
    pub path: Vec<u8>,
    /// Bytes that the image grows by for it.
    pub bytes: u64,
}

impl ChangeKind {
    const ALL: [Self; 6] =
        [Self::Added, Self::Content, Self::Attributes, Self::Moved, Self::Directory, Self::Removed];

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Content => "content",
            Self::Attributes => "attributes",
            Self::Moved => "moved",
            Self::Directory => "directory",
            Self::Removed => "removed",
        }
    }
}

/// A part of what is appended.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) len: usize,
    pub(crate) encoded: bool,
    /// As stored.
    pub(crate) bytes: Vec<u8>,
    /// Ranges of the base that it is compressed against.
    pub(crate) references: Vec<(u64, u32)>,
}

/// Puts a patch file together.
pub(crate) fn write(
    header: &Header,
    pieces: &[Piece],
    changes: &[Change],
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let mut list = Vec::new();
    for Change { kind, path, bytes } in changes {
        let kind = ChangeKind::ALL.iter().position(|known| known == kind).unwrap_or(0) as u32;
        let path_len = (path.len() as u32).into();
        list.extend_from_slice(RawChange { kind: kind.into(), path_len, bytes: (*bytes).into() }.as_bytes());
        list.extend_from_slice(path);
    }
    let stored_list = zstd::bulk::compress(&list, 15).map_err(|e| Error::io_unnamed("compress", e))?;
    let references: usize = pieces.iter().map(|piece| piece.references.len()).sum();
    let root = header.root.as_ref().map_or(&[][..], |(_, bytes)| bytes);
    let payload: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let len = size_of::<RawHeader>()
        + root.len()
        + size_of_val(pieces_table(pieces).as_slice())
        + references * size_of::<RawReference>()
        + stored_list.len()
        + payload
        + size_of::<Digest>();
    let raw = RawHeader {
        magic: MAGIC,
        version: VERSION.into(),
        pieces: (pieces.len() as u32).into(),
        file_len: (len as u64).into(),
        uuid: header.uuid,
        time: header.time.cast_unsigned().into(),
        base_state: header.base_state.into(),
        base_size: header.base_size.into(),
        base_digest: header.base_digest,
        base_sector: header.base_sector,
        result_size: header.result_size.into(),
        result_digest: header.result_digest,
        sector: header.sector,
        root_pos: header.root.as_ref().map_or(0, |(pos, _)| *pos).into(),
        root_len: (root.len() as u32).into(),
        references: (references as u32).into(),
        content_len: header.content_len.into(),
        metadata_len: header.metadata_len.into(),
        changes_len: (stored_list.len() as u64).into(),
        changes_decoded: (list.len() as u64).into(),
    };
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        out(bytes)
    };
    put(raw.as_bytes())?;
    put(root)?;
    put(pieces_table(pieces).as_bytes())?;
    for (pos, len) in pieces.iter().flat_map(|piece| &piece.references) {
        put(RawReference { pos: (*pos).into(), len: (*len).into() }.as_bytes())?;
    }
    put(&stored_list)?;
    for piece in pieces {
        put(&piece.bytes)?;
    }
    out(hasher.finalize().as_bytes())?;
    Ok(len as u64)
}

fn pieces_table(pieces: &[Piece]) -> Vec<RawPiece> {
    let raw = |piece: &Piece| RawPiece {
        len: (piece.len as u32).into(),
        stored_len: (piece.bytes.len() as u32).into(),
        encoding: u32::from(piece.encoded).into(),
        references: (piece.references.len() as u32).into(),
    };
    pieces.iter().map(raw).collect()
}

/// An open patch, whose file is sound.
pub struct Patch {
    source: Box<dyn Source>,
    header: Header,
    pieces: Vec<RawPiece>,
    references: Vec<RawReference>,
    /// Where the list of changes is, its bytes, and those it decodes to.
    changes: (u64, u64, u64),
    /// Where the pieces are.
    payload: u64,
    file_len: u64,
}

impl std::fmt::Debug for Patch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patch").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Reads one thing after the other.
struct Cursor<'a> {
    source: &'a dyn Source,
    at: u64,
    end: u64,
}

impl Cursor<'_> {
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.end);
        let end = end.ok_or(Error::Patch(PatchFault::Malformed("a table is longer than the file")))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.source.read_exact_at(self.at, &mut bytes).map_err(|e| Error::io_unnamed("read the patch", e))?;
        self.at = end;
        Ok(bytes)
    }

    fn table<T: FromBytes + Immutable + KnownLayout + Unaligned + Clone>(
        &mut self,
        count: u32,
    ) -> Result<Vec<T>> {
        let len = u64::from(count).saturating_mul(size_of::<T>() as u64);
        let bytes = self.bytes(len)?;
        // The length is a multiple of the record's, and records need no alignment.
        Ok(<[T]>::ref_from_bytes(&bytes).map(<[T]>::to_vec).unwrap_or_default())
    }
}

impl Patch {
    /// Opens the patch in the file `path`, and makes sure that it is whole.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Patch`] for a file that is no patch, or a damaged one.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(Box::new(FileSource::open(path, 0)?))
    }

    /// Opens a patch that is anywhere.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn new(source: Box<dyn Source>) -> Result<Self> {
        let fault = |fault| Err(Error::Patch(fault));
        let found = source.size();
        if found < (size_of::<RawHeader>() + size_of::<Digest>()) as u64 {
            let mut start = [0; 8];
            let is_cut = found >= 8 && source.read_exact_at(0, &mut start).is_ok() && start == MAGIC;
            let expected = size_of::<RawHeader>() as u64;
            return fault(if is_cut {
                PatchFault::Length { expected, found }
            } else {
                PatchFault::NotAPatch
            });
        }
        let mut cursor = Cursor { source: &*source, at: 0, end: found };
        let bytes = cursor.bytes(size_of::<RawHeader>() as u64)?;
        let Ok(raw) = RawHeader::read_from_bytes(&bytes) else { return fault(PatchFault::NotAPatch) };
        if raw.magic != MAGIC {
            return fault(PatchFault::NotAPatch);
        }
        if raw.version.get() != VERSION {
            return fault(PatchFault::Version(raw.version.get()));
        }
        if raw.file_len.get() != found {
            return fault(PatchFault::Length { expected: raw.file_len.get(), found });
        }
        check_digest(&*source)?;
        cursor.end = found - size_of::<Digest>() as u64;
        let root_len = raw.root_len.get();
        if root_len as usize > ROOT_MAX {
            return fault(PatchFault::Malformed("the root's inode is too long"));
        }
        let root = cursor.bytes(root_len.into())?;
        let pieces: Vec<RawPiece> = cursor.table(raw.pieces.get())?;
        let references: Vec<RawReference> = cursor.table(raw.references.get())?;
        let changes = (cursor.at, raw.changes_len.get(), raw.changes_decoded.get());
        let payload = cursor.at.checked_add(changes.1).filter(|payload| *payload <= cursor.end);
        let payload =
            payload.ok_or(Error::Patch(PatchFault::Malformed("a table is longer than the file")))?;
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
        };
        let end = cursor.end;
        let patch = Self { source, header, pieces, references, changes, payload, file_len: found };
        patch.check_sums(end)?;
        Ok(patch)
    }

    /// What is said more than once must agree.
    fn check_sums(&self, end: u64) -> Result<()> {
        let fault = |what| Err(Error::Patch(PatchFault::Malformed(what)));
        let header = &self.header;
        let (mut len, mut stored, mut references) = (0u64, 0u64, 0u64);
        for piece in &self.pieces {
            len = len.saturating_add(piece.len.get().into());
            stored = stored.saturating_add(piece.stored_len.get().into());
            references = references.saturating_add(piece.references.get().into());
            if piece.len.get() as usize > PIECE_MAX || piece.stored_len.get() as usize > 2 * PIECE_MAX {
                return fault("a piece is too long");
            }
        }
        if header.base_size.checked_add(len) != Some(header.result_size) {
            return fault("its pieces do not lead from the base's size to the result's");
        }
        if self.payload.checked_add(stored) != Some(end) || references != self.references.len() as u64 {
            return fault("its pieces are not where they should be");
        }
        let ends = |pos: u64, len: u64| pos.checked_add(len);
        for reference in &self.references {
            if ends(reference.pos.get(), reference.len.get().into()).is_none_or(|end| end > header.base_size)
            {
                return fault("it refers to bytes past the base's end");
            }
        }
        if let Some((pos, bytes)) = &header.root
            && (*pos < first_slot(&header.base_sector)
                || ends(*pos, bytes.len() as u64).is_none_or(|end| end > header.base_size))
        {
            return fault("the root's inode is outside of the base");
        }
        if self.changes.2 > CHANGES_MAX {
            return fault("its list of changes is too long");
        }
        Ok(())
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The UUID of the image that it is for.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.header.uuid
    }

    /// The number of the state that it is for: see [`super::log`].
    #[must_use]
    pub const fn base_state(&self) -> u64 {
        self.header.base_state
    }

    /// Bytes of the image that it is for.
    #[must_use]
    pub const fn base_size(&self) -> u64 {
        self.header.base_size
    }

    /// The digest of the image that it is for: see docs/PATCH.md.
    #[must_use]
    pub const fn base_digest(&self) -> [u8; 32] {
        self.header.base_digest
    }

    /// Bytes of the patched image.
    #[must_use]
    pub const fn result_size(&self) -> u64 {
        self.header.result_size
    }

    /// The digest of the patched image.
    #[must_use]
    pub const fn result_digest(&self) -> [u8; 32] {
        self.header.result_digest
    }

    /// When it was made, in seconds since 1970.
    #[must_use]
    pub const fn time(&self) -> i64 {
        self.header.time
    }

    /// Bytes of content that it appends to the image, encoded.
    #[must_use]
    pub const fn content_len(&self) -> u64 {
        self.header.content_len
    }

    /// Bytes of metadata that it appends to the image.
    #[must_use]
    pub const fn metadata_len(&self) -> u64 {
        self.header.metadata_len
    }

    /// The superblocks before and after.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for one that is none.
    pub fn superblocks(&self) -> Result<[ferofs_format::superblock::Superblock; 2]> {
        use ferofs_read::error::Locate;
        let pos = ferofs_format::BytePos::new(super::sector::SECTOR_POS);
        let parse = |sector| ferofs_format::superblock::Superblock::parse(sector).located_at(pos);
        Ok([parse(&self.header.base_sector)?, parse(&self.header.sector)?])
    }

    /// What it changes, and what each costs.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Patch`].
    pub fn changes(&self) -> Result<Vec<Change>> {
        let (at, len, decoded_len) = self.changes;
        let malformed = || Error::Patch(PatchFault::Malformed("its list of changes is none"));
        let stored = Cursor { source: &*self.source, at, end: self.payload }.bytes(len)?;
        let mut list = Vec::new();
        let decoder = zstd::stream::read::Decoder::new(&stored[..]).map_err(|_| malformed())?;
        decoder.take(decoded_len.saturating_add(1)).read_to_end(&mut list).map_err(|_| malformed())?;
        if list.len() as u64 != decoded_len {
            return Err(malformed());
        }
        let mut changes = Vec::new();
        let mut rest = &list[..];
        while !rest.is_empty() {
            let (raw, after) = RawChange::ref_from_prefix(rest).map_err(|_| malformed())?;
            let (path, after) = after.split_at_checked(raw.path_len.get() as usize).ok_or_else(malformed)?;
            let kind = ChangeKind::ALL.get(raw.kind.get() as usize).copied().ok_or_else(malformed)?;
            changes.push(Change { kind, path: path.to_vec(), bytes: raw.bytes.get() });
            rest = after;
        }
        Ok(changes)
    }

    /// Gives `each` what is to be appended to `base`, part by part.
    pub(crate) fn region(
        &self,
        base: &dyn Source,
        cancel: &AtomicBool,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = Cursor { source: &*self.source, at: self.payload, end: self.file_len };
        let mut references = self.references.iter();
        let (mut prefix, mut decoded) = (Vec::new(), Vec::new());
        for piece in &self.pieces {
            if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let stored = cursor.bytes(piece.stored_len.get().into())?;
            prefix.clear();
            for reference in references.by_ref().take(piece.references.get() as usize) {
                read_reference(base, reference.pos.get(), reference.len.get(), &mut prefix)?;
            }
            if piece.encoding.get() == 0 {
                decoded.clone_from(&stored);
            } else {
                decode(&stored, &prefix, piece.len.get() as usize, &mut decoded)?;
            }
            if decoded.len() != piece.len.get() as usize {
                return Err(Error::Patch(PatchFault::Malformed("a piece has another length")));
            }
            each(&decoded)?;
        }
        Ok(())
    }
}

/// Where the bytes end that the superblock's checksum covers.
fn first_slot(sector: &Sector) -> u64 {
    let superblock = ferofs_format::superblock::Superblock::parse(sector);
    superblock.map_or(SECTOR_POS + SECTOR as u64, |superblock| covered_end(&superblock))
}

/// Appends a range of the base to `prefix`.
pub(crate) fn read_reference(base: &dyn Source, pos: u64, len: u32, prefix: &mut Vec<u8>) -> Result<()> {
    let start = prefix.len();
    let end = start + len as usize;
    if end > REFERENCES_MAX {
        return Err(Error::Patch(PatchFault::Malformed("a piece refers to too much")));
    }
    prefix.resize(end, 0);
    let have = base.size().saturating_sub(pos).min(len.into()) as usize;
    if have == 0 {
        return Ok(());
    }
    let present = &mut prefix[start..start + have];
    base.read_exact_at(pos, present).map_err(|e| Error::io_unnamed("read the image", e))
}

fn decode(stored: &[u8], prefix: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    let malformed = |_| Error::Patch(PatchFault::Malformed("a piece cannot be decoded"));
    out.clear();
    let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(stored, prefix).map_err(malformed)?;
    decoder.window_log_max(25).map_err(malformed)?;
    decoder.take(len as u64 + 1).read_to_end(out).map_err(malformed)?;
    Ok(())
}

/// Compresses `bytes` against `prefix`.
pub(crate) fn encode(bytes: &[u8], prefix: &[u8], level: i32) -> std::io::Result<Option<Vec<u8>>> {
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), level, prefix)?;
    let window = (bytes.len() + prefix.len()).next_power_of_two().trailing_zeros().clamp(16, 25);
    encoder.window_log(window)?;
    encoder.long_distance_matching(prefix.len() > 1 << 20)?;
    encoder.write_all(bytes)?;
    let out = encoder.finish()?;
    Ok((out.len() < bytes.len()).then_some(out))
}

fn check_digest(source: &dyn Source) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    let covered = source.size() - size_of::<Digest>() as u64;
    let mut buffer = vec![0; HASH_AT_ONCE];
    let mut at = 0;
    let io = |e| Error::io_unnamed("read the patch", e);
    while at < covered {
        let len = (covered - at).min(HASH_AT_ONCE as u64) as usize;
        source.read_exact_at(at, &mut buffer[..len]).map_err(io)?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    let mut expected = [0; 32];
    source.read_exact_at(covered, &mut expected).map_err(io)?;
    if *hasher.finalize().as_bytes() == expected { Ok(()) } else { Err(Error::Patch(PatchFault::Damaged)) }
}
