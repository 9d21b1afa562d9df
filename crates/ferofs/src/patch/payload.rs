//! What is appended, as a patch brings it: cut into pieces, each compressed against what the base has alike.

use std::ops::Range;

use super::file::{PIECE_MAX, Piece, REFERENCES_MAX, encode, read_reference};
use super::survey::merge;
use crate::{Error, Result};
use ferofs_build::Options;
use ferofs_read::Source;

/// Zstandard's level for few bytes, and for many. From 13 on it grows trees, which takes seconds where the base repeats itself.
const LEVELS: [i32; 2] = [12, 5];
/// More bytes than this are many.
const MANY: u64 = 64 << 20;
/// References with no more than this between them become one.
const GAP: u64 = 2048;

/// Bytes of what is appended that resemble bytes of the base.
#[derive(Clone, Debug)]
pub(crate) struct Resemblance {
    /// Positions in the new image.
    pub(crate) new: Range<u64>,
    /// Positions in the base.
    pub(crate) old: Vec<(u64, u64)>,
}

/// Cuts and compresses `region`, which follows the base's `base_size` bytes.
pub(crate) fn pieces(
    options: &Options,
    base: &dyn Source,
    base_size: u64,
    region: &dyn Source,
    alike: &[Resemblance],
) -> Result<Vec<Piece>> {
    let size = region.size();
    let count = usize::try_from(size.div_ceil(PIECE_MAX as u64)).unwrap_or(usize::MAX);
    let level = LEVELS[usize::from(size > MANY)];
    options.run.parallel(count, Vec::new, |prefix: &mut Vec<u8>, number| {
        let start = number as u64 * PIECE_MAX as u64;
        let len = (size - start).min(PIECE_MAX as u64) as usize;
        let mut bytes = vec![0; len];
        region.read_exact_at(start, &mut bytes).map_err(|e| Error::io_unnamed("read a temporary file", e))?;
        let place = base_size + start..base_size + start + len as u64;
        let references = references(alike, &place, base_size);
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

/// The ranges of the base that resemble what is at `place`, as many as are allowed.
fn references(alike: &[Resemblance], place: &Range<u64>, base_size: u64) -> Vec<(u64, u32)> {
    let touching = alike.iter().filter(|one| one.new.start < place.end && place.start < one.new.end);
    let mut ranges: Vec<(u64, u64)> = touching.flat_map(|one| one.old.iter().copied()).collect();
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
