//! Divides the new image into copies of the old one, runs of pclusters to encode again, and other
//! bytes.

use std::collections::HashSet;
use std::ops::Range;

use ferofs_format::Algorithm;
use ferofs_update::format::delta_file::EXTENT_MAX;
use ferofs_update::format::piece::PIECE_LEN;

use super::content::ImageContent;
use super::copies::Equal;
use crate::data::encode::SEGMENT;

/// Copies of fewer bytes are made with their neighbours: each takes some bytes in the delta.
const COPY_MIN: usize = 256;
/// The same for metadata, whose old bytes are a dictionary in one range: thousands of inodes
/// between equal tails need no copies then. Longer ones spare memory and time.
const METADATA_COPY_MIN: usize = 64 << 10;
/// Bytes by which the distance of equal bytes in both images may change from one range of metadata
/// to the next, if both are to be in one dictionary.
const NEAR: usize = 64 << 10;
/// Bytes of content after a run that its compressor gets, too, if it makes the same bytes only
/// then. liblz4 encodes the last 64 KiB of its input in another way, Zstandard's output is filled
/// in pieces of 128 KiB, of which the last one does not fit, and trials reach as far as the content
/// of the cluster before them.
pub(super) const AHEAD: [u64; 6] = [0, 4 << 10, 66 << 10, 160 << 10, 640 << 10, 2 << 20];
/// Bytes of content for each byte of its pclusters at most: `apply` limits the work for each byte
/// of the new image. Pclusters with more are carried.
const RATIO_MAX: usize = 100;
/// Bytes of a part of other bytes at most.
const RAW_MAX: usize = PIECE_LEN / 4;

/// Consecutive extents of one file: pclusters, and content that is stored between them.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Into [`ImageContent::extents`].
    pub(super) extents: Range<usize>,
}

impl Run {
    /// Whether it has so much content for its size that `apply` may not take the time to encode it.
    pub(super) fn is_too_long(&self, content: &ImageContent) -> bool {
        let extents = &content.extents[self.extents.clone()];
        let (first, last) = (&extents[0], &extents[extents.len() - 1]);
        let len: usize = extents.iter().map(|extent| extent.len).sum();
        len / RATIO_MAX > last.at + last.size - first.at
    }

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
    /// Bytes as they are, at most a piece.
    Raw { range: Range<usize>, of: RawBytes },
}

/// Bytes that are not a pcluster.
#[derive(Clone, Debug)]
pub(super) enum RawBytes {
    /// Content: of the extent with this number.
    Content(usize),
    /// Metadata, and the range of the old image that lies beside it, if that is known.
    Metadata(Option<Range<usize>>),
}

/// The parts of the bytes `range` of the new image, in order. Inline extents that are `unchanged`
/// count as metadata, and so do `carried` ones: they differ from the old image's bytes in a few
/// places.
pub(super) fn divide(
    content: &ImageContent,
    equal: &[Equal],
    unchanged: &[Equal],
    carried: &HashSet<usize>,
    range: Range<usize>,
) -> Vec<Part> {
    let copies = copies(content, equal, carried);
    let mut parts: Vec<Part> = Vec::new();
    let mut at = range.start;
    for (number, extent) in content.extents.iter().enumerate() {
        let end = extent.at + extent.size;
        let is_unchanged = || {
            extent.is_inline
                && unchanged.binary_search_by_key(&extent.at, |found| found.new).is_ok()
        };
        let old = copies[number];
        let is_carried = old.is_none() && extent.algorithm.is_some() && carried.contains(&number);
        if extent.at < range.start || end > range.end || is_carried || is_unchanged() {
            continue;
        }
        divide_metadata([equal, unchanged], at..extent.at, &mut parts);
        at = end;
        if let Some(Part::Run(run)) = parts.last_mut()
            && old.is_none()
            && continues(content, run, number)
        {
            run.extents.end = number + 1;
        } else if extent.algorithm.is_none() {
            divide_content(equal, extent.at..end, number, &mut parts);
        } else if let Some(old) = old {
            push_copy(&mut parts, old, extent.size);
        } else if extent.len > EXTENT_MAX {
            // The content, for example zeroes in one pcluster, has no space in a piece.
            push_raw(&mut parts, extent.at..end, &RawBytes::Metadata(None));
        } else {
            parts.push(Part::Run(Run { extents: number..number + 1 }));
        }
    }
    divide_metadata([equal, unchanged], at..range.end, &mut parts);
    parts
}

/// Where the old image has each extent. Compressors remember what they encoded before, so the
/// extents from the start of a segment up to its last new one are encoded again, too. They start
/// anew after `carried` ones, which no compressor makes.
fn copies(content: &ImageContent, equal: &[Equal], carried: &HashSet<usize>) -> Vec<Option<usize>> {
    let extents = &content.extents;
    let mut copies: Vec<_> =
        extents.iter().map(|extent| copy_of(equal, extent.at, extent.size)).collect();
    let mut is_before_new = false;
    for (number, old) in copies.iter_mut().enumerate().rev() {
        if carried.contains(&number) {
            is_before_new = false;
            continue;
        }
        is_before_new |= old.is_none() && extents[number].algorithm.is_some();
        if is_before_new && extents[number].len <= EXTENT_MAX {
            *old = None;
        }
        is_before_new &= follows(content, number);
    }
    copies
}

