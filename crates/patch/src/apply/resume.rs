//! Continues a change that was interrupted: finds out which of its bytes are there already.
//!
//! A patch has a digest of what each of its pieces appends. The journal of an interrupted change says which range it was to write, and if
//! that is the range of this change, a piece whose bytes have the right digest is not made again, whichever change wrote them. So
//! nothing is believed because of the journal alone, and the digest of the result is compared at the end as always.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::medium::Medium;
use crate::error::{Error, Result};
use crate::format::reader::Patch;
use crate::image::digest::of_piece;
use crate::image::sector::SECTOR_LEN;

/// How far [`apply_with`](crate::apply_with) is. Another thread can read it at any time. If several patches are applied one after the other,
/// each adds to the numbers.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ApplyProgress {
    /// Bytes that the patches append, which were checked against the image.
    pub appended: AtomicU64,
    /// Bytes of these that are written.
    pub written: AtomicU64,
    /// Bytes of [`Self::written`] that an interrupted application of the patch had written.
    pub resumed: AtomicU64,
}

impl ApplyProgress {
    /// Writing `patch` begins, and those of its pieces are `there` already.
    pub(super) fn begin(&self, patch: &Patch, there: &[bool]) {
        let found =
            patch.appended().zip(there).filter(|(_, there)| **there).map(|((range, _), _)| len(&range));
        let found = found.fold(0, u64::saturating_add);
        self.appended.fetch_add(len(&(patch.base_size()..patch.result_size())), Ordering::Relaxed);
        self.resumed.fetch_add(found, Ordering::Relaxed);
        self.written.fetch_add(found, Ordering::Relaxed);
    }

    pub(super) fn add_written(&self, range: &Range<u64>) {
        self.written.fetch_add(len(range), Ordering::Relaxed);
    }
}

const fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Whether each piece of `patch` is on `medium`, behind the image.
pub(super) fn pieces_there<M: Medium>(medium: &M, patch: &Patch, cancel: &AtomicBool) -> Result<Vec<bool>> {
    // The first sector has the journal.
    let first = patch.base_size().saturating_add(SECTOR_LEN);
    let size = medium.size();
    medium.drop_cached(patch.base_size()..patch.result_size());
    patch
        .appended()
        .map(|(range, digest)| {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if range.start < first || range.end > size {
                return Ok(false);
            }
            // What cannot be read is written again.
            Ok(of_piece(medium, range).is_ok_and(|found| found == digest))
        })
        .collect()
}
