//! Changes an image so that it shows the old tree or the new one at any moment, and undoes a change
//! that failed. The order of the writes, and why each is safe: docs/PATCH_FORMAT.md.

use std::io;

use super::medium::Medium;
use crate::error::{AfterFailure, Error, PatchFault, Result};
use crate::image::journal::{WrittenRanges, first_nonzero};
use crate::image::overlay::Overlay;
use crate::image::{SECTOR, SECTOR_LEN, SECTOR_POS, Sector, SuperblockArea};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::Source;
use ferofs_verity::Seal;

/// Zeroes that are written at once over the bytes of an interrupted change.
const BUFFER: usize = 1 << 20;

/// Appended bytes after which they are made durable: a power cut loses at most these. A sync takes
/// much less time than making so many bytes, and most patches append fewer.
const SYNC_EACH: usize = 32 << 20;

/// The treatment of bytes after the image on its medium, into which the image would grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailingData {
    /// They are kept: the change is refused unless they are zeroes, or were written by an
    /// interrupted change.
    #[default]
    Keep,
    /// They are overwritten.
    Overwrite,
}

/// A change of an image.
pub(crate) struct ImageChange<'a> {
    /// The ranges that it writes.
    pub(crate) ranges: WrittenRanges,
    /// The root's inode, if it goes into free slots: as long as `ranges.root`.
    pub(crate) root: &'a [u8],
    /// The superblock's new sector.
    pub(crate) sector: &'a Sector,
}

/// Takes the appended bytes, one part after the other.
pub(crate) struct ImageWriter<'a, M> {
    medium: &'a M,
    /// The next position.
    at: u64,
    /// The first sector, where the journal is until all other bytes are durable.
    first: Vec<u8>,
    /// Bytes since the last sync.
    unsynced: usize,
}

impl<M: Medium> ImageWriter<'_, M> {
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let (head, rest) = bytes.split_at(bytes.len().min(SECTOR.saturating_sub(self.first.len())));
        self.first.extend_from_slice(head);
        self.at = self.at.saturating_add(to_u64(head.len()));
        if !rest.is_empty() {
            self.medium.write_all_at(self.at, rest).map_err(unwritten)?;
            self.at = self.at.saturating_add(to_u64(rest.len()));
        }
        self.unsynced = self.unsynced.saturating_add(bytes.len());
        if self.unsynced >= SYNC_EACH {
            self.medium.sync().map_err(unwritten)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Leaves `len` bytes as they are, because an interrupted change has written them. They are
    /// after the first sector.
    pub(crate) fn keep(&mut self, len: u64) {
        self.at = self.at.saturating_add(len);
    }
}

/// Undoes an interrupted change, if there was one; returns whether there was.
pub fn recover<M: Medium>(medium: &M, area: &SuperblockArea) -> Result<bool> {
    let Some(ranges) = WrittenRanges::find_interrupted(medium, area)? else { return Ok(false) };
    undo(medium, &ranges, &area.sector())
        .map_err(|error| error.unfinished(AfterFailure::Leftovers))?;
    Ok(true)
}

/// Refuses a change that would overwrite other data after the image, unless that is allowed.
pub fn check_trailing(
    medium: &dyn Source,
    appended: std::ops::Range<u64>,
    trailing: TrailingData,
) -> Result<()> {
    if trailing == TrailingData::Overwrite {
        return Ok(());
    }
    match first_nonzero(medium, appended.clone())? {
        None => Ok(()),
        Some(pos) if Seal::read(medium, pos).is_ok() => {
            Err(Error::Patch(PatchFault::Sealed { pos }))
        }
        Some(pos) => Err(Error::Patch(PatchFault::TrailingData { end: appended.start, pos })),
    }
}

