//! Places in an earlier image: of the content of its files, and of its inodes.

use std::collections::HashSet;
use std::ops::Range;

use ferofs_format::inode::{FileType, Place};
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{DeviceId, FileOffset, Incompat};
use ferofs_read::{ExtentData, Image, Inode, Location};

use crate::data::stored::{EarlierInode, EarlierInodes};
use crate::error::Result;
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::tree::Tree;
use ferofs_host::stat::Ranges;

/// Where the earlier image has the content of an inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Bytes of the image.
    pub(super) stored: Ranges,
    /// Bytes of the packed inode.
    pub(super) fragments: Ranges,
}

impl Places {
    /// The places of the content of `inode`; `None` if not all of them can stay: because they are
    /// not in `range`, or in the packed inode and that does not stay (`with_fragments`), or not in
    /// the image.
    pub(super) fn of(
        old: &Image,
        inode: &Inode,
        range: &Range<u64>,
        with_fragments: bool,
    ) -> Result<Option<Self>> {
        let block = old.superblock().block_size;
        let is_compressed = inode.layout().is_compressed();
        if is_compressed && !has(old, Incompat::LZ4_0PADDING) {
            return Ok(None);
        }
        let extents = old.extents(inode, FileOffset::new(0))?;
        let in_blocks = !extents.are_records();
        let mut places = Self::default();
        for extent in extents {
            let extent = extent?;
            let (at, len) = match extent.data {
                // The pcluster to which it refers for older versions of Linux is not known.
                ExtentData::Hole if is_compressed && in_blocks => return Ok(None),
                ExtentData::Hole => continue,
                ExtentData::Fragment { .. } if !with_fragments => return Ok(None),
                ExtentData::Fragment { offset } => {
                    add(
                        &mut places.fragments,
                        (offset.get(), offset.get().saturating_add(extent.len)),
                    );
                    continue;
                }
                ExtentData::Stored { at } => (at, extent.len),
                ExtentData::Interlaced { at } => (at, block.bytes64()),
                ExtentData::Encoded { at, encoded_len, .. } => (at, encoded_len),
            };
            let at = match at {
                Location::Metadata(_) => continue,
                Location::Device(device, at)
                    if device == DeviceId::new(0) && at.get() >= range.start =>
                {
                    at.get()
                }
                Location::Device(..) => return Ok(None),
            };
            let end = at.saturating_add(len);
            let whole = match in_blocks {
                true => (
                    at & !block.mask(),
                    end.checked_next_multiple_of(block.bytes64()).unwrap_or(end),
                ),
                false => (at, end),
            };
            if whole.1 > range.end {
                return Ok(None);
            }
            add(&mut places.stored, whole);
        }
        Ok(Some(places))
    }
}

/// The inodes of `old` that become nodes of the new tree, each at most once; `None` if the image
/// has them in a metabox, or metadata in the block of the superblock.
pub(super) fn earlier_inodes(
    old: &Image,
    tree: &Tree,
    decisions: &ReuseDecisions,
    waste: u64,
) -> Result<Option<EarlierInodes>> {
    let superblock = old.superblock();
    let start = superblock.meta.get();
    if has(old, Incompat::METABOX) || start == 0 || start >= u32::MAX.into() {
        return Ok(None);
    }
    let mut taken = HashSet::new();
    let mut by_node = vec![None; tree.nodes.len()];
    for id in tree.ids() {
        let nid = match decisions.by_node[id.index()] {
            ReuseDecision::KeepInode(nid) => Some(nid),
            _ => decisions.counterparts[id.index()],
        };
        let Some(nid) = nid.filter(|nid| taken.insert(*nid)) else { continue };
        let inode = old.inode(nid)?;
        let is_own = matches!(inode.file_type(), FileType::Directory | FileType::Symlink);
        let first_block = match inode.on_disk().place {
            Place::Blocks(first) if is_own => first.get().checked_sub(start),
            _ => None,
        };
        let (pos, ino) = (nid.get().saturating_mul(SLOT_SIZE), inode.on_disk().ino);
        by_node[id.index()] = Some(EarlierInode { pos, ino, first_block });
    }
    let packed = superblock.packed.map(|nid| nid.get().saturating_mul(SLOT_SIZE));
    Ok(Some(EarlierInodes { by_node, packed, waste, unused_left: 0 }))
}

pub(super) fn has(old: &Image, feature: Incompat) -> bool {
    old.superblock().incompat.contains(feature)
}

/// Adds a range, which often continues the last one.
fn add(ranges: &mut Ranges, range: (u64, u64)) {
    match ranges.last_mut() {
        Some(last) if last.1 == range.0 => last.1 = range.1,
        _ => ranges.push(range),
    }
}

/// The same bytes in ranges that are sorted and not adjacent.
pub(super) fn joined(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut joined = Ranges::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.0 <= last.1 => last.1 = last.1.max(range.1),
            _ => joined.push(range),
        }
    }
    joined
}