/// Whether extent `number` follows the one before in its file and in the image, and the builder's
/// compressor did not start again there.
fn follows(content: &ImageContent, number: usize) -> bool {
    let Some(last) = number.checked_sub(1).map(|before| &content.extents[before]) else {
        return false;
    };
    let next = &content.extents[number];
    last.file == next.file
        && last.offset + last.len as u64 == next.offset
        && last.at + last.size == next.at
        && !next.offset.is_multiple_of(SEGMENT)
}

/// Whether the old image has most bytes of extent `number`, perhaps in several places.
pub(super) fn is_old(content: &ImageContent, equal: &[Equal], number: usize) -> bool {
    let extent = &content.extents[number];
    let old = within(equal, extent.at..extent.at + extent.size).map(|equal| equal.len);
    old.sum::<usize>() * 2 > extent.size
}

/// Whether extent `number` continues `run`.
fn continues(content: &ImageContent, run: &Run, number: usize) -> bool {
    let (first, next) = (&content.extents[run.extents.start], &content.extents[number]);
    run.extents.end == number
        && follows(content, number)
        && next.algorithm.is_none_or(|own| run.algorithm(content) == Some(own))
        && (next.offset - first.offset) as usize + next.len <= PIECE_LEN
        && next.at + next.size - first.at <= PIECE_LEN
}

/// The range that has the byte `at`, or the first one after it.
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
        Some(Part::Copy { old: last, len: last_len }) if *last + *last_len == old => {
            *last_len += len
        }
        _ => parts.push(Part::Copy { old, len }),
    }
}

fn push_raw(parts: &mut Vec<Part>, range: Range<usize>, of: &RawBytes) {
    for start in range.clone().step_by(RAW_MAX) {
        parts.push(Part::Raw { range: start..range.end.min(start + RAW_MAX), of: of.clone() });
    }
}

/// The ranges of `equal` that have bytes of `range`, cut to it.
pub(super) fn within(equal: &[Equal], range: Range<usize>) -> impl Iterator<Item = Equal> {
    let first = range_at(equal, range.start);
    let equal = equal[first..].iter().take_while(move |equal| equal.new < range.end);
    equal.map(move |equal| {
        let (start, end) = (equal.new.max(range.start), equal.end().min(range.end));
        Equal { new: start, old: equal.old + (start - equal.new), len: end - start }
    })
}

/// Divides the content of a stored extent into copies and other bytes.
fn divide_content(equal: &[Equal], range: Range<usize>, extent: usize, parts: &mut Vec<Part>) {
    let of = RawBytes::Content(extent);
    let mut at = range.start;
    for found in within(equal, range.clone()) {
        if found.len < COPY_MIN && range.len() > COPY_MIN {
            continue;
        }
        push_raw(parts, at..found.new, &of);
        push_copy(parts, found.old, found.len);
        at = found.end();
    }
    push_raw(parts, at..range.end, &of);
}

/// Lets the copy before `range` go on as far as the old image does, which costs nothing: the
/// padding between extents that have moved together is a part of their copy. Returns its new end in
/// both images.
fn continue_copy(
    equal: &[Equal],
    range: Range<usize>,
    parts: &mut [Part],
) -> Option<(usize, usize)> {
    if let (Some(Part::Copy { old, len }), Some(found)) =
        (parts.last_mut(), within(equal, range.clone()).next())
        && found.new == range.start
        && found.old == *old + *len
    {
        *len += found.len;
        return Some((found.end(), found.old + found.len));
    }
    None
}

/// Divides metadata into long copies, and other bytes with the old ones that lie beside them. Each
/// list of `equal` is sorted.
fn divide_metadata(equal: [&[Equal]; 2], range: Range<usize>, parts: &mut Vec<Part>) {
    let mut found: Vec<Equal> =
        equal.iter().flat_map(|equal| within(equal, range.clone())).collect();
    found.sort_by_key(|equal| equal.new);
    let flush = |parts: &mut Vec<Part>, range: Range<usize>, beside: Option<Range<usize>>| {
        let beside = beside.map(|known| known.start..known.end.max(known.start + range.len()));
        push_raw(parts, range, &RawBytes::Metadata(beside));
    };
    // The old bytes beside those from `at` on, and the ends of the equal range before.
    let (mut at, mut beside): (usize, Option<Range<usize>>) = (range.start, None);
    let mut ends = continue_copy(equal[0], range.clone(), parts);
    if let Some((new, old)) = ends {
        (at, beside) = (new, Some(old..old));
    }
    for equal in found {
        let is_known = equal.new < at || ends.is_some_and(|(new, _)| equal.end() <= new);
        if is_known || equal.len < COPY_MIN {
            continue;
        }
        let old_end = equal.old + equal.len;
        let is_near = ends.is_none_or(|(new, old)| {
            equal.old.abs_diff(old + equal.new.saturating_sub(new)) <= NEAR
        });
        ends = Some((equal.end(), old_end));
        if equal.len >= METADATA_COPY_MIN || !is_near {
            flush(parts, at..equal.new, beside.take());
            push_copy(parts, equal.old, equal.len);
            (at, beside) = (equal.end(), Some(old_end..old_end));
            continue;
        }
        if equal.new - at >= RAW_MAX {
            flush(parts, at..equal.new, beside.take());
            at = equal.new;
        }
        let start = equal.old.saturating_sub(equal.new - at);
        beside = Some(match beside {
            Some(known) => known.start.min(equal.old)..known.end.max(old_end),
            None => start..old_end,
        });
    }
    flush(parts, at..range.end, beside);
}
