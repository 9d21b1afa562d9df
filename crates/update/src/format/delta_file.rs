//! The file of an exact delta: a header, and pieces that make the new image from its first byte to
//! its last. A piece has the plan and the payload of a [patch's piece](super::piece), and copies of
//! the old image between the bytes that these make. Layout: docs/PATCH_FORMAT.md.

use std::io::Read;

use ferofs_codec::Params;
use ferofs_format::units::{to_u64, to_usize};
use ferofs_verity::{SUPERBLOCK_SIZE, Superblock as VeritySuperblock};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::columns::{ColumnReader, Columns, compress, decompress};
use super::header::{COMPRESSED, HEADER_MAX, METHODS_MAX, RawMethod};
use super::piece::REGION_MAX;
use super::piece::delta::DELTA_MAX;
use super::prediction::Relocations;
use crate::error::{Error, PatchFault, Result};
use crate::image::digest::{Digest, PieceDigest};

const MAGIC: [u8; 8] = *b"ferofsdl";
const VERSION: u32 = 4;
/// Zstandard's level for the header and lists of copies: they are short, so size counts more than
/// speed.
const LEVEL: i32 = 19;
/// Bytes of the new image that have a digest of their own. They are compared before they are
/// written.
pub const CHUNK: usize = 1 << 20;
/// Bytes of a hash tree at most that a delta leaves to be computed: it is held in memory. A header
/// with a longer one is malformed.
pub const TREE_MAX: u64 = 8 << 20;
/// Bytes of content of the longest extent that a piece encodes again: as many as an extent can
/// have.
pub const EXTENT_MAX: usize = 12 << 20;
/// Bytes of a decoded payload at most: the longest extent, with what its compressor looks ahead,
/// and bytes that are carried.
pub const PAYLOAD_MAX: usize = EXTENT_MAX + (2 << 20);
/// Bytes of a decoded list of copies at most. A longer one is malformed.
const COPIES_LEN_MAX: usize = 1 << 20;
/// Copies of a piece at most, which is as many as `create` makes: they are held in memory. A piece
/// with more is malformed.
pub const COPIES_MAX: usize = 20_000;
/// Bytes of a stored plan at most: as many as `create` can need for a piece.
const PLAN_STORED_MAX: usize = 4 << 20;

/// The first bytes of the file. The header is compressed after them.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawStart {
    magic: [u8; 8],
    version: U32,
    /// Bytes of the header as stored.
    header_len: U32,
    /// BLAKE3 of the stored header, its first half.
    header_digest: PieceDigest,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    old_size: U64,
    old_digest: Digest,
    new_size: U64,
    new_digest: Digest,
    pieces: U32,
    methods: U32,
    longest_extent: U32,
    memory: U64,
    /// Position of the superblock of dm-verity whose tree is computed; 0: none.
    seal: U64,
    root_len: U32,
    /// Bytes of the list of relocated inodes; 0: no metadata is predicted.
    relocations_len: U32,
}

/// The lengths of a piece's parts.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPiece {
    copies_stored: U32,
    plan_stored: U32,
    payload_stored: U32,
    payload_len: U32,
    made_len: U32,
    delta_len: U32,
    /// [`COMPRESSED`].
    flags: U32,
}

/// The header of a delta.
#[derive(Clone, Debug)]
pub struct DeltaHeader {
    /// Bytes of the old image.
    pub old_size: u64,
    /// SHA-256 of the old image.
    pub old_digest: Digest,
    /// Bytes of the new image.
    pub new_size: u64,
    /// SHA-256 of the new image.
    pub new_digest: Digest,
    /// The number of pieces.
    pub pieces: u32,
    /// Decoded bytes of the longest extent of the old image that pieces read.
    pub longest_extent: u32,
    /// An upper bound for the memory of a process that applies the delta, in bytes.
    pub memory: u64,
    /// The seal whose hash tree is computed from the new image.
    pub seal: Option<DeltaSeal>,
    /// How metadata of the new image differs from the old one, if that is predicted.
    pub relocations: Option<Relocations>,
    /// The digests of each [`CHUNK`] of the new image.
    pub chunks: Vec<PieceDigest>,
}

