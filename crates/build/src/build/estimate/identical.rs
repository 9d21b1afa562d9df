//! Finds what content an image stores: not that of files with the same content as an earlier one, which their sizes and samples of their content
//! tell, and for some of them all of it; and the holes of sparse files only if they are not stored in chunks.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::build::estimate::unreadable::is_tolerated;
use crate::error::Result;
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::data_ranges::Ranges;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Tree};

/// Bytes of each of a file's samples: at its start, in its middle and at its end.
const SAMPLE_LEN: u64 = 4 << 10;
/// The most files of which samples are read. Those of equal size with the most bytes together are read; of the others each second, third, ... group of equal
/// size, which stands for the rest.
const FILES_MAX: usize = 20_000;
/// Files with the same samples can differ elsewhere, as scanned pages and snapshots of a database do. Of all that have the same samples two are compared: up to
/// this many pieces at equal distances, of so many bytes each.
const PIECES_MAX: u64 = 128;
const PIECE_LEN: u64 = 64 << 10;
/// Bytes that are compared at most. Beyond it, files with the same samples count as identical.
const COMPARED_MAX: u64 = 128 << 20;

/// The files whose content an image stores.
#[derive(Debug)]
pub(super) struct Stored {
    /// By node.
    contains: Vec<bool>,
    /// Where sparse files have data, if that is known.
    sparse: HashMap<NodeId, Ranges>,
}

impl Stored {
    pub(super) fn contains(&self, id: NodeId) -> bool {
        self.contains[id.index()]
    }

    /// The ranges of a file of `size` bytes that have data.
    pub(super) fn data_ranges(&self, id: NodeId, size: u64) -> Cow<'_, [(u64, u64)]> {
        match self.sparse.get(&id) {
            Some(ranges) => Cow::Borrowed(ranges),
            None => Cow::Owned(vec![(0, size)]),
        }
    }

    /// The sparse files, with the ranges that have data.
    pub(super) fn sparse(&self) -> impl Iterator<Item = (NodeId, &Ranges)> {
        self.sparse.iter().map(|(id, ranges)| (*id, ranges))
    }

    /// Looks for holes, and for identical files if the options ask for that.
    pub(super) fn find(options: &Options, tree: &Tree, contents: &Contents) -> Result<Self> {
        let is_file =
            |id: &NodeId| matches!(tree.node(*id).kind, Kind::Regular { .. }) && tree.node(*id).size > 0;
        // A build compares sparse files with no others.
        let is_sparse = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Regular { sparse: true });
        let mut contains = vec![false; tree.nodes.len()];
        tree.ids().filter(is_file).for_each(|id| contains[id.index()] = true);
        if options.data.share_identical {
            let files = tree.ids().filter(|id| is_file(id) && !is_sparse(id));
            for id in duplicates(options, tree, contents, files)? {
                contains[id.index()] = false;
            }
        }
        let sparse = tree.ids().filter(|id| is_file(id) && is_sparse(id));
        let sparse = sparse.filter_map(|id| Some((id, contents.data_ranges(tree, id)?))).collect();
        Ok(Self { contains, sparse })
    }
}

fn duplicates(
    options: &Options,
    tree: &Tree,
    contents: &Contents,
    files: impl Iterator<Item = NodeId>,
) -> Result<Vec<NodeId>> {
    let mut files: Vec<(u64, NodeId)> = files.map(|id| (tree.node(id).size, id)).collect();
    files.sort_unstable();
    let mut groups: Vec<&[(u64, NodeId)]> =
        files.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| Reverse(group.iter().map(|(size, _)| size).sum::<u64>()));
    let whole = fitting(groups.iter().map(|group| group.len() as u64), FILES_MAX as u64 / 2);
    let (whole, others) = groups.split_at(whole);
    let candidates: usize = others.iter().map(|group| group.len()).sum();
    let step = candidates.div_ceil(FILES_MAX / 2).max(1);
    let sampled = || others.iter().step_by(step);
    let read: Vec<(u64, NodeId)> = whole.iter().chain(sampled()).copied().flatten().copied().collect();
    let digests = options.run.parallel(
        read.len(),
        || (Reader::new(contents, tree), Vec::new()),
        |(reader, buffer), number| {
            let (size, id) = read[number];
            digest(reader, buffer, size, id)
        },
    )?;
    // Files with the same samples, in the order in which they were read.
    let mut classes: Vec<Vec<(u64, NodeId)>> = Vec::new();
    let mut by_digest: HashMap<blake3::Hash, usize> = HashMap::new();
    for (file, digest) in read.iter().zip(digests) {
        // A file that cannot be read is no duplicate.
        let Some(digest) = digest else { continue };
        match by_digest.entry(digest) {
            Entry::Occupied(class) => classes[*class.get()].push(*file),
            Entry::Vacant(free) => {
                free.insert(classes.len());
                classes.push(vec![*file]);
            }
        }
    }
    classes.retain(|class| class.len() > 1);
    let found = without_different(options, tree, contents, classes)?;
    if step == 1 {
        return Ok(found);
    }
    // As many duplicates among the files that were not read, at equal distances.
    let of_sample: HashSet<NodeId> = sampled().copied().flatten().map(|(_, id)| *id).collect();
    let duplicates = found.iter().filter(|id| of_sample.contains(id)).count();
    let most = of_sample.len() - sampled().count();
    let unread = others.iter().enumerate().filter(|(number, _)| number % step != 0);
    let mut all = found;
    let mut passed = 0;
    for (_, id) in unread.flat_map(|(_, group)| group.iter().skip(1)) {
        passed += duplicates;
        if passed >= most {
            passed -= most;
            all.push(*id);
        }
    }
    Ok(all)
}

