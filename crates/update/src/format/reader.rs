//! Reads a patch file. Nothing in it is used before the digest of the whole file was checked.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ferofs_codec::{Params, codec};
use ferofs_format::BytePos;
use ferofs_format::superblock::Superblock;
use ferofs_read::error::Locate;
use ferofs_read::{FileSource, Image, Source};
use zerocopy::IntoBytes;

use super::change::{self, CHANGES_MAX, Change, NewParents};
use super::header::{COMPRESSED, Header, MAGIC, METADATA, RawPiece};
use super::piece::base::Base;
use super::piece::delta::DELTA_MAX;
use super::piece::{Buffers, PAYLOAD_MAX, REGION_MAX, StoredPiece};
use super::plan::{PLAN_MAX, Plan};
use super::prediction::{LIST_MAX, Prediction, Relocations};
use super::reencode::Encoders;
use super::start::{self, Cursor, Start};
use crate::error::{Error, PatchFault, Result};
use crate::format::header::RawMethod;
use crate::image::digest::{Digest, PieceDigest, hash_range};
use crate::image::{SECTOR_END, SECTOR_POS, Sector, covered_end};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a stored piece at most: Zstandard makes no payload and no plan much longer.
const STORED_MAX: usize = 4 * PAYLOAD_MAX;

/// What makes up the size of a patch file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeParts {
    /// Data of files.
    pub content: u64,
    /// Inodes, indexes and directories, with inline tails, and the old inodes that they resemble.
    pub metadata: u64,
    /// How content is encoded again, and what it is compressed against.
    pub plans: u64,
    /// The list of changed files.
    pub changes: u64,
    /// The header, the tables and the digest.
    pub header: u64,
}

/// An open patch. Its file is complete and undamaged.
pub struct Patch {
    source: Arc<dyn Source>,
    header: Header,
    methods: Vec<RawMethod>,
    pieces: Vec<RawPiece>,
    /// The list of changes: position, length, and decoded length.
    changes: (u64, u64, u64),
    /// The position of the list of relocated inodes, which ends where the pieces start.
    relocations: u64,
    /// The position of the pieces.
    payload: u64,
    file_len: u64,
    digest: Digest,
}