/// The seal of the new image, whose hash tree the delta does not carry.
#[derive(Clone, Debug)]
pub struct DeltaSeal {
    /// Its position in the new image.
    pub position: u64,
    /// The superblock at that position.
    pub superblock: VeritySuperblock,
    /// The root of the tree.
    pub root: Vec<u8>,
}

/// Bytes of the old image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Made bytes between the copy before and this one.
    pub after: u64,
    /// The position in the old image.
    pub pos: u64,
    /// Bytes.
    pub len: u64,
}

/// A piece: the bytes that its plan makes from its payload, with copies between them.
#[derive(Clone, Debug, Default)]
pub struct DeltaPiece {
    /// The copies, in the order of the new image.
    pub copies: Vec<Copy>,
    /// The encoded plan; empty if nothing is made.
    pub plan: Vec<u8>,
    /// Bytes of the decoded payload.
    pub payload_len: usize,
    /// Bytes that the plan makes.
    pub made_len: usize,
    /// Whether the payload is compressed.
    pub compressed: bool,
    /// Bytes of the payload as differences; 0: as it is.
    pub delta_len: usize,
    /// The payload as stored.
    pub payload: Vec<u8>,
}

const fn malformed(what: &'static str) -> Error {
    Error::Patch(PatchFault::Malformed(what))
}

fn length(len: usize) -> Result<U32> {
    u32::try_from(len).map(U32::new).map_err(|_| malformed("a part of it would be too long"))
}

impl DeltaHeader {
    /// The start of the file.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`] if the image is too large for a header.
    pub fn encode(&self, methods: &[Params]) -> Result<Vec<u8>> {
        let relocations = self.relocations.as_ref().map_or_else(Vec::new, Relocations::columns);
        let root = self.seal.as_ref().map_or(&[][..], |seal| &seal.root);
        let raw = RawHeader {
            old_size: self.old_size.into(),
            old_digest: self.old_digest,
            new_size: self.new_size.into(),
            new_digest: self.new_digest,
            pieces: self.pieces.into(),
            methods: length(methods.len())?,
            longest_extent: self.longest_extent.into(),
            memory: self.memory.into(),
            seal: self.seal.as_ref().map_or(0, |seal| seal.position).into(),
            root_len: length(root.len())?,
            relocations_len: length(relocations.len())?,
        };
        let methods: Vec<RawMethod> = methods.iter().map(RawMethod::new).collect();
        let mut bytes = [raw.as_bytes(), root].concat();
        if let Some(seal) = &self.seal {
            let superblock = seal.superblock.to_bytes();
            bytes.extend_from_slice(
                &superblock.map_err(|_| malformed("the seal cannot be written"))?,
            );
        }
        bytes.extend_from_slice(methods.as_bytes());
        bytes.extend_from_slice(&relocations);
        bytes.extend_from_slice(self.chunks.as_flattened());
        if bytes.len() > HEADER_MAX {
            return Err(malformed("the new image is too large"));
        }
        let stored = compress(&bytes, LEVEL)?;
        let start = RawStart {
            magic: MAGIC,
            version: VERSION.into(),
            header_len: length(stored.len())?,
            header_digest: digest(&stored),
        };
        Ok([start.as_bytes(), &stored].concat())
    }

