//! Large files with the same bytes share them. They are encoded in parts, which no worker sees together: so files of the
//! same size are hashed before, wholly only if samples of them agree.
//!
//! Stands before [`crate::data::schedule`], which leaves out the clones. For small files see [`crate::data::identical::small`].

use std::collections::{BTreeMap, HashMap};

use crate::Options;
use crate::Result;
use crate::data::worker::{SEGMENT, Shop};
use crate::progress::timings::Activity;
use crate::sources::reader::Reader;
use crate::tree::NodeId;

/// Bytes of a sample, and what is read at once.
const SAMPLE: u64 = 64 << 10;
const PIECE: u64 = 1 << 20;

/// Files that are another one, which comes before them in the order of reading.
pub(crate) type Clones = BTreeMap<NodeId, NodeId>;

type Hash = [u8; blake3::OUT_LEN];

/// What of a file is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Its start, its middle and its end.
    Samples,
    All,
}

/// Finds all large files that can share what an earlier one stores.
pub(crate) fn find(options: &Options, shop: Shop<'_>) -> Result<Clones> {
    let is_large = |id: &NodeId| shop.tree.node(*id).size > SEGMENT && shop.twins.is_candidate(*id);
    let is_settled = |id: &NodeId| shop.base.is_some_and(|base| base.has(*id));
    let large: Vec<NodeId> = shop.order.ids().filter(|id| is_large(id) && !is_settled(id)).collect();
    let alike = same(hash_each(options, shop, large, Extent::Samples)?);
    let alike = alike.into_iter().flatten().collect();
    let mut clones = Clones::new();
    for files in same(hash_each(options, shop, alike, Extent::All)?) {
        if let Some((first, others)) = files.split_first() {
            clones.extend(others.iter().map(|other| (*other, *first)));
        }
    }
    Ok(clones)
}

/// Files that have a hash in common, in their order.
fn same(hashes: Vec<(NodeId, Hash)>) -> Vec<Vec<NodeId>> {
    let mut groups: HashMap<Hash, Vec<NodeId>> = HashMap::new();
    for (id, hash) in hashes {
        groups.entry(hash).or_default().push(id);
    }
    groups.into_values().filter(|files| files.len() > 1).collect()
}

/// Hashes these files, on all cores; those that cannot be read are left out if they may be.
fn hash_each(
    options: &Options,
    shop: Shop<'_>,
    files: Vec<NodeId>,
    extent: Extent,
) -> Result<Vec<(NodeId, Hash)>> {
    let hashes = options.run.parallel(
        files.len(),
        || Reader::new(shop.contents, shop.tree),
        |reader, number| {
            let id = files[number];
            match hash(options, shop, reader, id, extent) {
                Ok(hash) => Ok(Some((id, hash))),
                // The data stage reads it again, and leaves the file out if it fails again.
                Err(error) if options.source.skip_unreadable && error.is_unreadable() => Ok(None),
                Err(error) => Err(error),
            }
        },
    )?;
    let mut hashes: Vec<(NodeId, Hash)> = hashes.into_iter().flatten().collect();
    hashes.sort_unstable_by_key(|(id, _)| shop.order.rank(*id));
    Ok(hashes)
}

/// The hash of what `extent` says of a file, and of all else that decides what is stored of it.
fn hash(
    options: &Options,
    shop: Shop<'_>,
    reader: &mut Reader<'_>,
    id: NodeId,
    extent: Extent,
) -> Result<Hash> {
    let size = shop.tree.node(id).size;
    let ranges = match extent {
        Extent::Samples => vec![0..SAMPLE, size / 2..size / 2 + SAMPLE, size - SAMPLE..size],
        Extent::All => (0..size.div_ceil(PIECE)).map(|n| n * PIECE..size.min((n + 1) * PIECE)).collect(),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes()).update(&shop.print_form(id));
    let mut buffer = Vec::new();
    for range in ranges {
        options.run.check_cancelled()?;
        let len = (range.end - range.start) as usize;
        buffer.resize(len, 0);
        shop.timings.time(Activity::Read, len, || reader.read(id, range.start, &mut buffer))?;
        shop.timings.time(Activity::Hash, len, || hasher.update(&buffer));
    }
    Ok(hasher.finalize().into())
}