/// All files of `classes` but the first of each, without those classes whose first two files differ somewhere.
fn without_different(
    options: &Options,
    tree: &Tree,
    contents: &Contents,
    mut classes: Vec<Vec<(u64, NodeId)>>,
) -> Result<Vec<NodeId>> {
    // Those come first that would be the largest error.
    classes.sort_by_key(|class| Reverse(class.iter().map(|(size, _)| size).sum::<u64>()));
    let len = |class: &Vec<(u64, NodeId)>| class.first().map_or(0, |(size, _)| compared_len(*size));
    let compared = fitting(classes.iter().map(len), COMPARED_MAX);
    let same = options.run.parallel(
        compared,
        || (Reader::new(contents, tree), [Vec::new(), Vec::new()]),
        |(reader, buffers), number| match classes[number][..] {
            [(size, one), (_, other), ..] => are_same(reader, buffers, size, [one, other]),
            _ => Ok(true),
        },
    )?;
    let same = same.into_iter().chain(std::iter::repeat(true));
    let same = classes.iter().zip(same).filter(|(_, same)| *same);
    Ok(same.flat_map(|(class, _)| class.iter().skip(1).map(|(_, id)| *id)).collect())
}

/// How many of `sizes`, from the first one on, are together at most `limit`.
fn fitting(sizes: impl Iterator<Item = u64>, limit: u64) -> usize {
    let sums = sizes.scan(0u64, |sum, size| {
        *sum = sum.saturating_add(size);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= limit).count()
}

/// Bytes of a file of `size` bytes that are compared.
fn compared_len(size: u64) -> u64 {
    size.min(PIECES_MAX * PIECE_LEN)
}

/// Whether two files of `size` bytes have the same content, as far as it is read.
fn are_same(
    reader: &mut Reader<'_>,
    buffers: &mut [Vec<u8>; 2],
    size: u64,
    files: [NodeId; 2],
) -> Result<bool> {
    let pieces = size.div_ceil(PIECE_LEN);
    let count = pieces.min(PIECES_MAX);
    for number in 0..count {
        let start = pieces * number / count * PIECE_LEN;
        for (buffer, file) in buffers.iter_mut().zip(files) {
            buffer.resize(PIECE_LEN.min(size - start) as usize, 0);
            match reader.read(file, start, buffer) {
                Ok(()) => {}
                Err(error) if is_tolerated(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if buffers[0] != buffers[1] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A digest of the size of a file and of samples of it; `None` if it cannot be read.
fn digest(
    reader: &mut Reader<'_>,
    buffer: &mut Vec<u8>,
    size: u64,
    id: NodeId,
) -> Result<Option<blake3::Hash>> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes());
    let is_whole = size <= 3 * SAMPLE_LEN;
    let starts = [0, (size / 2).saturating_sub(SAMPLE_LEN / 2), size.saturating_sub(SAMPLE_LEN)];
    for start in starts.iter().take(if is_whole { 1 } else { 3 }) {
        buffer.resize(if is_whole { size } else { SAMPLE_LEN } as usize, 0);
        match reader.read(id, *start, buffer) {
            Ok(()) => drop(hasher.update(buffer)),
            Err(error) if is_tolerated(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_fit_as_the_limit_allows() {
        let count = |limit| fitting([5, 4, 3, 2, 1].into_iter(), limit);
        assert_eq!([0, 4, 5, 8, 9, 12, 15, 99].map(count), [0, 0, 1, 1, 2, 3, 5, 5]);
    }
}
