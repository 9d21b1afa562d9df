//! Checks that an image is the one that a patch is for, and says what it is otherwise.

use std::ops::Range;

use ferofs_read::{Cancel, Source, Uuid};

use crate::error::{Error, PatchFault, Result};
use crate::format::header::Header;
use crate::format::reader::Patch;
use crate::image::SuperblockArea;
use crate::image::digest::{PartDigests, PieceDigest, of_piece};
use crate::image::history::{History, Origin, Record};
use crate::image::journal::MaskedSource;

/// The state of an image for which a patch can be used.
pub(crate) enum Usable {
    /// It has the superblock of the patch's base.
    Base(Box<SuperblockArea>),
    /// It shows the tree of the base again, after a rollback from the state of this number, which
    /// the patch had made.
    RolledBack(u64),
}

/// Checks that the patch with `header` can be used for `image`, by its superblock and its history.
/// `appended` gives the ranges that its pieces append, and their digests.
pub(crate) fn check_state(
    image: &dyn Source,
    header: &Header,
    appended: impl Iterator<Item = (Range<u64>, PieceDigest)>,
) -> Result<Usable> {
    let area = SuperblockArea::read(image)?;
    let fault = |fault| Err(Error::Patch(fault));
    if area.superblock().uuid != header.uuid {
        let (expected, found) =
            (Uuid(header.uuid).to_string(), Uuid(area.superblock().uuid).to_string());
        return fault(PatchFault::OtherImage { expected, found });
    }
    if area.sector() == header.base_sector && area.size() == header.base_size {
        return Ok(Usable::Base(Box::new(area)));
    }
    let history = History::read(image, &area)?;
    let is_made = |record: &Record| record.origin == Origin::Patch && record.after == header.sector;
    // Two patches can lead to the same superblock: if they have the same base, time and sizes.
    if let Some(index) = history.records.iter().rposition(is_made)
        && let Some((made, later)) = history.records.get(index..).and_then(<[Record]>::split_first)
        && has_applied(image, &area, header, appended, later)?
    {
        if history.includes(made.number) {
            return fault(PatchFault::AlreadyApplied);
        }
        if history.shown(history.current()) == history.shown(made.number.saturating_sub(1)) {
            return Ok(Usable::RolledBack(made.number));
        }
    }
    let (expected, found) = (header.base_state, history.current());
    // Another patch made the state of this number, unless the superblock was changed since.
    let is_recorded = history.records.last().is_some_and(|last| last.after == area.sector());
    fault(if expected == found && !is_recorded {
        PatchFault::BaseChanged
    } else {
        PatchFault::OtherState { expected, found }
    })
}

/// Whether `image` has the bytes that the patch with `header` appends. `later` are the records of
/// the changes after it.
fn has_applied(
    image: &dyn Source,
    area: &SuperblockArea,
    header: &Header,
    appended: impl Iterator<Item = (Range<u64>, PieceDigest)>,
    later: &[Record],
) -> Result<bool> {
    let unreadable = |e| Error::io_unnamed("read the image", e);
    // A later root can be in slots that the patch appended, and that were free.
    let mut masked = MaskedSource::new(image, area)?;
    for (pos, len) in later.iter().map(|record| record.root) {
        masked = masked.and_zeroes(pos..pos.saturating_add(len.into()));
    }
    if let Some((pos, bytes)) = &header.root {
        let mut found = vec![0; bytes.len()];
        masked.read_exact_at(*pos, &mut found).map_err(unreadable)?;
        if found != *bytes {
            return Ok(false);
        }
    }
    for (range, digest) in appended {
        if range.end > area.size() || of_piece(&masked, range).map_err(unreadable)? != digest {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that `image`, whose superblock is `area`, is the one that `patch` was made for, and
/// returns the digests of its parts.
pub(super) fn check_base(
    image: &dyn Source,
    area: &SuperblockArea,
    patch: &Patch,
    cancel: &Cancel,
) -> Result<PartDigests> {
    let header = patch.header();
    let fault = |fault| Err(Error::Patch(fault));
    let (expected, found) = (area.size(), image.size());
    if found < expected {
        return fault(PatchFault::Truncated { expected, found });
    }
    let mut masked = MaskedSource::new(image, area)?;
    if let (Some(range), Some((_, bytes))) = (header.root_range(), &header.root) {
        // The slots of the root hold zeroes, or this very root if applying the patch was
        // interrupted.
        let mut found = vec![0; bytes.len()];
        masked
            .read_exact_at(range.start, &mut found)
            .map_err(|e| Error::io_unnamed("read the image", e))?;
        let is_expected = found.iter().zip(bytes).all(|(found, new)| *found == 0 || found == new);
        if !is_expected {
            return fault(PatchFault::BaseChanged);
        }
        masked = masked.and_zeroes(range);
    }
    let digests = PartDigests::of(&masked, header.base_size, cancel)?;
    if digests.digest() == header.base_digest {
        Ok(digests)
    } else {
        fault(PatchFault::BaseChanged)
    }
}
