//! Checks what the cache has stored.

use std::ops::Range;
use std::sync::Arc;

use super::known::Known;
use crate::cache::{Cache, Entry, UNIT, units_in};
use crate::error::{Error, Result};
use crate::fetch::{Check, Checked, TreeCheck};
use crate::ranges::len_of;
use ferofs_format::units::to_usize;

/// The result of [`verify_entry`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedEntry {
    /// Bytes with the digests of the hash tree.
    pub right: u64,
    /// Bytes with others. They were removed.
    pub wrong: u64,
    /// Bytes that nothing covers, as the superblock before the hash tree.
    pub not_covered: u64,
}

/// Bytes that are checked at a time.
const PIECE: u64 = 1 << 20;

/// Checks all that is stored of the entry `key` against its root hash, and removes what is wrong: it will be fetched again. Returns
/// `None` for an entry without a root hash.
///
/// # Errors
/// [`Error::Cache`], [`Error::Verity`].
pub fn verify_entry(cache: &Cache, key: &str) -> Result<Option<VerifiedEntry>> {
    let Some(info) = cache.info(key)? else { return Ok(None) };
    let root = info.roothash.as_ref().and_then(|root| root.parse().ok());
    let Some(known) = root.map(|root| Known::by_root(cache, root, None)).transpose()?.flatten()
    else {
        return Ok(None);
    };
    let (Some((seal, root)), true) = (known.seal()?, known.key() == key) else { return Ok(None) };
    let entry = Arc::new(cache.entry(key, &info)?);
    let check = TreeCheck::new(&entry, &seal, root)?;
    let units = entry.size().div_ceil(UNIT);
    let mut verified = VerifiedEntry::default();
    // The tree first, from its top: data is checked against hashes that were checked.
    let border = (check.border() / UNIT).min(units);
    for range in [border..units, 0..border] {
        for run in runs(&entry, range)? {
            verify_run(&entry, &check, run, &mut verified)?;
        }
    }
    Ok(Some(verified))
}

fn runs(entry: &Entry, units: Range<u64>) -> Result<Vec<Range<u64>>> {
    entry.stored(units).map_err(Error::cache(entry.path(), "read"))
}

fn verify_run(
    entry: &Entry,
    check: &TreeCheck,
    run: Range<u64>,
    verified: &mut VerifiedEntry,
) -> Result<()> {
    let Range { start: mut at, end } = entry.bytes_of(&run);
    while at < end {
        let mut range = at..end.min(at.saturating_add(PIECE));
        at = range.end;
        if check_range(entry, check, &range, verified)? {
            continue;
        }
        // Finds the wrong blocks of the piece.
        let step = check.align().max(UNIT);
        while range.start < at {
            range.end = at.min(range.start.saturating_add(step));
            if !check_range(entry, check, &range, verified)? {
                verified.wrong = verified.wrong.saturating_add(len_of(&range));
                let failed = Error::cache(entry.path(), "remove a part of");
                entry.remove(units_in(&range)).map_err(failed)?;
            }
            range.start = range.end;
        }
    }
    Ok(())
}

/// Checks a range; returns false if a part of it is wrong, and counts nothing then.
fn check_range(
    entry: &Entry,
    check: &TreeCheck,
    range: &Range<u64>,
    verified: &mut VerifiedEntry,
) -> Result<bool> {
    let len = len_of(range);
    let mut bytes = vec![0; to_usize(len)];
    if !entry.read(range.start, &mut bytes).map_err(Error::cache(entry.path(), "read"))? {
        // It was evicted meanwhile.
        return Ok(true);
    }
    let count = match check.check(range.start, &bytes) {
        Checked::Right => &mut verified.right,
        Checked::NotCovered => &mut verified.not_covered,
        Checked::Wrong => return Ok(false),
    };
    *count = count.saturating_add(len);
    Ok(true)
}
