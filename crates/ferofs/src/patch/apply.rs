//! Applying a patch: in place, and in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::PatchFault;
use super::commit::{Beyond, Change, Sink, check_beyond, commit, recover};
use super::digest::Pieces;
use super::file::{Header, Patch};
use super::history::{History, Origin};
use super::journal::{Clean, Extent};
use super::medium::Medium;
use super::overlay::Overlay;
use super::sector::{Front, SECTOR_POS};
use crate::{Error, Result};
use ferofs_read::{Source, Uuid};

/// Makes sure that `image` is what `header`'s patch was made for; gives the digests of its pieces.
pub(crate) fn check_base(image: &dyn Source, header: &Header, cancel: &AtomicBool) -> Result<Pieces> {
    let front = Front::read(image)?;
    let fault = |fault| Err(Error::Patch(fault));
    if front.superblock().uuid != header.uuid {
        let (expected, found) = (Uuid(header.uuid).to_string(), Uuid(front.superblock().uuid).to_string());
        return fault(PatchFault::OtherImage { expected, found });
    }
    if front.sector() == header.sector {
        return fault(PatchFault::AlreadyApplied);
    }
    if front.sector() != header.base_sector || front.size() != header.base_size {
        let history = History::read(image, &front)?;
        let went_back =
            history.records.last().is_some_and(|record| matches!(record.origin, Origin::Rollback(_)));
        if !went_back && history.records.iter().any(|record| record.after == header.sector) {
            return fault(PatchFault::AlreadyApplied);
        }
        let (expected, found) = (header.base_state, history.current());
        return fault(if expected == found {
            PatchFault::BaseChanged
        } else {
            PatchFault::OtherState { expected, found }
        });
    }
    let mut clean = Clean::new(image, &front)?;
    if let Some((pos, bytes)) = &header.root {
        // Where the root goes there are zeroes, or the root: another program may have been interrupted.
        let mut found = vec![0; bytes.len()];
        clean.read_exact_at(*pos, &mut found).map_err(|e| Error::io_unnamed("read the image", e))?;
        let is_ours = found.iter().zip(bytes).all(|(found, new)| *found == 0 || found == new);
        if !is_ours {
            return fault(PatchFault::BaseChanged);
        }
        clean = clean.and_zeroes(*pos..*pos + bytes.len() as u64);
    }
    let pieces = Pieces::of(&clean, header.base_size, cancel)?;
    if pieces.digest() == header.base_digest { Ok(pieces) } else { fault(PatchFault::BaseChanged) }
}

/// Applies `patch` to the image on `medium`: after this it shows the new tree. Whatever happens on the way, the
/// medium holds an image that shows the old tree or the new one. `beyond` says what becomes of bytes that stand behind the
/// image.
///
/// # Errors
/// [`Error::Patch`] when patch and image do not belong together, and nothing was written; [`Error::Unfinished`] when writing
/// failed, which says in what state the image is then.
pub fn apply<M: Medium>(medium: &M, patch: &Patch, beyond: Beyond, cancel: &AtomicBool) -> Result<()> {
    let header = patch.header();
    let pieces = check_base(medium, header, cancel)?;
    let front = Front::read(medium)?;
    let appended = header.base_size..header.result_size;
    recover(medium, &front)?;
    check_beyond(medium, appended.clone(), beyond)?;
    let (root, root_bytes) = match &header.root {
        Some((pos, bytes)) => (Some(*pos..*pos + bytes.len() as u64), &bytes[..]),
        None => (None, &[][..]),
    };
    let change = Change {
        extent: Extent { appended, root, size: medium.size() },
        root: root_bytes,
        sector: &header.sector,
    };
    let region = |sink: &mut Sink<'_>| patch.region(medium, cancel, sink);
    commit(medium, &front, &change, region, |result| check_result(result, header, &pieces, cancel))
}

/// Makes sure that `result` is what `header`'s patch was to make of the base, whose pieces are given.
fn check_result(result: &dyn Source, header: &Header, pieces: &Pieces, cancel: &AtomicBool) -> Result<()> {
    let mut changed =
        vec![SECTOR_POS..SECTOR_POS + header.sector.len() as u64, header.base_size..header.result_size];
    changed.extend(header.root.iter().map(|(pos, bytes)| *pos..*pos + bytes.len() as u64));
    let result = pieces.changed(result, header.result_size, &changed, cancel)?;
    if result.digest() == header.result_digest {
        Ok(())
    } else {
        Err(Error::Patch(PatchFault::ResultDiffers))
    }
}

/// `base` with `patch` laid over it in memory.
///
/// # Errors
/// As [`apply`]; nothing is written.
pub fn overlay(base: Arc<dyn Source>, patch: &Patch, cancel: &AtomicBool) -> Result<Arc<dyn Source>> {
    let header = patch.header();
    let pieces = check_base(&*base, header, cancel)?;
    let front = Front::read(&*base)?;
    let base: Arc<dyn Source> = Arc::new(Clean::new(base, &front)?);
    let mut region = Vec::new();
    patch.region(&*base, cancel, |bytes| {
        region.extend_from_slice(bytes);
        Ok(())
    })?;
    let mut overlay = Overlay::new(base, header.base_size, Box::new(region)).with(SECTOR_POS, &header.sector);
    if let Some((pos, bytes)) = &header.root {
        overlay = overlay.with(*pos, bytes);
    }
    check_result(&overlay, header, &pieces, cancel)?;
    Ok(Arc::new(overlay))
}
