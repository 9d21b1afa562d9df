//! The patch file: a header, tables, the list of changed files, and the appended bytes in
//! compressed pieces, and how it is written. Layout: docs/PATCH_FORMAT.md.

pub mod change;
pub(crate) mod columns;
pub mod delta_file;
pub mod delta_memory;
pub mod header;
pub mod piece;
pub mod plan;
pub mod prediction;
pub(crate) mod reader;
pub mod reencode;
pub(crate) mod start;

use ferofs_codec::Params;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::error::{Error, PatchFault, Result};
use crate::format::change::Change;
use crate::format::columns::compress;
use crate::format::header::{
    COMPRESSED, HEADER_MAX, Header, MAGIC, METADATA, RawHeader, RawMethod, RawPiece, RawStart,
    VERSION,
};
use crate::format::piece::{Piece, PieceKind};
use crate::image::digest::Digest;
use ferofs_format::units::to_u64;

/// Zstandard's level for the header: it is short, so size counts more than speed.
const LEVEL: i32 = 19;

/// Passes the bytes of a patch file to `out`, and returns their number.
pub fn write<E: From<Error>>(
    header: &Header,
    methods: &[Params],
    pieces: &[Piece],
    changes: &[Change],
    relocations: &[u8],
    mut out: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let (changes, changes_decoded) = change::encode(changes)?;
    let methods: Vec<RawMethod> = methods.iter().map(RawMethod::new).collect();
    let root = header.root.as_ref().map_or(&[][..], |(_, bytes)| bytes);
    let pieces_table = pieces.iter().map(raw_piece).collect::<Result<Vec<_>>>()?;
    let raw = RawHeader {
        pieces: length(pieces.len())?,
        methods: length(methods.len())?,
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
        root_len: length(root.len())?,
        content_len: header.content_len.into(),
        metadata_len: header.metadata_len.into(),
        changes_len: to_u64(changes.len()).into(),
        changes_decoded: changes_decoded.into(),
        relocations_len: to_u64(relocations.len()).into(),
        new_parents: header.new_parents.directories.into(),
        new_parents_bytes: header.new_parents.bytes.into(),
        longest_extent: header.longest_extent.into(),
    };
    let tables = [raw.as_bytes(), root, methods.as_bytes(), pieces_table.as_bytes()].concat();
    if tables.len() > HEADER_MAX {
        return Err(Error::Patch(PatchFault::Malformed("it would have too many pieces")).into());
    }
    let stored = compress(&tables, LEVEL)?;
    let tables = [size_of::<RawStart>(), stored.len(), changes.len(), relocations.len()];
    let payload = pieces.iter().flat_map(|piece| [piece.plan.len(), piece.payload.len()]);
    let parts = tables.into_iter().chain(payload).chain([size_of::<Digest>()]);
    let len = parts.map(to_u64).fold(0, u64::saturating_add);
    let start = RawStart {
        magic: MAGIC,
        version: VERSION.into(),
        header_len: length(stored.len())?,
        file_len: len.into(),
    };
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        out(bytes)
    };
    put(start.as_bytes())?;
    put(&stored)?;
    put(&changes)?;
    put(relocations)?;
    for piece in pieces {
        put(&piece.plan)?;
        put(&piece.payload)?;
    }
    out(hasher.finalize().as_bytes())?;
    Ok(len)
}

fn raw_piece(piece: &Piece) -> Result<RawPiece> {
    let metadata = if piece.kind == PieceKind::Metadata { METADATA } else { 0 };
    Ok(RawPiece {
        region_len: length(piece.region_len)?,
        payload_len: length(piece.payload_len)?,
        plan_stored: length(piece.plan.len())?,
        payload_stored: length(piece.payload.len())?,
        flags: (metadata | if piece.compressed { COMPRESSED } else { 0 }).into(),
        delta_len: length(piece.delta_len)?,
        digest: piece.digest,
    })
}

/// A length or a number for a field of 32 bits.
fn length(len: usize) -> Result<U32> {
    let len =
        u32::try_from(len).map_err(|_| PatchFault::Malformed("a part of it would be too long"))?;
    Ok(len.into())
}
