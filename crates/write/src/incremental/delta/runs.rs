//! Finds how `apply` encodes the pclusters of each run again, within the work that it accepts.
//! Pieces are made from what is found.

use std::collections::HashMap;
use std::ops::Range;

use ferofs_format::FileOffset;
use ferofs_update::format::delta_file::PAYLOAD_MAX;
use ferofs_update::format::plan::{ExtentKind, Unit};
use ferofs_update::format::reencode::Encoders;

use super::context::{DeltaContext, content_len, extents, made_len};
use super::methods::stored;
use super::units::{AHEAD, Part, Run};
use crate::data::encode::SEGMENT;
use crate::error::Result;
use crate::incremental::create::describe::units::{CheckedUnit, encode_again};

/// Bytes of content ahead that cost as much as one carried byte: nearly all are old ones.
const AHEAD_COST: u64 = 64;

/// How the pclusters of a run are made.
#[derive(Clone, Default)]
pub(super) struct RunUnit {
    /// `None`: they are carried.
    pub(super) unit: Option<Unit>,
    /// Nanoseconds that `apply` takes to encode them, at most, and the bytes that they have.
    work: u64,
    pub(super) size: u64,
    /// Bytes that the payload of its piece has for it.
    payload_len: usize,
}

impl RunUnit {
    /// Bytes that are carried beside the content of a unit.
    pub(super) fn carried_len(&self) -> u64 {
        self.unit.as_ref().map_or(0, carried_len)
    }

    /// Those of the `extents` of its run that are carried.
    pub(super) fn carried(&self, extents: Range<usize>) -> Vec<usize> {
        match &self.unit {
            None => extents.collect(),
            Some(unit) => {
                let kinds = extents.zip(&unit.extents);
                let carried = kinds.filter(|(_, extent)| extent.kind == ExtentKind::Carried);
                carried.map(|(number, _)| number).collect()
            }
        }
    }
}

/// Lets the units with the most work for each byte be carried, so that the others take at most
/// `limit` nanoseconds.
pub(super) fn carry_slowest<'u>(units: impl Iterator<Item = &'u mut RunUnit>, limit: u64) {
    let mut units: Vec<_> = units.filter(|unit| unit.unit.is_some()).collect();
    units.sort_by_key(|unit| unit.work / unit.size.max(1));
    let mut sum = 0u64;
    for unit in units {
        sum = sum.saturating_add(unit.work);
        if sum > limit {
            unit.unit = None;
            unit.payload_len = unit.size as usize;
        }
    }
}

/// The units of the runs among the `parts` of a piece, in order. Runs with these extents are
/// `known` from before.
pub(super) fn check_runs(
    context: &DeltaContext<'_>,
    parts: &[Part],
    known: &HashMap<Range<usize>, RunUnit>,
    encoders: &mut Encoders,
) -> Result<Vec<RunUnit>> {
    // Each run may take twice its content, for bytes that are carried or ahead, and what is left by
    // all parts.
    let total: usize = parts.iter().map(|part| made_len(context, part)).sum();
    let mut spare = PAYLOAD_MAX.saturating_sub(total * 2);
    let mut units = Vec::new();
    for part in parts {
        let len = made_len(context, part);
        let most = (spare + len * 2).min(PAYLOAD_MAX);
        let payload_len = match part {
            Part::Run(run) => {
                let unit = match known.get(&run.extents).filter(|unit| unit.payload_len <= most) {
                    Some(unit) => unit.clone(),
                    None => checked(context, run, most, encoders)?,
                };
                let payload_len = unit.payload_len;
                units.push(unit);
                payload_len
            }
            _ => len,
        };
        spare = most.saturating_sub(payload_len);
    }
    Ok(units)
}