    /// Reads the start of a delta. Gives also BLAKE3 of all bytes that were read.
    ///
    /// # Errors
    /// [`PatchFault`], and [`Error::Io`].
    pub(crate) fn read(stream: &mut dyn Read) -> Result<(Self, Vec<RawMethod>, Digest)> {
        let bytes = take(stream, size_of::<RawStart>())?;
        let start = RawStart::read_from_bytes(&bytes).ok().filter(|start| start.magic == MAGIC);
        let start = start.ok_or(Error::Patch(PatchFault::NotADelta))?;
        if start.version.get() != VERSION {
            return Err(Error::Patch(PatchFault::Version(start.version.get())));
        }
        let len = to_usize(start.header_len.get());
        if len > HEADER_MAX {
            return Err(malformed("its header is too long"));
        }
        let stored = take(stream, len)?;
        if stored.len() != len {
            return Err(Error::Patch(PatchFault::CutOff));
        }
        if digest(&stored) != start.header_digest {
            return Err(Error::Patch(PatchFault::Damaged));
        }
        let whole =
            *blake3::Hasher::new().update(start.as_bytes()).update(&stored).finalize().as_bytes();
        let bytes = decompress(&stored, HEADER_MAX, "its header cannot be decoded")?;
        let short = || malformed("its header is too short");
        let (raw, rest) = RawHeader::read_from_prefix(&bytes).map_err(|_| short())?;
        let (root, mut rest) =
            rest.split_at_checked(to_usize(raw.root_len.get())).ok_or_else(short)?;
        let mut seal = None;
        if raw.seal.get() > 0 {
            let (superblock, after) =
                rest.split_first_chunk::<SUPERBLOCK_SIZE>().ok_or_else(short)?;
            let superblock = VeritySuperblock::parse(superblock)
                .map_err(|_| malformed("the superblock of its seal is wrong"))?;
            seal = Some(DeltaSeal { position: raw.seal.get(), superblock, root: root.to_vec() });
            rest = after;
        }
        if raw.methods.get() > METHODS_MAX {
            return Err(malformed("it has too many compression methods"));
        }
        let methods = to_usize(raw.methods.get()).saturating_mul(size_of::<RawMethod>());
        let (methods, rest) = rest.split_at_checked(methods).ok_or_else(short)?;
        let methods = <[RawMethod]>::ref_from_bytes(methods).map_err(|_| short())?.to_vec();
        let (relocations, rest) =
            rest.split_at_checked(to_usize(raw.relocations_len.get())).ok_or_else(short)?;
        let relocations = match relocations {
            [] => None,
            columns => Some(Relocations::of_columns(columns)?),
        };
        let (chunks, rest) = rest.as_chunks::<16>();
        let expected = raw.new_size.get().div_ceil(to_u64(CHUNK));
        if to_u64(chunks.len()) != expected || !rest.is_empty() {
            return Err(malformed("its header has another number of digests"));
        }
        let header = Self {
            old_size: raw.old_size.get(),
            old_digest: raw.old_digest,
            new_size: raw.new_size.get(),
            new_digest: raw.new_digest,
            pieces: raw.pieces.get(),
            longest_extent: raw.longest_extent.get(),
            memory: raw.memory.get(),
            seal,
            relocations,
            chunks: chunks.to_vec(),
        };
        Ok((header, methods, whole))
    }
}

