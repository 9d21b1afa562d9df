//! Divides the appended bytes into pieces, and compresses each, with similar bytes of the base as
//! dictionary.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::tree::NodeId;
use ferofs_codec::Params;
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{Image, Source};

use super::alignment::align;
use super::units::{CheckedUnit, FoundUnit, Owner, Shape};
use crate::error::{Error, Result};
use crate::incremental::create::context::CreateContext;
use crate::incremental::create::metadata::WrittenMetadata;
use crate::options::RunOptions;
use ferofs_threads::fitting_workers;
use ferofs_update::format::piece::base::{Base, REFERENCES_MAX};
use ferofs_update::format::piece::delta::{self, DELTA_MAX};
use ferofs_update::format::piece::{PIECE_LEN, Piece, PieceKind, compress};
use ferofs_update::format::plan::{Item, Plan, Reference};
use ferofs_update::format::prediction::Prediction;
use ferofs_update::format::reencode::Encoders;
use ferofs_update::image::digest::of_piece;

/// Zstandard's level up to [`LARGE`] appended bytes, and above.
pub(crate) const LEVELS: [i32; 2] = [19, 12];
/// Appended bytes above which speed counts more than size.
const LARGE: u64 = 128 << 20;
/// Bytes between two references up to which they are merged: a reference takes some bytes in the
/// plan, and each is a read.
pub(crate) const GAP: u64 = 2048;
/// Bytes of old content before and after the offset of new content that are searched in files
/// larger than [`WHOLE_MAX`]: content seldom moves further.
const AROUND: u64 = 4 << 20;
/// Bytes of an old file up to which all of it is searched.
const WHOLE_MAX: u64 = 12 << 20;
/// Bytes of a compressed payload from which on a delta is tried.
const DELTA_FROM: usize = 256;
/// Zstandard's level that says what a high one could give, and per cent of its result that the high
/// one gives at best.
const TRIAL_LEVEL: i32 = 3;
const TRIAL_GAIN: usize = 72;

/// Workers at most, and bytes that each needs at most for Zstandard's tables at these levels.
const WORKERS_MAX: usize = 8;
const WORKER_MEMORY: u64 = 300 << 20;

/// The number of threads that make pieces.
pub(crate) fn workers(run: &RunOptions) -> usize {
    fitting_workers(NonZeroUsize::new(run.worker_count().min(WORKERS_MAX)), WORKER_MEMORY)
}

/// What the pieces are made from.
pub(crate) struct Inputs<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    /// The new image.
    pub(crate) image: &'a Image,
    pub(crate) written: &'a WrittenMetadata,
    /// The appended bytes.
    pub(crate) region: &'a dyn Source,
    /// Where metadata starts in the new image.
    pub(crate) metadata: u64,
    pub(crate) units: &'a [FoundUnit],
    /// The old file that each node's content resembles.
    pub(crate) old_files: &'a HashMap<NodeId, Nid>,
    /// What `apply` predicts of the appended bytes.
    pub(crate) prediction: &'a Prediction,
    /// Old stored content, for patches that carry encoded bytes.
    pub(crate) old_content: &'a [Range<u64>],
    pub(crate) methods: &'a [Params],
    /// The largest pcluster of the metabox, if it has grown.
    pub(crate) metabox_pcluster: Option<u32>,
}

/// A part of the appended bytes, before compression.
#[derive(Clone, Debug)]
enum Part {
    /// Positions in the new image.
    Raw(Range<u64>),
    /// The number of a unit.
    Unit(usize),
}

/// The parts of a piece.
#[derive(Debug)]
struct Group {
    kind: PieceKind,
    parts: Vec<Part>,
    /// Positions in the new image.
    range: Range<u64>,
    references: Vec<Reference>,
}

pub(crate) fn make(inputs: &Inputs<'_>) -> Result<Vec<Piece>> {
    let context = inputs.context;
    let options = context.inputs.options;
    let groups = groups(inputs)?;
    let by_size = LEVELS[usize::from(inputs.region.size() > LARGE)];
    let level = context.options.level.unwrap_or(by_size);
    ferofs_threads::parallel(
        workers(&options.run),
        groups.len(),
        || (Encoders::new(inputs.methods), Vec::new()),
        |(encoders, dictionary), number| {
            options.run.cancel.check()?;
            let group = &groups[number];
            let (plan, payload) = fill(inputs, group, encoders)?;
            let base = Base {
                source: &**context.base,
                size: context.area.size(),
                image: context.inputs.old,
                prediction: Some(inputs.prediction),
                threads: 1,
                longest_extent: u64::MAX,
            };
            base.read(&plan.references, dictionary, || Ok(()))?;
            let (compressed, delta_len) = shortest(&payload, dictionary, level)?;
            let plan = match &compressed {
                Some(_) => plan,
                None => Plan { references: Vec::new(), ..plan },
            };
            let start = context.area.size();
            let digest =
                of_piece(inputs.region, group.range.start - start..group.range.end - start)
                    .map_err(|e| Error::io_unnamed("read a temporary file", e))?;
            let longest_extent = base.longest_of(&plan.references)?;
            Ok(Piece {
                kind: group.kind,
                plan: plan.encode()?,
                payload_len: payload.len(),
                region_len: (group.range.end - group.range.start) as usize,
                digest,
                compressed: compressed.is_some(),
                delta_len,
                payload: compressed.unwrap_or(payload),
                // Extents are at most 12 MiB long.
                longest_extent: u32::try_from(longest_extent).unwrap_or(u32::MAX),
            })
        },
    )
}