/// How the pclusters of `run` are made, with a payload of at most `most` bytes.
fn checked(
    context: &DeltaContext<'_>,
    run: &Run,
    most: usize,
    encoders: &mut Encoders,
) -> Result<RunUnit> {
    let extents = extents(context, run);
    let bytes = stored_bytes(context, run)?;
    let size = bytes.len() as u64;
    let shape = context.methods.shape(&context.new.content, run);
    let len = content_len(context, run);
    let shape = shape.filter(|_| !run.is_too_long(&context.new.content));
    let mut best: Option<(u64, RunUnit)> = None;
    if let Some(shape) = shape {
        let first = &extents[0];
        let end = first.offset + len as u64;
        let lens = ahead_lens(context.new.content.files[first.file].size, end);
        let stored: Vec<_> = extents.iter().map(stored).collect();
        for ahead in lens {
            // Mostly, the first attempt finds them all.
            let own = content(context, run, len + ahead as usize)?;
            encoders.take_work();
            let CheckedUnit { unit, payload } =
                encode_again(&stored, own, &bytes, &context.methods.params, encoders, shape)?;
            // With all that was tried, so `apply` needs no more.
            let work = encoders.take_work();
            let carried = unit.as_ref().map_or(size, carried_len);
            let is_better =
                best.as_ref().is_none_or(|(least, ..)| carried + ahead / AHEAD_COST < *least);
            if payload.len() <= most && is_better {
                let payload_len = payload.len();
                best = Some((carried, RunUnit { unit, work, size, payload_len }));
            }
            // More content is of no use, or the compressor is another one.
            if carried == 0 || carried > size / 2 && extents.len() > 2 {
                break;
            }
        }
    }
    Ok(best.map_or_else(
        || RunUnit { payload_len: bytes.len(), ..RunUnit::default() },
        |(_, unit)| unit,
    ))
}

/// Bytes of content to try after a run that ends at `end` in a file of `size` bytes, the most
/// likely ones first: the builder's compressor saw the content up to the end of a segment, and
/// others up to the end of the file.
fn ahead_lens(size: u64, end: u64) -> Vec<u64> {
    let limits =
        [size.min(end.next_multiple_of(SEGMENT)), size].map(|limit| limit.saturating_sub(end));
    let mut lens: Vec<u64> = Vec::new();
    for len in limits.iter().flat_map(|limit| AHEAD.map(|len| len.min(*limit))) {
        if !lens.contains(&len) {
            lens.push(len);
        }
    }
    lens
}

/// The bytes of the pclusters of `run`, and of what is stored between them.
pub(super) fn stored_bytes(context: &DeltaContext<'_>, run: &Run) -> Result<Vec<u8>> {
    let extents = extents(context, run);
    let (first, last) = (&extents[0], &extents[extents.len() - 1]);
    context.new.read(first.at..last.at + last.size)
}

/// `len` bytes of content from the start of `run` on.
pub(super) fn content(context: &DeltaContext<'_>, run: &Run, len: usize) -> Result<Vec<u8>> {
    let first = &extents(context, run)[0];
    let mut content = vec![0; len];
    let nid = context.new.content.files[first.file].nid;
    let image = &context.new.image;
    let read = image
        .inode(nid)
        .and_then(|inode| image.read_at(&inode, FileOffset::new(first.offset), &mut content));
    read.map_err(|error| context.new.in_image(error))?;
    Ok(content)
}

pub(super) fn carried_len(unit: &Unit) -> u64 {
    let carried = unit.extents.iter().filter(|extent| extent.kind == ExtentKind::Carried);
    carried.map(|extent| u64::from(extent.size)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ahead_ends_with_a_segment_or_with_the_file() {
        assert_eq!(ahead_lens(5000, 5000), [0]);
        assert_eq!(ahead_lens(SEGMENT + 9, SEGMENT), [0, 9]);
        assert_eq!(
            ahead_lens(3 * SEGMENT, SEGMENT - 70_000),
            [0, 4096, 67_584, 70_000, 163_840, 655_360, 2 << 20]
        );
    }

    #[test]
    fn the_slowest_pclusters_are_carried() {
        let unit = || Some(Unit { method: 0, content_len: 0, extents: Vec::new() });
        let of = |(work, size)| RunUnit { unit: unit(), work, size, payload_len: 0 };
        let carried = |limit| {
            let mut units = [(100, 10), (90, 90), (0, 0), (50, 1), (30, 10)].map(of);
            carry_slowest(units.iter_mut(), limit);
            units.map(|unit| unit.unit.is_none())
        };
        assert_eq!(carried(270), [false; 5]);
        assert_eq!(carried(269), [false, false, false, true, false]);
        assert_eq!(carried(219), [true, false, false, true, false]);
        assert_eq!(carried(89), [true, true, false, true, true]);
    }
}
