//! Extents of the old image that new content reuses: at the same offset of a changed file, or found
//! by fingerprint in files that the new tree no longer has. New inodes whose content is an old
//! one's get a copy of its extent map, and no content is written.

use std::path::Path;

use ferofs_format::inode::{DataLayout, Place};
use ferofs_format::map::header::HEADER_SIZE;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{Algorithm, BlockAddr, BlockSize, DeviceId, FileOffset, Nid, Structure};
use ferofs_read::{Extent, ExtentData, Image, Inode, Location};

use crate::data::encode::SEGMENT;
use crate::data::encode::dedupe::{ExtentFingerprint, ExtentIndex, Match, StoredExtent};
use crate::data::stored::{BaseImage, EarlierContent, StoredContent};
use crate::error::Result;
use crate::options::Options;
use crate::options::compression::Compression;
use crate::output::spill::{Spill, SpillRange};
use crate::tree::NodeId;
use ferofs_host::stat::Ranges;

/// The old image for the builder's data stage.
pub(crate) struct OldExtents<'a> {
    pub(crate) old: &'a Image,
    /// Nodes whose content has its place already.
    pub(crate) placed: Vec<bool>,
    /// The old inode that a node's content is a changed version of.
    pub(crate) from: Vec<Option<Nid>>,
    pub(crate) compression: Option<&'a Compression>,
    /// File sizes in the new tree, by node.
    pub(crate) sizes: Vec<u64>,
    /// The old packed inode, if it grows.
    pub(crate) packed: Option<&'a EarlierContent>,
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
    let in_blocks = compression.index.in_blocks();
    let (at, size, algorithm, partial) = match extent.data {
        ExtentData::Encoded { algorithm, at, encoded_len, partial } => {
            (at, encoded_len, Some(algorithm), partial)
        }
        ExtentData::Stored { at } if in_blocks => {
            (at, extent.len.next_multiple_of(block.bytes64()), None, false)
        }
        ExtentData::Stored { at } => (at, extent.len, None, false),
        ExtentData::Hole | ExtentData::Interlaced { .. } | ExtentData::Fragment { .. } => {
            return None;
        }
    };
    let Location::Device(device, at) = at else { return None };
    let fits = |algorithm: Algorithm| {
        compression.methods.get(method).is_some_and(|method| method.algorithm == algorithm)
    };
    // An index cannot describe the long stored extents of flat files.
    let short =
        size <= SEGMENT / 4 && (algorithm.is_some() || size <= block.bytes64() || !in_blocks);
    let placed = !in_blocks || at.in_block(block) == 0 && size & block.mask() == 0;
    let indexed = size <= block.bytes64() || compression.is_big(block) || !in_blocks;
    let usable =
        device == DeviceId::new(0) && short && placed && indexed && algorithm.is_none_or(fits);
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
                matches.push(Match {
                    start: range.start,
                    len: range.len(),
                    stored,
                    same_offset: true,
                });
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

/// An index of the extents of old `files` by fingerprint, for deduplication. It may create a
/// temporary file in `temporary`.
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
            let method = (0..compression.methods.len())
                .find_map(|method| stored(&extent, compression, method, block));
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

/// Bytes of a copied index or table at most, as it is held in memory. The content of inodes with
/// longer ones is encoded again.
const COPY_MAX: u64 = 1 << 30;

/// The content of old `inode`, for a new inode that has `head_len` bytes with its attributes.
/// `None` when the bytes after the old inode (tail, table or index) cannot follow the new one.
pub(crate) fn copy(
    old: &Image,
    inode: &Inode,
    head_len: usize,
    spill: &mut Spill,
) -> Result<Option<StoredContent>> {
    let block = old.superblock().block_size;
    let extents = old.extents(inode, FileOffset::new(0))?;
    let (start, end) = (inode.end()?, extents.metadata_end()?);
    if start.in_metabox != end.in_metabox {
        return Ok(None);
    }
    let len = end.pos.get().saturating_sub(start.pos.get());
    if len > COPY_MAX {
        return Ok(None);
    }
    let mut after = vec![0; len as usize];
    old.read_metadata(start, Structure::MapHeader, &mut after)?;
    let old_head = start.pos.get() - inode.place().pos.get();
    let fits_in_block = head_len as u64 + len <= block.bytes64();
    Ok(match (inode.layout(), inode.on_disk().place) {
        (DataLayout::FlatPlain, Place::Blocks(start)) => {
            Some(StoredContent::Flat { start, tail: SpillRange::default() })
        }
        (DataLayout::FlatInline, Place::Blocks(start)) if after.is_empty() => {
            Some(StoredContent::Flat { start, tail: SpillRange::default() })
        }
        (DataLayout::FlatInline, Place::Blocks(start)) if fits_in_block => {
            // All content is inline. mkfs.erofs then writes the address 2^32 - 1, which a compact
            // inode cannot always hold.
            let is_unused = inode.size() < block.bytes64() && start.get() >= u64::from(u32::MAX);
            let start = if is_unused { BlockAddr::default() } else { start };
            Some(StoredContent::Flat { start, tail: spill.push(&after)? })
        }
        (DataLayout::ChunkBased, Place::Chunked { format }) => {
            // A chunk table is aligned to the size of its entries.
            let entry = ferofs_format::map::ChunkFormat::parse(format)
                .map_or(8, |format| format.entry_size());
            let skip = (old_head as usize).next_multiple_of(entry) - old_head as usize;
            let mut table = vec![0; head_len.next_multiple_of(entry) - head_len];
            table.extend_from_slice(after.get(skip..).unwrap_or_default());
            Some(StoredContent::Chunked { format, table: spill.push(&table)? })
        }
        (layout, Place::Compressed { blocks }) => {
            let skip = (old_head as usize).next_multiple_of(8) - old_head as usize;
            // How a compact index is packed depends on its position modulo 32 bytes. A header
            // without index has no packs.
            let same_place = old_head % SLOT_SIZE == head_len as u64 % SLOT_SIZE;
            let is_header_only = after.len() == skip + HEADER_SIZE;
            let can_move = same_place && (fits_in_block || !has_inline_tail(old, inode)?);
            if !is_header_only && !can_move {
                return Ok(None);
            }
            let mut index = vec![0; head_len.next_multiple_of(8) - head_len];
            index.extend_from_slice(after.get(skip..).unwrap_or_default());
            // `can_move` made sure that an inline tail is in the same block as its inode.
            Some(StoredContent::Compressed {
                layout,
                blocks,
                index: spill.push(&index)?,
                inline: 0,
            })
        }
        _ => None,
    })
}

/// Whether the file's last extent is inline, after the index.
fn has_inline_tail(old: &Image, inode: &Inode) -> Result<bool> {
    let Some(last) = inode.size().checked_sub(1) else { return Ok(false) };
    let extent = old.extents(inode, FileOffset::new(last))?.next().transpose()?;
    Ok(extent.is_some_and(|extent| match extent.data {
        ExtentData::Stored { at }
        | ExtentData::Interlaced { at }
        | ExtentData::Encoded { at, .. } => {
            matches!(at, Location::Metadata(_))
        }
        ExtentData::Hole | ExtentData::Fragment { .. } => false,
    }))
}
