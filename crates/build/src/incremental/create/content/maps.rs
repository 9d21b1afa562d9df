//! Copies the extent map of an old inode for a new inode with the same content, so that no content is written.

use crate::data::stored::StoredContent;
use crate::output::spill::{Spill, SpillRange};
use ferofs_format::inode::{DataLayout, Place};
use ferofs_format::map::header::HEADER_SIZE;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{FileOffset, Structure};
use ferofs_read::{ExtentData, Image, Inode, Location};

use crate::error::Result;

/// Bytes of a copied index or table at most, as it is held in memory. The content of inodes with longer ones is encoded again.
const COPY_MAX: u64 = 1 << 30;

/// The content of old `inode`, for a new inode that has `head_len` bytes with its attributes. `None` when the bytes after the
/// old inode (tail, table or index) cannot follow the new one.
pub(super) fn copy(
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
            Some(StoredContent::Flat { start, tail: spill.push(&after)? })
        }
        (DataLayout::ChunkBased, Place::Chunked { format }) => {
            // A chunk table is aligned to the size of its entries.
            let entry =
                ferofs_format::map::ChunkFormat::parse(format).map_or(8, |format| format.entry_size());
            let skip = (old_head as usize).next_multiple_of(entry) - old_head as usize;
            let mut table = vec![0; head_len.next_multiple_of(entry) - head_len];
            table.extend_from_slice(after.get(skip..).unwrap_or_default());
            Some(StoredContent::Chunked { format, table: spill.push(&table)? })
        }
        (layout, Place::Compressed { blocks }) => {
            let skip = (old_head as usize).next_multiple_of(8) - old_head as usize;
            // How a compact index is packed depends on its position modulo 32 bytes. A header without index has no packs.
            let same_place = old_head % SLOT_SIZE == head_len as u64 % SLOT_SIZE;
            let is_header_only = after.len() == skip + HEADER_SIZE;
            let can_move = same_place && (fits_in_block || !has_inline_tail(old, inode)?);
            if !is_header_only && !can_move {
                return Ok(None);
            }
            let mut index = vec![0; head_len.next_multiple_of(8) - head_len];
            index.extend_from_slice(after.get(skip..).unwrap_or_default());
            // `can_move` made sure that an inline tail is in the same block as its inode.
            Some(StoredContent::Compressed { layout, blocks, index: spill.push(&index)?, inline: 0 })
        }
        _ => None,
    })
}

/// Whether the file's last extent is inline, after the index.
fn has_inline_tail(old: &Image, inode: &Inode) -> Result<bool> {
    let Some(last) = inode.size().checked_sub(1) else { return Ok(false) };
    let extent = old.extents(inode, FileOffset::new(last))?.next().transpose()?;
    Ok(extent.is_some_and(|extent| match extent.data {
        ExtentData::Stored { at } | ExtentData::Interlaced { at } | ExtentData::Encoded { at, .. } => {
            matches!(at, Location::Metadata(_))
        }
        ExtentData::Hole | ExtentData::Fragment { .. } => false,
    }))
}
