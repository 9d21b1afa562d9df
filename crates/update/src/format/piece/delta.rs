//! A payload as differences to bytes of the dictionary that lie beside it, for content of which
//! most bytes are equal, but not in long runs. Layout: docs/PATCH_FORMAT.md.

use crate::error::{Error, PatchFault, Result};
use crate::format::columns::{ColumnReader, Columns};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a decoded delta at most. It is held in memory beside the payload and the dictionary.
/// `create` makes no longer ones, and a patch that has one is malformed.
pub const DELTA_MAX: usize = 2 << 20;

const MALFORMED: &str = "a delta is wrong";

/// A part of a payload: `add` bytes that lie beside bytes of the dictionary, and then `insert`
/// bytes that lie beside none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The position in the dictionary.
    pub old: usize,
    /// Bytes that lie beside bytes of the dictionary.
    pub add: usize,
    /// Bytes after them that lie beside none.
    pub insert: usize,
}

/// The delta of `payload`, which consists of `steps`.
pub fn encode(dictionary: &[u8], payload: &[u8], steps: &[Step]) -> Vec<u8> {
    let (mut gaps, mut lens) = (Vec::new(), Vec::new());
    let (mut differences, mut inserted) = (Vec::new(), Vec::new());
    // Equal bytes since the last ones that differ, and those that differ since then.
    let (mut gap, mut len) = (0u64, 0u64);
    let mut rest = payload;
    for step in steps {
        let (new, after) = rest.split_at_checked(step.add).unwrap_or((rest, &[]));
        let (insert, after) = after.split_at_checked(step.insert).unwrap_or((after, &[]));
        for (new, old) in new.iter().zip(dictionary.get(step.old..).unwrap_or_default()) {
            let difference = new.wrapping_sub(*old);
            if difference != 0 {
                differences.push(difference);
                len = len.saturating_add(1);
                continue;
            }
            if len > 0 {
                gaps.push(std::mem::take(&mut gap));
                lens.push(std::mem::take(&mut len));
            }
            gap = gap.saturating_add(1);
        }
        inserted.extend_from_slice(insert);
        rest = after;
    }
    if len > 0 {
        gaps.push(gap);
        lens.push(len);
    }
    let mut columns = Columns::default();
    columns.push(to_u64(steps.len()));
    steps.iter().for_each(|step| columns.push(to_u64(step.add)));
    steps.iter().for_each(|step| columns.push(to_u64(step.insert)));
    let mut end = 0u64;
    for step in steps {
        let start = to_u64(step.old);
        columns.push_signed(start.wrapping_sub(end).cast_signed());
        end = start.saturating_add(to_u64(step.add));
    }
    columns.push(to_u64(gaps.len()));
    gaps.iter().chain(&lens).for_each(|number| columns.push(*number));
    columns.push_bytes(&differences);
    columns.push_bytes(&inserted);
    columns.into_bytes()
}

/// Makes the payload of `len` bytes from its delta.
///
/// # Errors
/// [`PatchFault::Malformed`].
pub fn decode(delta: &[u8], dictionary: &[u8], len: usize, payload: &mut Vec<u8>) -> Result<()> {
    let malformed = || Error::Patch(PatchFault::Malformed(MALFORMED));
    let mut columns = ColumnReader::new(delta, MALFORMED);
    let count = columns.count()?;
    let (mut adds, mut inserts) = (columns.split(count)?, columns.split(count)?);
    let mut seeks = columns.split(count)?;
    let runs = columns.count()?;
    let (mut gaps, mut lens) = (columns.split(runs)?, columns.split(runs)?);
    let mut total = 0u64;
    let mut all = lens.clone();
    for _ in 0..runs {
        total = total.saturating_add(all.next()?);
    }
    let mut differences = columns.bytes(usize::try_from(total).map_err(|_| malformed())?)?;
    payload.clear();
    payload.reserve_exact(len);
    let mut end = 0u64;
    // Bytes until the next ones that differ, and the number of these.
    let (mut gap, mut run) = (0usize, 0usize);
    let number = |reader: &mut ColumnReader<'_>| reader.next_u32().map(to_usize);
    for _ in 0..count {
        let (add, insert) = (number(&mut adds)?, number(&mut inserts)?);
        let start = end.checked_add_signed(seeks.next_signed()?).ok_or_else(malformed)?;
        end = start.checked_add(to_u64(add)).ok_or_else(malformed)?;
        if add.saturating_add(insert) > len.saturating_sub(payload.len()) {
            return Err(malformed());
        }
        let old = usize::try_from(start).ok().and_then(|start| dictionary.get(start..)?.get(..add));
        let place = payload.len();
        payload.extend_from_slice(old.ok_or_else(malformed)?);
        let mut rest = payload.get_mut(place..).unwrap_or_default();
        while !rest.is_empty() {
            if gap == 0 && run == 0 {
                if gaps.left() == 0 {
                    break;
                }
                (gap, run) = (number(&mut gaps)?, number(&mut lens)?);
            }
            let skipped = gap.min(rest.len());
            gap = gap.saturating_sub(skipped);
            let (_, after) = std::mem::take(&mut rest).split_at_mut(skipped);
            let changed = run.min(after.len());
            run = run.saturating_sub(changed);
            let (bytes, after) = after.split_at_mut(changed);
            let (own, later) = differences.split_at_checked(changed).ok_or_else(malformed)?;
            for (byte, difference) in bytes.iter_mut().zip(own) {
                *byte = byte.wrapping_add(*difference);
            }
            (rest, differences) = (after, later);
        }
        payload.extend_from_slice(columns.bytes(insert)?);
    }
    let is_used = gaps.left() == 0 && gap == 0 && run == 0 && differences.is_empty();
    columns.finish()?;
    if is_used && payload.len() == len { Ok(()) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_that_differ_reach_over_steps() {
        let old = *b"0123456789";
        let steps = [Step { old: 2, add: 3, insert: 0 }, Step { old: 0, add: 2, insert: 4 }];
        let new = *b"23yz1more";
        let delta = encode(&old, &new, &steps);
        let mut payload = Vec::new();
        decode(&delta, &old, new.len(), &mut payload).unwrap();
        assert_eq!(payload, new);
        // Each byte counts.
        for at in 0..delta.len() {
            let mut lie = delta.clone();
            lie[at] ^= 1;
            assert!(decode(&lie, &old, new.len(), &mut payload).is_err() || payload != new, "{at}");
        }
        for len in 0..delta.len() {
            assert!(decode(&delta[..len], &old, new.len(), &mut payload).is_err(), "{len}");
        }
        assert!(decode(&delta, &old[..4], new.len(), &mut payload).is_err());
        assert!(decode(&delta, &old, new.len() - 1, &mut payload).is_err());
        assert!(decode(&delta, &old, new.len() + 1, &mut payload).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_panic(delta: Vec<u8>, dictionary: Vec<u8>, len in 0usize..1000) {
            let mut payload = Vec::new();
            let _ = decode(&delta, &dictionary, len, &mut payload);
            prop_assert!(payload.len() <= len);
        }
    }
}
