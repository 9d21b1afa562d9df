//! The pieces of a patch file: parts of the appended bytes, each compressed alone, with bytes of the base as dictionary.

use std::io::{Read, Write};

use ferofs_read::Source;

use crate::error::{Error, PatchFault, Result};

/// Bytes of a decoded piece at most. Smaller pieces find fewer repetitions; larger ones need more memory per worker.
pub(crate) const PIECE_MAX: usize = 4 << 20;
/// Bytes of a piece's dictionary at most, for the same reason. A patch that refers to more is malformed.
pub(crate) const REFERENCES_MAX: usize = 16 << 20;
/// Zstandard's window for a piece with its dictionary: log2 of 32 MiB, the next power of two of both limits. A frame with a
/// larger window is malformed.
const WINDOW_LOG_MAX: u32 = 25;
/// The smallest window: smaller ones save no memory that counts.
const WINDOW_LOG_MIN: u32 = 16;
/// Bytes of a dictionary from which on long-distance matching pays.
const LONG_DISTANCE_MIN: usize = 1 << 20;

/// A part of the appended bytes.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Bytes when decoded.
    pub(crate) len: usize,
    /// Whether it is compressed.
    pub(crate) encoded: bool,
    /// The bytes as stored in the patch.
    pub(crate) bytes: Vec<u8>,
    /// Ranges (position, length) of the base, one after the other the dictionary that it is compressed with.
    pub(crate) references: Vec<(u64, u32)>,
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

/// Decodes a compressed piece of `len` bytes into `out`.
pub(super) fn decode(stored: &[u8], prefix: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    let malformed = |_| Error::Patch(PatchFault::Malformed("a piece cannot be decoded"));
    out.clear();
    let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(stored, prefix).map_err(malformed)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(malformed)?;
    decoder.take(len as u64 + 1).read_to_end(out).map_err(malformed)?;
    Ok(())
}

/// Compresses `bytes` with `prefix` as dictionary; `None` if that does not make them shorter.
pub(crate) fn encode(bytes: &[u8], prefix: &[u8], level: i32) -> std::io::Result<Option<Vec<u8>>> {
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), level, prefix)?;
    let window = (bytes.len() + prefix.len())
        .next_power_of_two()
        .trailing_zeros()
        .clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
    encoder.window_log(window)?;
    encoder.long_distance_matching(prefix.len() > LONG_DISTANCE_MIN)?;
    encoder.write_all(bytes)?;
    let out = encoder.finish()?;
    Ok((out.len() < bytes.len()).then_some(out))
}