/// Changes the image whose superblock is `area`. `region` passes the appended bytes to its
/// argument; `verify` checks the image as it will be, before the superblock is written.
///
/// # Errors
/// [`Error::Unfinished`]: it says in what state the image is.
pub(crate) fn commit<M: Medium>(
    medium: &M,
    area: &SuperblockArea,
    change: &ImageChange<'_>,
    region: impl FnOnce(&mut ImageWriter<'_, M>) -> Result<()>,
    verify: impl FnOnce(&dyn Source) -> Result<()>,
) -> Result<()> {
    let (before, ranges) = (area.sector(), &change.ranges);
    if let Err(error) = prepare(medium, &before, change, region, verify) {
        if matches!(error, Error::Interrupted) && medium.sync().is_ok() {
            // The journal is there, so the same change can continue.
            return Err(error.unfinished(AfterFailure::Resumable));
        }
        // The superblock is still the old one: nothing refers to the bytes that were written.
        return Err(error.unfinished(match undo(medium, ranges, &before) {
            Ok(()) => AfterFailure::Unchanged,
            Err(_) => AfterFailure::Leftovers,
        }));
    }
    let Err(error) = switch(medium, change.sector) else { return Ok(()) };
    // Until the old superblock is durable again, the bytes of both trees must stay.
    if switch(medium, &before).is_err() {
        return Err(error.unfinished(AfterFailure::UncertainSuperblock));
    }
    Err(error.unfinished(match undo(medium, ranges, &before) {
        Ok(()) => AfterFailure::Unchanged,
        Err(_) => AfterFailure::Leftovers,
    }))
}

/// Writes everything but the superblock's sector durably.
fn prepare<M: Medium>(
    medium: &M,
    before: &Sector,
    change: &ImageChange<'_>,
    region: impl FnOnce(&mut ImageWriter<'_, M>) -> Result<()>,
    verify: impl FnOnce(&dyn Source) -> Result<()>,
) -> Result<()> {
    let WrittenRanges { appended, root, .. } = &change.ranges;
    medium.write_all_at(appended.start, &change.ranges.to_journal(before)).map_err(unwritten)?;
    medium.sync().map_err(unwritten)?;
    medium.reserve(appended.end).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => {
            // Only the system refuses to extend a file; a device cannot be extended.
            let is_file = error.raw_os_error().is_some();
            let (needed, available) = (appended.end, change.ranges.medium_size);
            Error::Patch(PatchFault::NoSpace { is_file, needed, available })
        }
        _ => Error::io_unnamed("reserve space for the patch", error),
    })?;
    let mut sink =
        ImageWriter { medium, at: appended.start, first: Vec::with_capacity(SECTOR), unsynced: 0 };
    region(&mut sink)?;
    let first = sink.first;
    if let Some(root) = root {
        medium.write_all_at(root.start, change.root).map_err(unwritten)?;
    }
    medium.sync().map_err(unwritten)?;
    verify(&Overlay::of(medium).with(SECTOR_POS, change.sector).with(appended.start, &first))?;
    medium.write_all_at(appended.start, &first).map_err(unwritten)?;
    medium.sync().map_err(unwritten)
}

/// Writes the superblock's sector, durably.
pub(crate) fn switch<M: Medium>(medium: &M, sector: &Sector) -> Result<()> {
    let io = |e| Error::io_unnamed("write the superblock", e);
    medium.write_all_at(SECTOR_POS, sector).map_err(io)?;
    medium.sync().map_err(io)
}

/// Writes zeroes over the ranges of a change, and restores the medium's size. `sector` is the
/// current superblock, durable.
fn undo<M: Medium>(medium: &M, ranges: &WrittenRanges, sector: &Sector) -> Result<()> {
    let WrittenRanges { appended, root, medium_size: size } = ranges;
    let journal_end = appended.start.saturating_add(SECTOR_LEN);
    let root = root.clone().unwrap_or_default();
    let is_clean = medium.size() <= *size
        && first_nonzero(medium, appended.clone())?.is_none()
        && first_nonzero(medium, root.clone())?.is_none();
    if is_clean {
        return Ok(());
    }
    if WrittenRanges::read_journal(medium, appended.start, sector)?.is_none() {
        // With the journal, undoing can be interrupted and repeated, too. The journal itself is
        // removed last.
        medium.write_all_at(appended.start, &ranges.to_journal(sector)).map_err(unwritten)?;
        medium.sync().map_err(unwritten)?;
    }
    if !root.is_empty() {
        zero(medium, root)?;
        medium.sync().map_err(unwritten)?;
    }
    let keeps_journal = *size > appended.start;
    if !keeps_journal && *size < medium.size() {
        medium.release(*size).map_err(unwritten)?;
    }
    if medium.size() > appended.start {
        // The medium was longer than the image before: these bytes were zero, or the caller allowed
        // to overwrite them.
        zero(medium, journal_end..appended.end.min(medium.size()))?;
        if keeps_journal && *size < medium.size() {
            medium.release(*size).map_err(unwritten)?;
        }
        medium.sync().map_err(unwritten)?;
        zero(medium, appended.start..journal_end.min(medium.size()))?;
    }
    medium.sync().map_err(unwritten)
}

fn zero<M: Medium>(medium: &M, range: std::ops::Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let zeroes = vec![0; to_usize(range.end.saturating_sub(at)).min(BUFFER)];
        medium.write_all_at(at, &zeroes).map_err(unwritten)?;
        at = at.saturating_add(to_u64(zeroes.len()));
    }
    Ok(())
}

fn unwritten(error: io::Error) -> Error {
    Error::io_unnamed("write the image", error)
}
