//! Changing an image so that it shows the old tree or the new one at any moment, and undoing a change that failed.
//! docs/PATCH.md gives the order of the writes, and why each is safe.

use std::io;

use super::PatchFault;
use super::journal::{Extent, first_used};
use super::medium::Medium;
use super::sector::{Front, SECTOR, SECTOR_POS, Sector};
use crate::error::{Error, Left, Result};
use ferofs_read::Source;

/// Bytes that are written at once where zeroes replace what an interrupted change wrote.
const AT_ONCE: usize = 1 << 20;

/// What may happen to bytes that stand behind the image on its medium, where the image will grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// They stay: the change is refused, unless they are zeroes or what an interrupted change left.
    #[default]
    Keep,
    /// They are overwritten.
    Overwrite,
}

/// A change of an image.
pub(crate) struct Change<'a> {
    /// What it writes.
    pub(crate) extent: Extent,
    /// The root's inode, if it goes into free slots; of `extent.root`'s length.
    pub(crate) root: &'a [u8],
    /// The new sector of the superblock.
    pub(crate) sector: &'a Sector,
}

/// The bytes of a region, one part after the other.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Undoes what an interrupted change left on the image, if it left something; says whether it did.
pub(crate) fn recover<M: Medium>(medium: &M, front: &Front) -> Result<bool> {
    let Some(left) = Extent::left_on(medium, front)? else { return Ok(false) };
    undo(medium, &left, &front.sector()).map_err(|error| error.unfinished(Left::Remains))?;
    Ok(true)
}

/// Refuses a change that would overwrite foreign bytes behind the image, unless that was allowed.
pub(crate) fn check_beyond(
    medium: &dyn Source,
    appended: std::ops::Range<u64>,
    beyond: Beyond,
) -> Result<()> {
    if beyond == Beyond::Overwrite {
        return Ok(());
    }
    match first_used(medium, appended.clone())? {
        None => Ok(()),
        Some(pos) => Err(Error::Patch(PatchFault::Beyond { end: appended.start, pos })),
    }
}

/// Changes the image whose front is `front`. `region` writes what is appended; `verify` looks at the image as it will be.
///
/// # Errors
/// [`Error::Unfinished`], which says in what state the image is.
pub(crate) fn commit<M: Medium>(
    medium: &M,
    front: &Front,
    change: &Change<'_>,
    region: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    verify: impl FnOnce(&dyn Source) -> Result<()>,
) -> Result<()> {
    let (before, extent) = (front.sector(), &change.extent);
    if let Err(error) = prepare(medium, &before, change, region, verify) {
        // The superblock is the old one: nothing refers to what was written.
        return Err(error.unfinished(match undo(medium, extent, &before) {
            Ok(()) => Left::AsBefore,
            Err(_) => Left::Remains,
        }));
    }
    let Err(error) = switch(medium, change.sector) else { return Ok(()) };
    // Both trees are complete until the old superblock is durable again.
    if switch(medium, &before).is_err() {
        return Err(error.unfinished(Left::EitherSuperblock));
    }
    Err(error.unfinished(match undo(medium, extent, &before) {
        Ok(()) => Left::AsBefore,
        Err(_) => Left::Remains,
    }))
}

/// Writes everything but the superblock's sector, and makes it durable.
fn prepare<M: Medium>(
    medium: &M,
    before: &Sector,
    change: &Change<'_>,
    region: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    verify: impl FnOnce(&dyn Source) -> Result<()>,
) -> Result<()> {
    let Extent { appended, root, .. } = &change.extent;
    medium.write_all_at(appended.start, &change.extent.to_note(before)).map_err(unwritten)?;
    medium.sync().map_err(unwritten)?;
    medium.reserve(appended.end).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => {
            Error::Patch(PatchFault::NoRoom { needed: appended.end, available: change.extent.size })
        }
        _ => Error::io_unnamed("make room for the patch", error),
    })?;
    // The first sector is where the note is, and comes last.
    let mut first = Vec::with_capacity(SECTOR);
    let mut at = appended.start;
    region(&mut |bytes| {
        let (head, rest) = bytes.split_at(bytes.len().min(SECTOR - first.len()));
        first.extend_from_slice(head);
        at += head.len() as u64;
        if !rest.is_empty() {
            medium.write_all_at(at, rest).map_err(unwritten)?;
            at += rest.len() as u64;
        }
        Ok(())
    })?;
    if let Some(root) = root {
        medium.write_all_at(root.start, change.root).map_err(unwritten)?;
    }
    medium.sync().map_err(unwritten)?;
    verify(&Prospect { medium, writes: [(SECTOR_POS, change.sector), (appended.start, &first)] })?;
    medium.write_all_at(appended.start, &first).map_err(unwritten)?;
    medium.sync().map_err(unwritten)
}

/// Makes another superblock current.
pub(crate) fn switch<M: Medium>(medium: &M, sector: &Sector) -> Result<()> {
    let io = |e| Error::io_unnamed("write the superblock", e);
    medium.write_all_at(SECTOR_POS, sector).map_err(io)?;
    medium.sync().map_err(io)
}

/// Puts zeroes where a change wrote, and gives the medium its size back. The superblock is in `sector`, and durable.
fn undo<M: Medium>(medium: &M, extent: &Extent, sector: &Sector) -> Result<()> {
    let Extent { appended, root, size } = extent;
    let note_end = appended.start.saturating_add(SECTOR as u64);
    let root = root.clone().unwrap_or_default();
    let is_clean = medium.size() <= *size
        && first_used(medium, appended.clone())?.is_none()
        && first_used(medium, root.clone())?.is_none();
    if is_clean {
        return Ok(());
    }
    if Extent::read_note(medium, appended.start, sector)?.is_none() {
        // The note goes last, so that this can be interrupted, too.
        medium.write_all_at(appended.start, &extent.to_note(sector)).map_err(unwritten)?;
        medium.sync().map_err(unwritten)?;
    }
    if !root.is_empty() {
        zero(medium, root)?;
        medium.sync().map_err(unwritten)?;
    }
    let keeps_note = *size > appended.start;
    if !keeps_note && *size < medium.size() {
        medium.release(*size).map_err(unwritten)?;
    }
    if medium.size() > appended.start {
        // Bytes stood here before: zeroes, unless they were given up.
        zero(medium, note_end..appended.end.min(medium.size()))?;
        if keeps_note && *size < medium.size() {
            medium.release(*size).map_err(unwritten)?;
        }
        medium.sync().map_err(unwritten)?;
        zero(medium, appended.start..note_end.min(medium.size()))?;
    }
    medium.sync().map_err(unwritten)
}

fn zero<M: Medium>(medium: &M, range: std::ops::Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(AT_ONCE as u64);
        medium.write_all_at(at, &vec![0; len as usize]).map_err(unwritten)?;
        at += len;
    }
    Ok(())
}

fn unwritten(error: io::Error) -> Error {
    Error::io_unnamed("write the image", error)
}

/// The image as it will be: with the sectors that are written last.
struct Prospect<'a> {
    medium: &'a dyn Source,
    writes: [(u64, &'a [u8]); 2],
}

impl Source for Prospect<'_> {
    fn size(&self) -> u64 {
        self.medium.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.medium.read_exact_at(pos, buf)?;
        for (start, bytes) in self.writes {
            for (at, byte) in (start..).zip(bytes) {
                if let Some(place) = at.checked_sub(pos).and_then(|at| buf.get_mut(at as usize)) {
                    *place = *byte;
                }
            }
        }
        Ok(())
    }
}
