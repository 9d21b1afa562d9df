//! Finds what content an image stores: not that of files with the same content as an earlier one, which their sizes and samples of their content
//! tell, and the holes of sparse files only if they are not stored in chunks.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::data_ranges::Ranges;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Tree};

/// Bytes of each of a file's samples: at its start, in its middle and at its end. Different files of the same size differ in one of them,
/// almost always.
const SAMPLE_LEN: u64 = 4 << 10;
/// The most files of which samples are read; of more, each second, third, ... group of equal size is taken, and stands for the others.
const FILES_MAX: usize = 20_000;

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
    let groups: Vec<&[(u64, NodeId)]> =
        files.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1).collect();
    let candidates: usize = groups.iter().map(|group| group.len()).sum();
    let step = candidates.div_ceil(FILES_MAX).max(1);
    let read: Vec<(u64, NodeId)> =
        groups.iter().step_by(step).flat_map(|group| group.iter().copied()).collect();
    let digests = options.run.parallel(
        read.len(),
        || (Reader::new(contents, tree), Vec::new()),
        |(reader, buffer), number| {
            let (size, id) = read[number];
            digest(reader, buffer, size, id)
        },
    )?;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for ((_, id), digest) in read.iter().zip(digests) {
        // A file that cannot be read is no duplicate.
        if digest.is_some_and(|digest| !seen.insert(digest)) {
            found.push(*id);
        }
    }
    if step == 1 {
        return Ok(found);
    }
    // As many duplicates among the files that were not read, at equal distances.
    let (duplicates, others) = (found.len(), read.len() - groups.iter().step_by(step).count());
    let unread = groups.iter().enumerate().filter(|(number, _)| number % step != 0);
    let mut passed = 0;
    for (_, id) in unread.flat_map(|(_, group)| group.iter().skip(1)) {
        passed += duplicates;
        if passed >= others {
            passed -= others;
            found.push(*id);
        }
    }
    Ok(found)
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
    let whole = size <= 3 * SAMPLE_LEN;
    let starts = [0, (size / 2).saturating_sub(SAMPLE_LEN / 2), size.saturating_sub(SAMPLE_LEN)];
    for start in starts.iter().take(if whole { 1 } else { 3 }) {
        buffer.resize(if whole { size } else { SAMPLE_LEN } as usize, 0);
        match reader.read(id, *start, buffer) {
            Ok(()) => drop(hasher.update(buffer)),
            Err(error) if error.is_unreadable() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(hasher.finalize()))
}
