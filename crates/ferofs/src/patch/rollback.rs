//! Going through an image's history: what its states are, and making an earlier one current.

use super::PatchFault;
use super::commit::{Beyond, Change, check_beyond, commit, recover};
use super::history::{History, Origin, RECORD, Record, State};
use super::journal::Extent;
use super::medium::Medium;
use super::sector::Front;
use crate::{Error, Result};
use ferofs_read::Source;

/// The states that the image in `source` was in, the first one first.
///
/// # Errors
/// [`Error::Corrupt`] for what is no image, [`Error::Io`].
pub fn log(source: &dyn Source) -> Result<Vec<State>> {
    let front = Front::read(source)?;
    Ok(History::read(source, &front)?.states(&front))
}

/// Makes state `to` of the image on `medium` current, or the one before the current one; says which. That is a new
/// state, so nothing is lost, and it can be undone the same way. `time` is what the log will say; `beyond` says what becomes
/// of bytes that stand behind the image.
///
/// # Errors
/// [`Error::Patch`] when there is no such state, and nothing was written; [`Error::Unfinished`] when writing failed.
pub fn rollback<M: Medium>(medium: &M, to: Option<u64>, beyond: Beyond, time: i64) -> Result<u64> {
    let fault = |fault| Err(Error::Patch(fault));
    let front = Front::read(medium)?;
    let history = History::read(medium, &front)?;
    if history.records.is_empty() {
        return fault(PatchFault::NoHistory);
    }
    let current = history.current();
    let to = to.or(current.checked_sub(1)).unwrap_or(0);
    if to == current {
        return fault(PatchFault::SameState(to));
    }
    let Some(target) = history.sector(to) else { return fault(PatchFault::NoSuchState(to)) };
    let start = front.size();
    let end = start
        .checked_add(RECORD)
        .and_then(|end| end.checked_next_multiple_of(front.superblock().block_size.bytes64()))
        .ok_or(Error::Patch(PatchFault::NoSuchState(to)))?;
    let after = front.resize(target, end)?;
    let record = Record {
        origin: Origin::Rollback(to),
        number: current + 1,
        time,
        start,
        end,
        previous: history.end(),
        before: front.sector(),
        after,
        root: (0, 0),
    };
    recover(medium, &front)?;
    check_beyond(medium, start..end, beyond)?;
    let extent = Extent { appended: start..end, root: None, size: medium.size() };
    let change = Change { extent, root: &[], sector: &after };
    let mut bytes = vec![0; (end - start - RECORD) as usize];
    bytes.extend_from_slice(&record.to_bytes());
    commit(medium, &front, &change, |sink| sink(&bytes), |_| Ok(()))?;
    Ok(to)
}
