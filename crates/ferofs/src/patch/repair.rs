//! Restoring a superblock whose sector was torn or lost, from the records of the image's history.
//!
//! A record holds the sector before and after its change. A change writes the sector only after its record is durable and
//! its note is gone (see [`super::journal`]), so the last record tells what the sector was to become.

use ferofs_format::Compat;

use super::PatchFault;
use super::commit::{recover, switch};
use super::history::{RECORD, Record};
use super::journal::Extent;
use super::medium::Medium;
use super::sector::{Front, SECTOR, SECTOR_POS, Sector};
use crate::{Error, Result};
use ferofs_read::Source;

/// Bytes that are read at once.
const AT_ONCE: u64 = 1 << 20;
/// Where a superblock has its magic number and its UUID.
const MAGIC: std::ops::Range<usize> = 0..4;
const UUID: std::ops::Range<usize> = 0x30..0x40;

/// What was wrong with an image, and is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// Nothing.
    Nothing,
    /// An interrupted change had left bytes in free slots or behind the image.
    Remains,
    /// The superblock was damaged. The image is in the state of this number.
    Superblock(u64),
}

/// Repairs the superblock of the image on `medium`, and removes what an interrupted change left.
///
/// # Errors
/// [`PatchFault::NoRecord`] when the superblock is damaged and no record fits the image; [`Error::Io`].
pub fn repair<M: Medium>(medium: &M) -> Result<Repaired> {
    let front = Front::read(medium);
    let is_sealed = front.as_ref().is_ok_and(|front| front.superblock().compat.contains(Compat::SB_CHKSUM));
    let state = if is_sealed { None } else { restore(medium, front.is_ok())? };
    let recovered = recover(medium, &Front::read(medium)?)?;
    Ok(match state {
        Some(state) => Repaired::Superblock(state),
        None if recovered => Repaired::Remains,
        None => Repaired::Nothing,
    })
}

/// Writes the sector that the last record tells of, and gives its state's number. `is_valid`: the sector can be read as a
/// superblock, but has no checksum.
fn restore<M: Medium>(medium: &M, is_valid: bool) -> Result<Option<u64>> {
    let mut found = [0; SECTOR];
    // A sector that cannot be read is as good as one of zeroes.
    let _ = medium.read_exact_at(SECTOR_POS, &mut found);
    let mut end = medium.size();
    while let Some(record) = last_record(medium, end)? {
        end = record.end.saturating_sub(1);
        if found[MAGIC] == record.after[MAGIC] && found[UUID] != record.after[UUID] {
            continue;
        }
        let Some((sector, number)) = target(medium, &record)? else { continue };
        let is_torn =
            found.iter().zip(record.before.iter().zip(&record.after)).all(|(f, (b, a))| f == b || f == a);
        if is_valid && (!is_torn || found == record.before || found == record.after) {
            return Ok(None);
        }
        switch(medium, &sector)?;
        return Ok(Some(number));
    }
    if is_valid { Ok(None) } else { Err(Error::Patch(PatchFault::NoRecord)) }
}

/// The sector that `record` says is current, and its state's number, if it fits the image.
fn target(source: &dyn Source, record: &Record) -> Result<Option<(Sector, u64)>> {
    let before = (record.before, record.start, record.number.saturating_sub(1));
    let after = (record.after, record.end, record.number);
    // While the note is there, the change was not to become current.
    let is_noted = Extent::read_note(source, record.start, &record.before)?.is_some();
    let candidates = if is_noted { vec![before] } else { vec![after, before] };
    let fits = |(sector, size, _): &(Sector, u64, u64)| {
        Front::with(source, sector).is_ok_and(|front| front.size() == *size)
    };
    Ok(candidates.into_iter().find(fits).map(|(sector, _, number)| (sector, number)))
}

/// The last record that ends at `end` or before it.
fn last_record(source: &dyn Source, end: u64) -> Result<Option<Record>> {
    let sector = SECTOR as u64;
    let mut high = end / sector * sector;
    let mut buffer = Vec::new();
    while high > SECTOR_POS {
        let low = high.saturating_sub(AT_ONCE).max(SECTOR_POS);
        buffer.resize((high - low) as usize, 0);
        source.read_exact_at(low, &mut buffer).map_err(|e| Error::io_unnamed("read the image", e))?;
        for (number, bytes) in buffer.chunks(SECTOR).enumerate().rev() {
            let record_end = low + number as u64 * sector + RECORD;
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
