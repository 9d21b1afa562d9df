//! Writes a patch file.

use zerocopy::IntoBytes;

use super::change::{self, Change};
use super::header::{Header, MAGIC, RawHeader, RawPiece, RawReference, VERSION};
use super::piece::Piece;
use crate::error::Result;
use crate::patch::image::digest::Digest;

/// Passes the bytes of a patch file to `out`, and returns their number.
pub(crate) fn write(
    header: &Header,
    pieces: &[Piece],
    changes: &[Change],
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let (changes, changes_decoded) = change::encode(changes)?;
    let references: usize = pieces.iter().map(|piece| piece.references.len()).sum();
    let root = header.root.as_ref().map_or(&[][..], |(_, bytes)| bytes);
    let payload: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let len = size_of::<RawHeader>()
        + root.len()
        + size_of_val(pieces_table(pieces).as_slice())
        + references * size_of::<RawReference>()
        + changes.len()
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
        changes_len: (changes.len() as u64).into(),
        changes_decoded: changes_decoded.into(),
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
    put(&changes)?;
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
