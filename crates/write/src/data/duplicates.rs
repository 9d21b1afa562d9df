//! Finds large files with identical content, before the data stage encodes any file: different
//! workers encode the parts of a large file, so that no worker sees all of it. Files of equal size
//! are hashed: first samples of them, then, if the samples are equal, all of their content.
//!
//! The scheduler leaves out the duplicates. For small files see
//! [`identical`](crate::data::identical).

use std::collections::{BTreeMap, HashMap};

use crate::data::chunks::{ChunkPlans, widen};
use crate::data::encode::SEGMENT;
use crate::data::encode::zero_runs::is_zero;
use crate::data::worker::context::WorkerContext;
use crate::error::Result;
use crate::progress::Activity;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId};

/// Bytes of each of a file's three samples. One short read for each distinguishes most files; files
/// with equal samples are hashed whole.
const SAMPLE_LEN: u64 = 64 << 10;
/// Bytes that are read and hashed at once: a size that fits into the processor's cache.
const READ_LEN: u64 = 1 << 20;

/// The largest entry of a chunk table, in bytes.
const INDEX_SIZE: usize = 8;

/// For each duplicate, the first file in the order of reading with the same content.
pub(crate) type Duplicates = BTreeMap<NodeId, NodeId>;

type Hash = [u8; blake3::OUT_LEN];

/// Which part of a file is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashedPart {
    /// Samples at its start, in its middle and at its end.
    Samples,
    All,
}

/// Finds all large files that can share the data of an earlier one.
pub(crate) fn find_large(context: WorkerContext<'_>, plans: &ChunkPlans) -> Result<Duplicates> {
    let is_large = |id: &NodeId| {
        context.tree.node(*id).size > SEGMENT && context.identical_files.is_candidate(*id)
    };
    let has_content = |id: &NodeId| context.base_image.is_some_and(|base| base.has_content(*id));
    let large: Vec<NodeId> =
        context.order.ids().filter(|id| is_large(id) && !has_content(id)).collect();
    let candidates = groups_with_equal_hash(hash_each(context, plans, large, HashedPart::Samples)?);
    let candidates = candidates.into_iter().flatten().collect();
    let mut duplicates = Duplicates::new();
    for files in groups_with_equal_hash(hash_each(context, plans, candidates, HashedPart::All)?) {
        if let Some((first, others)) = files.split_first() {
            duplicates.extend(others.iter().map(|other| (*other, *first)));
        }
    }
    Ok(duplicates)
}

/// Groups of two or more files with the same hash, in the order of `hashes`.
fn groups_with_equal_hash(hashes: Vec<(NodeId, Hash)>) -> Vec<Vec<NodeId>> {
    let mut groups: HashMap<Hash, Vec<NodeId>> = HashMap::new();
    for (id, hash) in hashes {
        groups.entry(hash).or_default().push(id);
    }
    groups.into_values().filter(|files| files.len() > 1).collect()
}

/// Hashes these files, on all cores. Returns the hashes in the order of reading, without those of
/// files that cannot be read.
fn hash_each(
    context: WorkerContext<'_>,
    plans: &ChunkPlans,
    files: Vec<NodeId>,
    part: HashedPart,
) -> Result<Vec<(NodeId, Hash)>> {
    let hashes = context.options.run.parallel(
        files.len(),
        || Reader::new(context.contents, context.tree),
        |reader, number| {
            let id = files[number];
            match hash(context, plans, reader, id, part) {
                Ok(hash) => Ok(Some((id, hash))),
                // The data stage reads the file again, and leaves it out if that fails, too.
                Err(error) if context.options.source.skip_unreadable && error.is_unreadable() => {
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        },
    )?;
    let mut hashes: Vec<(NodeId, Hash)> = hashes.into_iter().flatten().collect();
    hashes.sort_unstable_by_key(|(id, _)| context.order.rank(*id));
    Ok(hashes)
}

/// The hash of a part of a file, of its size, and of everything else that decides how it is stored.
/// It leaves out pieces of zeroes, so that holes of the source need not be read.
fn hash(
    context: WorkerContext<'_>,
    plans: &ChunkPlans,
    reader: &mut Reader<'_>,
    id: NodeId,
    part: HashedPart,
) -> Result<Hash> {
    let node = context.tree.node(id);
    let size = node.size;
    let data = match node.kind {
        Kind::Regular { sparse: true } => context.contents.data_ranges(context.tree, id),
        _ => None,
    };
    let data = data.unwrap_or_else(|| vec![(0, size)]);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes()).update(&context.encoding_key(id));
    // The table of chunks is aligned after the inode.
    let inode_len = plans.get(&id).map(|_| context.inode_sizes.len(id) % INDEX_SIZE);
    hasher.update(format!("{inode_len:?}").as_bytes());
    let mut buffer = Vec::new();
    let mut add = |start: u64, end: u64| -> Result<()> {
        context.options.run.cancel.check()?;
        let len = (end - start) as usize;
        buffer.resize(len, 0);
        context.timings().time(Activity::Read, len, || reader.read(id, start, &mut buffer))?;
        context.timings().time(Activity::Hash, len, || {
            if !is_zero(&buffer) {
                hasher.update(&start.to_le_bytes()).update(&buffer);
            }
        });
        Ok(())
    };
    match part {
        HashedPart::Samples => {
            for start in [0, size / 2, size - SAMPLE_LEN] {
                add(start, start + SAMPLE_LEN)?;
            }
        }
        HashedPart::All => {
            for (start, end) in widen(&data, READ_LEN, size) {
                for at in (start..end).step_by(READ_LEN as usize) {
                    add(at, end.min(at + READ_LEN))?;
                }
            }
        }
    }
    Ok(hasher.finalize().into())
}
