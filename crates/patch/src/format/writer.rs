//! Writes a patch file.

use ferofs_codec::Params;
use zerocopy::IntoBytes;

use super::change::{self, Change};
use super::columns::compress;
use super::header::{
    COMPRESSED, HEADER_MAX, Header, MAGIC, METADATA, RawHeader, RawPiece, RawStart, VERSION,
};
use super::method::RawMethod;
use super::piece::{Piece, PieceKind};
use crate::error::{Error, PatchFault, Result};
use crate::image::digest::Digest;

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
    let raw = RawHeader {
        pieces: (pieces.len() as u32).into(),
        methods: (methods.len() as u32).into(),
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
        content_len: header.content_len.into(),
        metadata_len: header.metadata_len.into(),
        changes_len: (changes.len() as u64).into(),
        changes_decoded: changes_decoded.into(),
        relocations_len: (relocations.len() as u64).into(),
        new_parents: header.new_parents.directories.into(),
        new_parents_bytes: header.new_parents.bytes.into(),
        longest_extent: header.longest_extent.into(),
    };
    let tables = [raw.as_bytes(), root, methods.as_bytes(), pieces_table(pieces).as_bytes()].concat();
    if tables.len() > HEADER_MAX {
        return Err(Error::Patch(PatchFault::Malformed("it would have too many pieces")).into());
    }
    let stored = compress(&tables, LEVEL)?;
    let payload: usize = pieces.iter().map(|piece| piece.plan.len() + piece.payload.len()).sum();
    let len = size_of::<RawStart>()
        + stored.len()
        + changes.len()
        + relocations.len()
        + payload
        + size_of::<Digest>();
    let start = RawStart {
        magic: MAGIC,
        version: VERSION.into(),
        header_len: (stored.len() as u32).into(),
        file_len: (len as u64).into(),
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
    Ok(len as u64)
}

fn pieces_table(pieces: &[Piece]) -> Vec<RawPiece> {
    let raw = |piece: &Piece| {
        let metadata = if piece.kind == PieceKind::Metadata { METADATA } else { 0 };
        RawPiece {
            region_len: (piece.region_len as u32).into(),
            payload_len: (piece.payload_len as u32).into(),
            plan_stored: (piece.plan.len() as u32).into(),
            payload_stored: (piece.payload.len() as u32).into(),
            flags: (metadata | if piece.compressed { COMPRESSED } else { 0 }).into(),
            delta_len: (piece.delta_len as u32).into(),
            digest: piece.digest,
        }
    };
    pieces.iter().map(raw).collect()
}
