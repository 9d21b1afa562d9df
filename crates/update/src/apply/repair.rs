//! What earlier attempts to change the image left: restores a superblock whose sector is damaged,
//! from the records of the image's history, and continues a change that was interrupted.
//!
//! A record holds the sector before and after its change. A change writes the sector only after its
//! record is durable and its journal is replaced (see [`journal`](crate::image::journal)), so the
//! last record has the sector that was to be written.
//!
//! A patch has a digest of what each of its pieces appends. The journal of an interrupted change
//! says which range it was to write, and if that is the range of this change, a piece whose bytes
//! have the right digest is not made again, whichever change wrote them. So nothing is believed
//! because of the journal alone, and the digest of the result is compared at the end as always.

use std::ops::Range;

use ferofs_format::Compat;
use ferofs_read::{Cancel, Count, Source};

use crate::apply::commit::{recover, switch};
use crate::apply::medium::Medium;
use crate::error::{Error, PatchFault, Result};
use crate::format::reader::Patch;
use crate::image::digest::of_piece;
use crate::image::history::{RECORD, Record};
use crate::image::journal::WrittenRanges;
use crate::image::{SECTOR, SECTOR_LEN, SECTOR_POS, Sector, SuperblockArea};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes that are read at once.
const BUFFER: u64 = 1 << 20;
/// The superblock's fields for its magic number, its checksum and its UUID.
const MAGIC: std::ops::Range<usize> = 0..4;
const CHECKSUM: std::ops::Range<usize> = 4..8;
const UUID: std::ops::Range<usize> = 0x30..0x40;

/// The result of [`repair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// Nothing.
    Nothing,
    /// Bytes that an interrupted change left in free slots or after the image: they were removed.
    Leftovers,
    /// The superblock. The image is in the state of this number now.
    Superblock(u64),
}

/// Restores the superblock of the image on `medium` if it is damaged, and removes what an
/// interrupted change left.
///
/// # Errors
/// [`PatchFault::NoRecord`] when the superblock is damaged and no record fits the image;
/// [`Error::Io`].
pub fn repair<M: Medium>(medium: &M) -> Result<Repaired> {
    let area = SuperblockArea::read(medium);
    let is_sealed =
        area.as_ref().is_ok_and(|area| area.superblock().compat.contains(Compat::SB_CHKSUM));
    let state = if is_sealed { None } else { restore(medium, area.is_ok())? };
    let recovered = recover(medium, &SuperblockArea::read(medium)?)?;
    Ok(match state {
        Some(state) => Repaired::Superblock(state),
        None if recovered => Repaired::Leftovers,
        None => Repaired::Nothing,
    })
}

/// Writes the sector that the last record holds, and returns its state's number. `is_valid`: the
/// sector parses as a superblock, but has no checksum that would show whether it is damaged.
fn restore<M: Medium>(medium: &M, is_valid: bool) -> Result<Option<u64>> {
    let mut found = [0; SECTOR];
    // A sector that cannot be read counts as zeroes.
    let _ = medium.read_exact_at(SECTOR_POS, &mut found);
    let mut end = medium.size();
    while let Some(record) = last_record(medium, end)? {
        end = record.end.saturating_sub(1);
        // With the checksum of a state it is that state, even if the UUID is damaged, or the bit
        // that says that there is a checksum.
        let is_known = found[CHECKSUM] != [0; 4]
            && [record.before, record.after].iter().any(|state| state[CHECKSUM] == found[CHECKSUM]);
        // The record of an image that was here before.
        if !is_known
            && found[MAGIC] == record.after[MAGIC]
            && found[UUID] != record.after[UUID]
            && found[UUID] != [0; 16]
        {
            continue;
        }
        let Some((sector, number)) = target(medium, &record)? else { continue };
        let is_torn = found
            .iter()
            .zip(record.before.iter().zip(&record.after))
            .all(|(f, (b, a))| f == b || f == a);
        if is_valid && !is_known && (!is_torn || found == record.before || found == record.after) {
            return Ok(None);
        }
        switch(medium, &sector)?;
        return Ok(Some(number));
    }
    if is_valid { Ok(None) } else { Err(Error::Patch(PatchFault::NoRecord)) }
}

