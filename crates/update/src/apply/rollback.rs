//! Makes an earlier state of an image's history current.

use std::ops::Range;

use super::commit::{ImageChange, TrailingData, check_trailing, commit, recover};
use super::medium::Medium;
use crate::error::{Error, PatchFault, Result};
use crate::image::history::{History, Origin, RECORD, Record};
use crate::image::journal::WrittenRanges;
use crate::image::{Sector, SuperblockArea};
use ferofs_format::units::to_usize;
use ferofs_read::Source;

/// What a rollback appends, and the superblock's new sector.
pub(crate) struct Rollback {
    /// The state that becomes current again.
    pub(crate) to: u64,
    /// The range of the appended bytes.
    pub(crate) appended: Range<u64>,
    /// Zeroes and the record.
    pub(crate) bytes: Vec<u8>,
    pub(crate) sector: Sector,
}

impl Rollback {
    /// Plans the rollback of `image`, whose superblock is `area`, to state `to`, or to the state
    /// before the current one. `time` goes into the log.
    pub(crate) fn plan(
        image: &dyn Source,
        area: &SuperblockArea,
        to: Option<u64>,
        time: i64,
    ) -> Result<Self> {
        let fault = |fault| Err(Error::Patch(fault));
        let history = History::read(image, area)?;
        if history.records.is_empty() {
            return fault(PatchFault::NoHistory);
        }
        let current = history.current();
        let to = to.or(current.checked_sub(1)).unwrap_or(0);
        if to == current {
            return fault(PatchFault::SameState(to));
        }
        let Some(target) = history.sector(to) else { return fault(PatchFault::NoSuchState(to)) };
        let start = area.size();
        let end = start
            .checked_add(RECORD)
            .and_then(|end| end.checked_next_multiple_of(area.superblock().block_size.bytes64()))
            .ok_or(Error::Patch(PatchFault::NoSuchState(to)))?;
        let sector = area.resize(target, end)?;
        let record = Record {
            origin: Origin::Rollback(to),
            number: history.next(),
            time,
            start,
            end,
            previous: history.end(),
            before: area.sector(),
            after: sector,
            root: (0, 0),
        };
        let mut bytes = vec![0; to_usize(end.saturating_sub(start).saturating_sub(RECORD))];
        bytes.extend_from_slice(&record.to_bytes());
        Ok(Self { to, appended: start..end, bytes, sector })
    }
}

/// Makes state `to` of the image on `medium` current again, or the state before the current one,
/// and returns its number. This appends a new state, so nothing is lost, and it can be rolled back,
/// too. `time` goes into the log; `trailing` says whether bytes after the image may be overwritten.
///
/// # Errors
/// [`Error::Patch`] when there is no such state: nothing was written. [`Error::Unfinished`] when
/// writing failed.
pub fn rollback<M: Medium>(
    medium: &M,
    to: Option<u64>,
    trailing: TrailingData,
    time: i64,
) -> Result<u64> {
    let area = SuperblockArea::read(medium)?;
    let Rollback { to, appended, bytes, sector } = Rollback::plan(medium, &area, to, time)?;
    recover(medium, &area)?;
    check_trailing(medium, appended.clone(), trailing)?;
    let ranges = WrittenRanges { appended, root: None, medium_size: medium.size() };
    let change = ImageChange { ranges, root: &[], sector: &sector };
    commit(medium, &area, &change, |sink| sink.append(&bytes), |_| Ok(()))?;
    Ok(to)
}
