//! Divides the new image into copies of the old one, runs of pclusters to encode again, and other bytes.

use std::ops::Range;

use ferofs_format::Algorithm;
use ferofs_patch::format::piece::PIECE_LEN;

use super::content::ImageContent;
use super::copies::Equal;
use crate::data::encode::SEGMENT;

/// Copies of fewer bytes are made with their neighbours: each takes some bytes in the delta.
const COPY_MIN: usize = 256;

/// Consecutive extents of one file: pclusters, and content that is stored between them.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Into [`ImageContent::extents`].
    pub(super) extents: Range<usize>,
}

impl Run {
    pub(super) fn algorithm(&self, content: &ImageContent) -> Option<Algorithm> {
        content.extents[self.extents.clone()].iter().find_map(|extent| extent.algorithm)
    }
}

/// A part of the new image.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Bytes of the old image, from `old` on.
    Copy { old: usize, len: usize },
    /// Pclusters.
    Run(Run),
    /// Bytes as they are, at most a piece; of the extent with this number if they are content.
    Raw { range: Range<usize>, extent: Option<usize> },
}

/// The parts of the bytes `range` of the new image, in order.
pub(super) fn divide(content: &ImageContent, equal: &[Equal], range: Range<usize>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = range.start;
    for (number, extent) in content.extents.iter().enumerate() {
        let end = extent.at + extent.size;
        if extent.at < range.start || end > range.end {
            continue;
        }
        divide_bytes(equal, at..extent.at, None, &mut parts);
        at = end;
        let old = copy_of(equal, extent.at, extent.size);
        if let Some(Part::Run(run)) = parts.last_mut()
            && old.is_none()
            && continues(content, run, number)
        {
            run.extents.end = number + 1;
        } else if extent.algorithm.is_none() {
            divide_bytes(equal, extent.at..end, Some(number), &mut parts);
        } else if let Some(old) = old {
            push_copy(&mut parts, old, extent.size);
        } else if extent.len > PIECE_LEN {
            // The content, for example zeroes in one pcluster, has no space in a piece.
            divide_bytes(equal, extent.at..end, None, &mut parts);
        } else {
            parts.push(Part::Run(Run { extents: number..number + 1 }));
        }
    }
    divide_bytes(equal, at..range.end, None, &mut parts);
    parts
}

/// Whether extent `number` continues `run`, and the builder's compressor did not start again there.
fn continues(content: &ImageContent, run: &Run, number: usize) -> bool {
    let (first, last) = (&content.extents[run.extents.start], &content.extents[run.extents.end - 1]);
    let next = &content.extents[number];
    run.extents.end == number
        && last.file == next.file
        && next.algorithm.is_none_or(|own| run.algorithm(content) == Some(own))
        && last.offset + last.len as u64 == next.offset
        && last.at + last.size == next.at
        && !next.offset.is_multiple_of(SEGMENT)
        && (next.offset - first.offset) as usize + next.len <= PIECE_LEN
        && next.at + next.size - first.at <= PIECE_LEN
}

/// The range that has the byte `at`, or the first one behind it.
fn range_at(equal: &[Equal], at: usize) -> usize {
    equal.partition_point(|equal| equal.end() <= at)
}

/// The old position of these bytes if the old image has all of them in one place.
fn copy_of(equal: &[Equal], at: usize, len: usize) -> Option<usize> {
    let found = equal.get(range_at(equal, at))?;
    (found.new <= at && at + len <= found.end()).then(|| found.old + (at - found.new))
}

fn push_copy(parts: &mut Vec<Part>, old: usize, len: usize) {
    match parts.last_mut() {
        Some(Part::Copy { old: last, len: last_len }) if *last + *last_len == old => *last_len += len,
        _ => parts.push(Part::Copy { old, len }),
    }
}

/// Divides bytes that are no pclusters into copies and others.
fn divide_bytes(equal: &[Equal], range: Range<usize>, extent: Option<usize>, parts: &mut Vec<Part>) {
    let push_raw = |range: Range<usize>, parts: &mut Vec<Part>| {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + PIECE_LEN / 4);
            parts.push(Part::Raw { range: start..end, extent });
            start = end;
        }
    };
    let mut at = range.start;
    for found in &equal[range_at(equal, range.start)..] {
        let (start, end) = (found.new.max(at), found.end().min(range.end));
        if start >= range.end {
            break;
        }
        if end.saturating_sub(start) < COPY_MIN && range.len() > COPY_MIN {
            continue;
        }
        push_raw(at..start, parts);
        push_copy(parts, found.old + (start - found.new), end - start);
        at = end;
    }
    push_raw(at..range.end, parts);
}
