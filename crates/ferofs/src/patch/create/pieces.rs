//! Compresses the appended bytes for the patch file, in pieces, each with similar bytes of the base as dictionary.

use std::ops::Range;

use super::similar::SimilarRanges;
use crate::error::{Error, Result};
use crate::patch::format::piece::{PIECE_MAX, Piece, REFERENCES_MAX, encode, read_reference};
use ferofs_build::Options;
use ferofs_read::Source;

/// Zstandard's level up to [`LARGE`] appended bytes, and above. From level 13 on, Zstandard searches with binary trees, which
/// takes seconds when the base is repetitive.
const LEVELS: [i32; 2] = [12, 5];
/// Appended bytes above which speed counts more than size.
const LARGE: u64 = 64 << 20;
/// Bytes between two references up to which they are merged: a reference takes 12 bytes in the file, and each is a read.
const GAP: u64 = 2048;

/// Compresses `region`, which follows the base's `base_size` bytes.
pub(crate) fn compress(
    options: &Options,
    base: &dyn Source,
    base_size: u64,
    region: &dyn Source,
    similar: &[SimilarRanges],
) -> Result<Vec<Piece>> {
    let size = region.size();
    let count = usize::try_from(size.div_ceil(PIECE_MAX as u64)).unwrap_or(usize::MAX);
    let level = LEVELS[usize::from(size > LARGE)];
    options.run.parallel(count, Vec::new, |prefix: &mut Vec<u8>, number| {
        let start = number as u64 * PIECE_MAX as u64;
        let len = (size - start).min(PIECE_MAX as u64) as usize;
        let mut bytes = vec![0; len];
        region.read_exact_at(start, &mut bytes).map_err(|e| Error::io_unnamed("read a temporary file", e))?;
        let place = base_size + start..base_size + start + len as u64;
        let references = references(similar, &place, base_size);
        prefix.clear();
        for (pos, len) in &references {
            read_reference(base, *pos, *len, prefix)?;
        }
        let encoded = encode(&bytes, prefix, level).map_err(|e| Error::io_unnamed("compress", e))?;
        Ok(match encoded {
            Some(encoded) => Piece { len, encoded: true, bytes: encoded, references },
            None => Piece { len, encoded: false, bytes, references: Vec::new() },
        })
    })
}

/// The ranges of the base that resemble the bytes at `place`, up to [`REFERENCES_MAX`] bytes.
fn references(similar: &[SimilarRanges], place: &Range<u64>, base_size: u64) -> Vec<(u64, u32)> {
    let touching =
        similar.iter().filter(|ranges| ranges.new.start < place.end && place.start < ranges.new.end);
    let mut ranges: Vec<(u64, u64)> = touching.flat_map(|ranges| ranges.old.iter().copied()).collect();
    merge(&mut ranges, GAP);
    let mut left = REFERENCES_MAX as u64;
    let mut references = Vec::new();
    for (start, end) in ranges {
        let len = end.min(base_size).saturating_sub(start).min(left);
        left -= len;
        if len > 0 {
            references.push((start, len as u32));
        }
    }
    references
}

/// Sorts ranges, and merges those with at most `gap` bytes between them.
fn merge(ranges: &mut Vec<(u64, u64)>, gap: u64) {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.drain(..) {
        match merged.last_mut() {
            Some(last) if start <= last.1.saturating_add(gap) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}