impl DeltaPiece {
    /// The piece as stored.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`] if it is too long.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut columns = Columns::default();
        columns.push(to_u64(self.copies.len()));
        self.copies.iter().for_each(|copy| columns.push(copy.after));
        let mut end = 0u64;
        for copy in &self.copies {
            columns.push_signed(copy.pos.wrapping_sub(end).cast_signed());
            end = copy.pos.wrapping_add(copy.len);
        }
        self.copies.iter().for_each(|copy| columns.push(copy.len));
        if columns.len() > COPIES_LEN_MAX || self.copies.len() > COPIES_MAX {
            return Err(malformed("a piece would have too many copies"));
        }
        let lens = [
            (self.plan.len(), PLAN_STORED_MAX),
            (self.payload.len().max(self.payload_len), PAYLOAD_MAX),
            (self.made_len, REGION_MAX),
            (self.delta_len, DELTA_MAX),
        ];
        if lens.iter().any(|(len, most)| len > most) {
            return Err(malformed("a piece would be too long"));
        }
        let copies = columns.compress(LEVEL)?;
        let raw = RawPiece {
            copies_stored: length(copies.len())?,
            plan_stored: length(self.plan.len())?,
            payload_stored: length(self.payload.len())?,
            payload_len: length(self.payload_len)?,
            made_len: length(self.made_len)?,
            delta_len: length(self.delta_len)?,
            flags: u32::from(self.compressed).saturating_mul(COMPRESSED).into(),
        };
        Ok([raw.as_bytes(), &copies, &self.plan, &self.payload].concat())
    }

    /// Reads the next piece of a delta. `accept` gets the bytes of its plan and payload as stored,
    /// of its delta, of its payload, and those that it makes, before it is read, and can refuse it.
    pub(crate) fn read(
        stream: &mut dyn Read,
        accept: impl FnOnce([usize; 4]) -> Result<()>,
    ) -> Result<Self> {
        let cut = || Error::Patch(PatchFault::CutOff);
        let bytes = take(stream, size_of::<RawPiece>())?;
        let raw = RawPiece::read_from_bytes(&bytes).map_err(|_| cut())?;
        let part = |len: U32, most: usize| {
            Some(to_usize(len.get()))
                .filter(|len| *len <= most)
                .ok_or(malformed("a piece is too long"))
        };
        let payload_len = part(raw.payload_len, PAYLOAD_MAX)?;
        let made_len = part(raw.made_len, REGION_MAX)?;
        let delta_len = part(raw.delta_len, DELTA_MAX)?;
        let stored =
            to_usize(raw.plan_stored.get()).saturating_add(to_usize(raw.payload_stored.get()));
        accept([stored, delta_len, payload_len, made_len])?;
        let mut stored = |len: U32, most| {
            let len = part(len, most)?;
            let bytes = take(stream, len)?;
            if bytes.len() == len { Ok(bytes) } else { Err(cut()) }
        };
        let copies = stored(raw.copies_stored, COPIES_LEN_MAX)?;
        let plan = stored(raw.plan_stored, PLAN_STORED_MAX)?;
        let payload = stored(raw.payload_stored, PAYLOAD_MAX)?;
        let compressed = raw.flags.get() & COMPRESSED != 0;
        let copies = decode_copies(&copies, to_u64(made_len))?;
        Ok(Self { copies, plan, payload_len, made_len, compressed, delta_len, payload })
    }

    /// Bytes of the new image.
    pub(crate) fn len(&self) -> u64 {
        let copied = self.copies.iter().map(|copy| copy.len).fold(0, u64::saturating_add);
        copied.saturating_add(to_u64(self.made_len))
    }
}

/// The copies of a piece that makes `made` bytes.
fn decode_copies(stored: &[u8], made: u64) -> Result<Vec<Copy>> {
    const WRONG: &str = "the copies of a piece are wrong";
    let bytes = decompress(stored, COPIES_LEN_MAX, WRONG)?;
    let mut columns = ColumnReader::new(&bytes, WRONG);
    let count =
        Some(columns.count()?).filter(|count| *count <= COPIES_MAX).ok_or(malformed(WRONG))?;
    let (mut after, mut positions) = (columns.split(count)?, columns.split(count)?);
    let (mut end, mut made_before) = (0u64, 0u64);
    let mut copies = Vec::with_capacity(count);
    for _ in 0..count {
        let copy = Copy {
            after: after.next()?,
            pos: end.wrapping_add(positions.next_signed()?.cast_unsigned()),
            len: columns.next()?,
        };
        made_before = made_before.saturating_add(copy.after);
        end = copy.pos.checked_add(copy.len).filter(|_| copy.len > 0).ok_or(malformed(WRONG))?;
        copies.push(copy);
    }
    columns.finish()?;
    if made_before > made { Err(malformed(WRONG)) } else { Ok(copies) }
}

/// The first half of BLAKE3 of `bytes`, as of a piece of a patch.
#[must_use]
pub fn digest(bytes: &[u8]) -> PieceDigest {
    let mut digest = PieceDigest::default();
    blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut digest);
    digest
}

/// Fails if there are bytes after the last piece.
pub(crate) fn check_end(stream: &mut dyn Read) -> Result<()> {
    if take(stream, 1)?.is_empty() { Ok(()) } else { Err(Error::Patch(PatchFault::BytesAfter)) }
}

/// The next `len` bytes, or those up to the end. Memory is allocated as they come.
fn take(stream: &mut dyn Read, len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = stream.take(to_u64(len)).read_to_end(&mut bytes);
    read.map_err(|e| Error::io_unnamed("read", e))?;
    Ok(bytes)
}