/// The shorter of the compressed payload and its compressed delta to the dictionary, and the length
/// of the delta if that is it; `None` if neither makes it shorter.
pub(crate) fn shortest(
    payload: &[u8],
    dictionary: &[u8],
    level: i32,
) -> Result<(Option<Vec<u8>>, usize)> {
    let compress = |bytes: &[u8], dictionary: &[u8], level: i32| {
        compress(bytes, dictionary, level).map_err(|e| Error::io_unnamed("compress", e))
    };
    if level < LEVELS[0] || dictionary.is_empty() {
        return Ok((compress(payload, dictionary, level)?, 0));
    }
    let trial =
        compress(payload, dictionary, TRIAL_LEVEL)?.map_or(payload.len(), |bytes| bytes.len());
    let mut shorter = None;
    if trial >= DELTA_FROM {
        let delta = delta::encode(dictionary, payload, &align(dictionary, payload));
        if delta.len() <= DELTA_MAX {
            // The dictionary would make it 1 % shorter.
            shorter = compress(&delta, &[], level)?.map(|bytes| (bytes, delta.len()));
        }
    }
    let len = shorter.as_ref().map_or(usize::MAX, |(bytes, _)| bytes.len());
    // Searching in the dictionary at a high level takes nearly all of the time.
    if let Some((delta, delta_len)) = shorter.take_if(|_| trial / 100 * TRIAL_GAIN > len) {
        return Ok((Some(delta), delta_len));
    }
    let plain = compress(payload, dictionary, level)?;
    Ok(match shorter {
        Some((delta, delta_len)) if plain.as_ref().map_or(payload.len(), Vec::len) > len => {
            (Some(delta), delta_len)
        }
        _ => (plain, 0),
    })
}

/// The items and the payload of a piece.
fn fill(inputs: &Inputs<'_>, group: &Group, encoders: &mut Encoders) -> Result<(Plan, Vec<u8>)> {
    let start = inputs.context.area.size();
    let read = |range: &Range<u64>| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let io = |e| Error::io_unnamed("read a temporary file", e);
        inputs.region.read_exact_at(range.start - start, &mut bytes).map_err(io).map(|()| bytes)
    };
    let compression = inputs.context.compression.as_ref();
    let block = inputs.image.superblock().block_size.bytes() as u32;
    let pcluster = compression.and_then(|compression| compression.pcluster).unwrap_or(block);
    let (mut items, mut payload) = (Vec::new(), Vec::new());
    let mut raw = 0;
    let mut push_raw = |len: usize, items: &mut Vec<Item>, next: Option<Item>| {
        raw += len;
        if let Some(next) = next {
            if raw > 0 {
                items.push(Item::Raw { len: raw as u32 });
            }
            items.push(next);
            raw = 0;
        }
    };
    for part in &group.parts {
        match part {
            Part::Raw(range) => {
                payload.extend_from_slice(&read(range)?);
                push_raw((range.end - range.start) as usize, &mut items, None);
            }
            Part::Unit(number) => {
                let unit = &inputs.units[*number];
                let appended = read(&(unit.at..unit.at + unit.size))?;
                let mut content = vec![0; unit.len as usize];
                let (nid, pcluster) = match unit.owner {
                    Owner::File(node) => (inputs.written.nid(node), pcluster),
                    Owner::Metabox => (
                        inputs.image.superblock().metabox.unwrap_or_default(),
                        inputs.metabox_pcluster.unwrap_or(pcluster),
                    ),
                };
                let inode = inputs.image.inode(nid)?;
                inputs.image.read_at(&inode, FileOffset::new(unit.offset), &mut content)?;
                let CheckedUnit { unit, payload: own } = unit.check(
                    content,
                    &appended,
                    inputs.methods,
                    encoders,
                    Shape { block, pcluster },
                )?;
                payload.extend_from_slice(&own);
                match unit {
                    Some(unit) => push_raw(0, &mut items, Some(Item::Unit(unit))),
                    None => push_raw(own.len(), &mut items, None),
                }
            }
        }
    }
    if raw > 0 {
        items.push(Item::Raw { len: raw as u32 });
    }
    Ok((Plan { references: group.references.clone(), items }, payload))
}