/// The sector that is current according to `record`, and its state's number, if the sector fits the
/// image.
fn target(source: &dyn Source, record: &Record) -> Result<Option<(Sector, u64)>> {
    let before = (record.before, record.start, record.number.saturating_sub(1));
    let after = (record.after, record.end, record.number);
    // While the journal exists, the change's superblock cannot have been written.
    let has_journal = WrittenRanges::read_journal(source, record.start, &record.before)?.is_some();
    let candidates = if has_journal { vec![before] } else { vec![after, before] };
    let fits = |(sector, size, _): &(Sector, u64, u64)| {
        SuperblockArea::with(source, sector).is_ok_and(|area| area.size() == *size)
    };
    Ok(candidates.into_iter().find(fits).map(|(sector, _, number)| (sector, number)))
}

/// The last record that ends at or before `end`.
fn last_record(source: &dyn Source, end: u64) -> Result<Option<Record>> {
    let mut high = end.saturating_sub(end % SECTOR_LEN);
    let mut buffer = Vec::new();
    while high > SECTOR_POS {
        let low = high.saturating_sub(BUFFER).max(SECTOR_POS);
        buffer.resize(to_usize(high.saturating_sub(low)), 0);
        source
            .read_exact_at(low, &mut buffer)
            .map_err(|e| Error::io_unnamed("read the image", e))?;
        for (number, bytes) in buffer.chunks(SECTOR).enumerate().rev() {
            let pos = low.saturating_add(to_u64(number).saturating_mul(SECTOR_LEN));
            let record_end = pos.saturating_add(RECORD);
            if record_end <= end
                && Record::may_start(bytes)
                && let Some(record) = Record::read(source, record_end)?
            {
                return Ok(Some(record));
            }
        }
        high = low;
    }
    Ok(None)
}

/// How far [`apply_with`](crate::apply_with) is. Another thread can read it at any time. If several
/// patches are applied one after the other, each adds to the numbers.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ApplyProgress {
    /// Bytes that the patches append, which were checked against the image.
    pub appended: Count,
    /// Bytes of these that are written.
    pub written: Count,
    /// Bytes of [`Self::written`] that an interrupted application of the patch had written.
    pub resumed: Count,
}

impl ApplyProgress {
    /// Writing `patch` begins, and those of its pieces are `there` already.
    pub(super) fn begin(&self, patch: &Patch, there: &[bool]) {
        let found = patch
            .appended()
            .zip(there)
            .filter(|(_, there)| **there)
            .map(|((range, _), _)| len(&range));
        let found = found.fold(0, u64::saturating_add);
        self.appended.add(len(&(patch.base_size()..patch.result_size())));
        self.resumed.add(found);
        self.written.add(found);
    }

    pub(super) fn add_written(&self, range: &Range<u64>) {
        self.written.add(len(range));
    }
}

const fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Whether each piece of `patch` is on `medium`, after the image.
pub(super) fn pieces_there<M: Medium>(
    medium: &M,
    patch: &Patch,
    cancel: &Cancel,
) -> Result<Vec<bool>> {
    // The first sector has the journal.
    let first = patch.base_size().saturating_add(SECTOR_LEN);
    let size = medium.size();
    medium.drop_cached(patch.base_size()..patch.result_size());
    patch
        .appended()
        .map(|(range, digest)| {
            cancel.check()?;
            if range.start < first || range.end > size {
                return Ok(false);
            }
            // What cannot be read is written again.
            Ok(of_piece(medium, range).is_ok_and(|found| found == digest))
        })
        .collect()
}