impl std::fmt::Debug for Patch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patch").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Patch {
    /// Opens the patch in the file `path`, and checks its length and checksum.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Patch`] for a file that is not a patch, or a damaged one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Box::new(FileSource::open(path, 0)?))
    }

    /// Opens the patch in `source`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn new(source: Box<dyn Source>) -> Result<Self> {
        let found = source.size();
        let fixed = Start::fixed(&*source)?;
        let expected = fixed.file_len.get();
        if expected != found {
            let mut next = [0; MAGIC.len()];
            let is_followed = expected < found
                && source.read_exact_at(expected, &mut next).is_ok()
                && next == MAGIC;
            return Err(Error::Patch(match is_followed {
                true => PatchFault::Several,
                false => PatchFault::Length { expected, found },
            }));
        }
        let digest = check_digest(&*source, fixed.as_bytes())?;
        let start = Start::after(&fixed, &*source)?;
        let end = digest_pos(found);
        let too_long = || Error::Patch(PatchFault::Malformed("a table is longer than the file"));
        let after = |at: u64, len: u64| {
            at.checked_add(len).filter(|after| *after <= end).ok_or_else(too_long)
        };
        let changes = (start.len, start.changes_len, start.changes_decoded);
        let relocations = after(start.len, start.changes_len)?;
        let payload = after(relocations, start.relocations_len)?;
        let Start { header, methods, pieces, .. } = start;
        let source = Arc::from(source);
        let patch = Self {
            source,
            header,
            methods,
            pieces,
            changes,
            relocations,
            payload,
            file_len: found,
            digest,
        };
        patch.check_lengths(end)?;
        Ok(patch)
    }

    /// The digest of the patch: BLAKE3 of its file without the last 32 bytes, which hold it. It
    /// covers the digest of the result, with which [`crate::apply`] compares the image before the
    /// change becomes visible. So a signature of it covers the change.
    #[must_use]
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Checks that lengths and positions agree, and are within limits.
    fn check_lengths(&self, end: u64) -> Result<()> {
        let fault = |what| Err(Error::Patch(PatchFault::Malformed(what)));
        let header = &self.header;
        let (mut len, mut stored) = (0u64, 0u64);
        for piece in &self.pieces {
            len = len.saturating_add(piece.region_len.get().into());
            stored = stored.saturating_add(piece.stored_len());
            if to_usize(piece.payload_len.get()) > PAYLOAD_MAX
                || to_usize(piece.region_len.get()) > REGION_MAX
                || to_usize(piece.stored_len()) > STORED_MAX
                || to_usize(piece.delta_len.get()) > DELTA_MAX
            {
                return fault("a piece is too long");
            }
            if piece.region_len.get() == 0 {
                return fault("a piece is empty");
            }
            if piece.flags.get() & !(METADATA | COMPRESSED) != 0 {
                return fault("a piece has unknown flags");
            }
        }
        if header.base_size.checked_add(len) != Some(header.result_size) {
            return fault("the lengths of its pieces do not add up to the growth of the image");
        }
        if self.payload.checked_add(stored) != Some(end) {
            return fault("the lengths of its pieces are wrong");
        }
        if let Some((pos, bytes)) = &header.root
            && (*pos < first_slot(&header.base_sector)
                || pos.checked_add(to_u64(bytes.len())).is_none_or(|end| end > header.base_size))
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

    /// The UUID of the image that the patch is for.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.header.uuid
    }

    /// The number of the state that the patch is for: see [`log`](crate::log).
    #[must_use]
    pub const fn base_state(&self) -> u64 {
        self.header.base_state
    }

    /// Bytes of the image that the patch is for.
    #[must_use]
    pub const fn base_size(&self) -> u64 {
        self.header.base_size
    }

    /// The digest of the image that the patch is for: see docs/PATCH_FORMAT.md.
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

    /// When the patch was made, in seconds since 1970.
    #[must_use]
    pub const fn time(&self) -> i64 {
        self.header.time
    }

    /// Bytes of encoded content that the patch appends to the image.
    #[must_use]
    pub const fn content_len(&self) -> u64 {
        self.header.content_len
    }

    /// Bytes of metadata that the patch appends to the image.
    #[must_use]
    pub const fn metadata_len(&self) -> u64 {
        self.header.metadata_len
    }

    /// The superblocks before and after the patch.
    ///
    /// # Errors
    /// [`Error::Read`] if one is invalid.
    pub fn superblocks(&self) -> Result<[Superblock; 2]> {
        let pos = BytePos::new(SECTOR_POS);
        let parse = |sector| Superblock::parse(sector).located_at(pos);
        Ok([parse(&self.header.base_sector)?, parse(&self.header.sector)?])
    }

    /// The changed files, and the bytes that each adds to the image.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Patch`].
    pub fn changes(&self) -> Result<Vec<Change>> {
        let (at, len, decoded_len) = self.changes;
        let stored = Cursor { source: &*self.source, at, end: self.relocations }.bytes(len)?;
        change::decode(&stored, decoded_len)
    }

    /// Directories that get a new inode only because `..` changes. They are not among the
    /// [changes](Self::changes).
    #[must_use]
    pub const fn new_parents(&self) -> NewParents {
        self.header.new_parents
    }

    /// What makes up the size of the file.
    #[must_use]
    pub fn size_parts(&self) -> SizeParts {
        let mut parts = SizeParts::default();
        for piece in &self.pieces {
            let payload = u64::from(piece.payload_stored.get());
            let part = if piece.flags.get() & METADATA == 0 {
                &mut parts.content
            } else {
                &mut parts.metadata
            };
            *part = part.saturating_add(payload);
            parts.plans = parts.plans.saturating_add(piece.plan_stored.get().into());
        }
        parts.metadata =
            parts.metadata.saturating_add(self.payload.saturating_sub(self.relocations));
        parts.changes = self.changes.1;
        let known = [parts.content, parts.metadata, parts.plans, parts.changes];
        parts.header = known.iter().fold(self.file_len, |rest, part| rest.saturating_sub(*part));
        parts
    }

    /// The parameters of all methods; `None` for those that this program does not have.
    pub(crate) fn known_methods(&self) -> Vec<Option<Params>> {
        self.methods.iter().map(|method| method.params().ok()).collect()
    }

    /// Passes the sizes of each piece and its plan to `each`. The sizes are bytes of the piece as
    /// stored, of the decoded plan, of the delta, of the payload, and those that it appends.
    pub(crate) fn each_plan(&self, mut each: impl FnMut([u64; 5], &Plan)) -> Result<()> {
        let mut cursor = Cursor { source: &*self.source, at: self.payload, end: self.file_len };
        for piece in &self.pieces {
            let (decoded_len, plan) =
                Plan::decode(&cursor.bytes(piece.plan_stored.get().into())?, PLAN_MAX)?;
            cursor.at = cursor.at.saturating_add(piece.payload_stored.get().into());
            let [delta, payload, region] =
                [piece.delta_len, piece.payload_len, piece.region_len].map(|len| len.get().into());
            each([piece.stored_len(), decoded_len, delta, payload, region], &plan);
        }
        Ok(())
    }

    /// The list of relocated inodes.
    pub(crate) fn relocations(&self) -> Result<Relocations> {
        let mut relocations =
            Cursor { source: &*self.source, at: self.relocations, end: self.payload };
        let len = self.payload.saturating_sub(self.relocations);
        if to_usize(len) > LIST_MAX {
            return Err(Error::Patch(PatchFault::Malformed(
                "its list of relocated inodes is too long",
            )));
        }
        Relocations::decode(&relocations.bytes(len)?)
    }

    /// Decodes the pieces of the appended bytes. The base is `image`, with the bytes `base`.
    /// Up to `threads` threads read and encode.
    pub(crate) fn pieces<S: Source>(
        &self,
        base: S,
        image: &Image,
        threads: usize,
    ) -> Result<PieceDecoder<S>> {
        let methods = self.methods.iter().map(RawMethod::params).collect::<Result<Vec<_>>>()?;
        let is_small = methods.iter().all(|params| codec(params.algorithm).has_small_tables);
        let encoders = if is_small { threads.max(1) } else { 1 };
        let prediction = self.header.predict(self.relocations()?, image, &base)?;
        let mut at = self.payload;
        let pieces = self.pieces.iter().map(|piece| {
            let start = at;
            at = at.saturating_add(piece.stored_len());
            (start, *piece)
        });
        Ok(PieceDecoder {
            source: Arc::clone(&self.source),
            pieces: pieces.collect(),
            encoders: (0..encoders).map(|_| Encoders::new(&methods)).collect(),
            threads,
            base,
            base_size: self.header.base_size,
            longest_extent: self.header.longest_extent.into(),
            image: image.clone(),
            prediction,
            buffers: Buffers::default(),
        })
    }

    /// The positions in the result of the bytes that each piece appends, and their digest.
    pub(crate) fn appended(&self) -> impl Iterator<Item = (Range<u64>, PieceDigest)> + '_ {
        start::appended(&self.header, &self.pieces)
    }

    /// Checks that this program has the encoders that the patch needs.
    pub(crate) fn check_encoders(&self) -> Result<()> {
        self.methods.iter().try_for_each(|method| method.params().map(drop))
    }
}

