//! Extents of the old image that new content reuses: at the same offset of a changed file, or found by fingerprint in files
//! that the new tree no longer has.

use std::path::Path;

use ferofs_format::{Algorithm, BlockSize, DeviceId, FileOffset, Nid};

use crate::data::base_image::{BaseImage, EarlierContent};
use crate::data::encode::SEGMENT;
use crate::data::encode::dedupe::{ExtentFingerprint, ExtentIndex, Match, StoredExtent};
use crate::error::Result;
use crate::options::Options;
use crate::options::compression::{Compression, IndexKind};
use crate::sources::data_ranges::Ranges;
use crate::tree::NodeId;
use ferofs_read::{Extent, ExtentData, Image, Inode, Location};

/// The old image for the builder's data stage.
pub(super) struct OldExtents<'a> {
    pub(super) old: &'a Image,
    /// Nodes whose content has its place already.
    pub(super) placed: Vec<bool>,
    /// The old inode that a node's content is a changed version of.
    pub(super) from: Vec<Option<Nid>>,
    pub(super) compression: Option<&'a Compression>,
    /// File sizes in the new tree, by node.
    pub(super) sizes: Vec<u64>,
    /// The old packed inode, if it grows.
    pub(super) packed: Option<&'a EarlierContent>,
}

impl OldExtents<'_> {
    fn block(&self) -> BlockSize {
        self.old.superblock().block_size
    }

    /// How a new index refers to an old extent; `None` if it cannot.
    fn stored(&self, extent: &Extent, method: usize) -> Option<StoredExtent> {
        stored(extent, self.compression?, method, self.block())
    }

    fn old_inode(&self, node: NodeId) -> ferofs_read::Result<Option<Inode>> {
        self.from[node.index()].map(|nid| self.old.inode(nid)).transpose()
    }
}

fn stored(
    extent: &Extent,
    compression: &Compression,
    method: usize,
    block: BlockSize,
) -> Option<StoredExtent> {
    let in_blocks = compression.index != IndexKind::Extents;
    let (at, size, algorithm, partial) = match extent.data {
        ExtentData::Encoded { algorithm, at, encoded_len, partial } => {
            (at, encoded_len, Some(algorithm), partial)
        }
        ExtentData::Stored { at } if in_blocks => {
            (at, extent.len.next_multiple_of(block.bytes64()), None, false)
        }
        ExtentData::Stored { at } => (at, extent.len, None, false),
        ExtentData::Hole | ExtentData::Interlaced { .. } | ExtentData::Fragment { .. } => return None,
    };
    let Location::Device(device, at) = at else { return None };
    let fits = |algorithm: Algorithm| {
        compression.methods.get(method).is_some_and(|method| method.algorithm() == algorithm)
    };
    // An index cannot describe the long stored extents of flat files.
    let short = size <= SEGMENT / 4 && (algorithm.is_some() || size <= block.bytes64() || !in_blocks);
    let placed = !in_blocks || at.in_block(block) == 0 && size & block.mask() == 0;
    let indexed = size <= block.bytes64() || compression.is_big(block) || !in_blocks;
    let usable = device == DeviceId::new(0) && short && placed && indexed && algorithm.is_none_or(fits);
    usable.then_some(StoredExtent { at, size, encoded: algorithm.is_some(), method, partial })
}

impl BaseImage for OldExtents<'_> {
    fn has_content(&self, node: NodeId) -> bool {
        self.placed[node.index()]
    }

    fn find_extents(
        &self,
        node: NodeId,
        offset: u64,
        src: &[u8],
        method: usize,
    ) -> crate::error::Result<Vec<Match>> {
        let mut matches = Vec::new();
        let Some(inode) = self.old_inode(node)? else { return Ok(matches) };
        if !inode.layout().is_compressed() || offset >= inode.size() {
            return Ok(matches);
        }
        let mut old = vec![0; src.len()];
        let read = self.old.read_at(&inode, FileOffset::new(offset), &mut old)?;
        for extent in self.old.extents(&inode, FileOffset::new(offset))? {
            let extent = extent?;
            let Some(start) = extent.start.get().checked_sub(offset) else { continue };
            let end = start.saturating_add(extent.len);
            if end > read as u64 {
                break;
            }
            let range = start as usize..end as usize;
            let Some(stored) = self.stored(&extent, method) else { continue };
            if old[range.clone()] == src[range.clone()] {
                matches.push(Match { start: range.start, len: range.len(), stored, same_offset: true });
            }
        }
        Ok(matches)
    }

    fn packed(&self) -> Option<&EarlierContent> {
        self.packed
    }

    fn split_ranges(&self, node: NodeId) -> Option<Ranges> {
        let inode = self.old_inode(node).ok()??;
        let size = self.sizes[node.index()];
        if !inode.layout().is_compressed() {
            return None;
        }
        let mut ranges = Ranges::new();
        let mut start = 0;
        let mut last = 0;
        for extent in self.old.extents(&inode, FileOffset::new(0)).ok()? {
            let end = extent.ok()?.end().min(size);
            if end - start > SEGMENT && last > start {
                ranges.push((start, last));
                start = last;
            }
            last = end;
        }
        if start < size {
            ranges.push((start, size));
        }
        Some(ranges)
    }
}

/// An index of the extents of old `files` by fingerprint, for deduplication. It may create a temporary file in `temporary`.
pub(super) fn index(
    options: &Options,
    old: &Image,
    files: &[Nid],
    compression: &Compression,
    temporary: &Path,
) -> Result<ExtentIndex> {
    let block = old.superblock().block_size;
    let known = ExtentIndex::new(temporary);
    let found = options.run.parallel(files.len(), Vec::new, |buffer: &mut Vec<u8>, number| {
        let inode = old.inode(files[number])?;
        let mut found = Vec::new();
        if !inode.layout().is_compressed() {
            return Ok::<_, crate::error::Error>(found);
        }
        for extent in old.extents(&inode, FileOffset::new(0))? {
            let extent = extent?;
            let method =
                (0..compression.methods.len()).find_map(|method| stored(&extent, compression, method, block));
            let Some(stored) = method else { continue };
            buffer.resize(extent.len as usize, 0);
            old.read_at(&inode, extent.start, buffer)?;
            found.extend(ExtentFingerprint::of(buffer).map(|fingerprint| (fingerprint, stored)));
        }
        Ok(found)
    })?;
    for (fingerprint, stored) in found.into_iter().flatten() {
        known.insert_before(fingerprint, stored)?;
    }
    Ok(known)
}