/// Divides the region into the parts of pieces.
fn groups(inputs: &Inputs<'_>) -> Result<Vec<Group>> {
    let start = inputs.context.area.size();
    let end = start + inputs.region.size();
    let mut parts = Vec::new();
    let mut at = start;
    let push_raw = |from: u64, to: u64, parts: &mut Vec<(Range<u64>, Part)>| {
        let mut from = from;
        while from < to {
            // No part of a piece is content and metadata.
            let border = if from < inputs.metadata { inputs.metadata.min(to) } else { to };
            let next = border.min(from + PIECE_LEN as u64);
            parts.push((from..next, Part::Raw(from..next)));
            from = next;
        }
    };
    for (number, unit) in inputs.units.iter().enumerate() {
        push_raw(at, unit.at, &mut parts);
        at = unit.at + unit.size;
        parts.push((unit.at..at, Part::Unit(number)));
    }
    push_raw(at, end, &mut parts);

    let mut groups: Vec<Group> = Vec::new();
    let (mut payload, mut referred) = (0, 0);
    for (range, part) in parts {
        let kind =
            if range.start < inputs.metadata { PieceKind::Content } else { PieceKind::Metadata };
        let len = match &part {
            Part::Raw(range) => range.end - range.start,
            Part::Unit(number) => inputs.units[*number].len,
        };
        let reference = reference(inputs, &part)?;
        let known =
            |group: &Group| reference.is_none_or(|reference| group.references.contains(&reference));
        let new_len = |group: &Group| {
            if known(group) { 0 } else { reference.map_or(0, |r| u64::from(r.len())) }
        };
        match groups.last_mut() {
            Some(group)
                if group.kind == kind
                    && payload + len <= PIECE_LEN as u64
                    && group.range.end - group.range.start + (range.end - range.start)
                        <= PIECE_LEN as u64
                    && referred + new_len(group) <= REFERENCES_MAX as u64 =>
            {
                payload += len;
                referred += new_len(group);
                if !known(group) {
                    group.references.extend(reference);
                }
                group.range.end = range.end;
                group.parts.push(part);
            }
            _ => {
                payload = len;
                referred = reference.map_or(0, |reference| u64::from(reference.len()));
                let references = reference.into_iter().collect();
                groups.push(Group { kind, parts: vec![part], range, references });
            }
        }
    }
    for group in &mut groups {
        match group.kind {
            PieceKind::Content => add_old_content(inputs, group),
            // First, so that it is as near to what resembles it in each piece.
            PieceKind::Metadata => drop(group.references.splice(..0, predicted(inputs, group))),
        }
    }
    Ok(groups)
}

/// The content of the old file that `part` resembles, or what is predicted of it.
fn reference(inputs: &Inputs<'_>, part: &Part) -> Result<Option<Reference>> {
    let Part::Unit(number) = part else { return Ok(None) };
    let unit = &inputs.units[*number];
    let node = match unit.owner {
        Owner::File(node) => node,
        Owner::Metabox => {
            return Ok(Some(Reference::PredictedMetabox {
                pos: unit.offset,
                len: unit.len as u32,
            }));
        }
    };
    let Some(nid) = inputs.old_files.get(&node) else { return Ok(None) };
    let size = inputs.context.inputs.old.inode(*nid)?.size();
    let (from, to) = match size <= WHOLE_MAX {
        true => (0, size),
        false => {
            let end = (unit.offset + unit.len).saturating_add(AROUND).min(size);
            (unit.offset.saturating_sub(AROUND).min(end), end)
        }
    };
    Ok((from < to).then(|| Reference::File {
        nid: nid.get(),
        offset: from,
        len: (to - from) as u32,
    }))
}

/// Adds old stored content to the references of `group`.
fn add_old_content(inputs: &Inputs<'_>, group: &mut Group) {
    let mut ranges: Vec<_> = inputs.old_content.iter().map(|old| (old.start, old.end)).collect();
    let mut left = REFERENCES_MAX as u64;
    merge(&mut ranges, GAP);
    for (start, end) in ranges {
        let len = end.min(inputs.context.area.size()).saturating_sub(start).min(left);
        left -= len;
        if len > 0 {
            group.references.push(Reference::Image { pos: start, len: len as u32 });
        }
    }
}

/// The unit that `part` is, if it is one of the metabox.
fn metabox_unit<'a>(inputs: &Inputs<'a>, part: &Part) -> Option<&'a FoundUnit> {
    let Part::Unit(number) = part else { return None };
    inputs.units.get(*number).filter(|unit| unit.owner == Owner::Metabox)
}

/// References to the predicted bytes of `group`, without those of the encoded metabox: they are not
/// predicted, and count as zeroes.
fn predicted(inputs: &Inputs<'_>, group: &Group) -> Vec<Reference> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut at = group.range.start;
    for part in &group.parts {
        let len = match part {
            Part::Raw(range) => range.end - range.start,
            Part::Unit(number) => inputs.units[*number].size,
        };
        let range = at..at + len;
        at = range.end;
        match found.last_mut() {
            _ if metabox_unit(inputs, part).is_some() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    let found = found.into_iter().filter(|range| !range.is_empty());
    found
        .map(|range| Reference::Predicted {
            pos: range.start,
            len: (range.end - range.start) as u32,
        })
        .collect()
}

/// Sorts ranges, and merges those with at most `gap` bytes between them.
pub(crate) fn merge(ranges: &mut Vec<(u64, u64)>, gap: u64) {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.drain(..) {
        match merged.last_mut() {
            Some(last) if start <= last.1.saturating_add(gap) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}