/// Makes the bytes that the pieces of a patch append, in any order.
pub(crate) struct PieceDecoder<S> {
    /// The patch file.
    source: Arc<dyn Source>,
    /// The pieces, and their positions in the patch file.
    pieces: Vec<(u64, RawPiece)>,
    /// One for each thread that encodes.
    encoders: Vec<Encoders>,
    /// The number of threads that read the base.
    threads: usize,
    base: S,
    base_size: u64,
    longest_extent: u64,
    image: Image,
    prediction: Prediction,
    buffers: Buffers,
}

impl<S: Source> PieceDecoder<S> {
    /// Puts the bytes that piece `number` appends into `region`. `check` is called between units,
    /// and can end this.
    pub(crate) fn decode(
        &mut self,
        number: usize,
        region: &mut Vec<u8>,
        check: impl Fn() -> Result<()> + Sync,
    ) -> Result<()> {
        region.clear();
        let Some((at, piece)) = self.pieces.get(number) else { return Ok(()) };
        let mut cursor =
            Cursor { source: &*self.source, at: *at, end: at.saturating_add(piece.stored_len()) };
        let (_, plan) = Plan::decode(&cursor.bytes(piece.plan_stored.get().into())?, PLAN_MAX)?;
        let payload = cursor.bytes(piece.payload_stored.get().into())?;
        let stored = StoredPiece {
            plan: &plan,
            payload: &payload,
            payload_len: to_usize(piece.payload_len.get()),
            region_len: to_usize(piece.region_len.get()),
            compressed: piece.flags.get() & COMPRESSED != 0,
            delta_len: to_usize(piece.delta_len.get()),
        };
        let base = Base {
            source: &self.base,
            size: self.base_size,
            image: &self.image,
            prediction: Some(&self.prediction),
            threads: self.threads,
            longest_extent: self.longest_extent,
        };
        stored.decode(&base, &mut self.encoders, &mut self.buffers, region, check)
    }

    /// Frees the memory that is kept for the next piece.
    pub(crate) fn release(&mut self) {
        self.buffers = Buffers::default();
        self.encoders.iter_mut().for_each(Encoders::release);
    }

    /// Reads the files of the base through `image` from now on.
    pub(crate) fn set_image(&mut self, image: &Image) {
        self.prediction.set_image(image);
        self.image = image.clone();
    }
}

impl RawPiece {
    fn stored_len(&self) -> u64 {
        u64::from(self.plan_stored.get()).saturating_add(self.payload_stored.get().into())
    }
}

/// The first position where a root inode can be: after the bytes that the superblock's checksum
/// covers.
fn first_slot(sector: &Sector) -> u64 {
    let superblock = Superblock::parse(sector);
    superblock.map_or(SECTOR_END, |superblock| covered_end(&superblock))
}

/// The position of the digest in a file of `len` bytes.
fn digest_pos(len: u64) -> u64 {
    len.saturating_sub(to_u64(size_of::<Digest>()))
}

/// Compares the digest at the end of the file with that of all bytes before it.
fn check_digest(source: &dyn Source, header: &[u8]) -> Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let covered = digest_pos(source.size());
    // As it was read: somebody may change the file meanwhile.
    hasher.update(header);
    let io = |e| Error::io_unnamed("read the patch", e);
    hash_range(source, to_u64(header.len())..covered, &mut hasher).map_err(io)?;
    let mut expected = [0; 32];
    source.read_exact_at(covered, &mut expected).map_err(io)?;
    if *hasher.finalize().as_bytes() == expected {
        Ok(expected)
    } else {
        Err(Error::Patch(PatchFault::Damaged))
    }
}
