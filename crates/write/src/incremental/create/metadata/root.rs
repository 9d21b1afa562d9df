//! Finds a position for the new root directory's inode.
//!
//! The superblock has 16 bits for the root's nid, so the root is within the first 2 MiB of the
//! metadata unless the image has `48BIT`. Appended metadata is usually beyond that. The root then
//! goes into slots within these 2 MiB that no state of the image uses: builders leave some unused.
//! Source: FORMAT.md 1, 2.

use std::collections::HashSet;
use std::sync::Arc;

use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BytePos, DeviceId, FileOffset, Incompat, Nid};

use crate::error::{Error, Result};
use crate::incremental::create::context::Survey;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::walk::Walk;
use ferofs_read::{Image, Inode, Source};
use ferofs_update::PatchFault;
use ferofs_update::image::history::History;
use ferofs_update::image::overlay::Overlay;
use ferofs_update::image::{SuperblockArea, covered_end};

/// Nids that the superblock's 16-bit field can hold.
const NIDS: u64 = 1 << 16;

/// Where the root goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootPlace {
    /// Among the other metadata.
    Anywhere,
    /// In the first appended block, alone.
    First,
    /// At this position, in unused slots of the base.
    Free(u64),
}

/// Finds a position for the root's inode, which has `len` bytes with its attributes. `end` is the
/// size of the old image.
///
/// # Errors
/// [`PatchFault::NoRootSlot`].
pub(crate) fn find(
    old: &Image,
    base: &Arc<dyn Source>,
    history: &History,
    end: u64,
    len: u64,
) -> Result<RootPlace> {
    let superblock = old.superblock();
    if superblock.incompat.contains(Incompat::BIT48) {
        return Ok(RootPlace::Anywhere);
    }
    let no_slot = Error::Patch(PatchFault::NoRootSlot);
    let Some(start) = superblock.inode_base().map(BytePos::get) else { return Err(no_slot) };
    let limit = start.saturating_add(NIDS * SLOT_SIZE);
    if len > superblock.block_size.bytes64() {
        return Err(no_slot);
    }
    if end < limit {
        return Ok(RootPlace::First);
    }
    let mut slots = SlotMap { start, taken: vec![false; NIDS as usize] };
    // Nid 0 is never used: old kernels take it for a deleted inode.
    slots.take(start, SLOT_SIZE);
    // The first KiB may hold a boot loader, and the superblock's checksum covers the bytes after
    // it.
    slots.take(0, covered_end(superblock));
    let mut seen = HashSet::new();
    slots.take_all(old, &mut seen)?;
    for sector in history.earlier_sectors() {
        let state = Overlay::with_sector(Arc::clone(base), sector);
        slots.take_all(&Image::open(state)?, &mut seen)?;
    }
    let mut bytes = vec![0; (limit - start) as usize];
    base.read_exact_at(start, &mut bytes).map_err(|e| Error::io_unnamed("read the image", e))?;
    for (number, slot) in bytes.chunks(SLOT_SIZE as usize).enumerate() {
        if slot.iter().any(|byte| *byte != 0) {
            slots.take(start + number as u64 * SLOT_SIZE, SLOT_SIZE);
        }
    }
    let found = slots.find_free(len.div_ceil(SLOT_SIZE), superblock.block_size.bytes64());
    found.map(RootPlace::Free).ok_or(no_slot)
}

/// Whether the image can get `48BIT`, so that its root can be anywhere. That changes the meaning of
/// one bit in the map header of compressed files, so each file must still be read in the same way.
pub(crate) fn can_be_48bit(
    old: &Image,
    base: &Arc<dyn Source>,
    area: &SuperblockArea,
    survey: &Survey,
) -> Result<bool> {
    let mut superblock = area.superblock().clone();
    superblock.incompat |= Incompat::BIT48;
    let sector = area.rewrite(&superblock, None)?;
    let with_48bit = Image::open(Overlay::with_sector(Arc::clone(base), &sector))?;
    let are_records = |image: &Image, nid| -> Result<Option<bool>> {
        let inode = image.inode(nid)?;
        let is_compressed = inode.layout().is_compressed();
        Ok(is_compressed.then_some(image.extents(&inode, FileOffset::new(0))?.are_records()))
    };
    for nid in survey.files.iter().map(|file| file.nid).chain(old.superblock().packed) {
        if are_records(old, nid)? != are_records(&with_48bit, nid).unwrap_or(Some(true)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The slots that the root can be in, and which of them are in use.
struct SlotMap {
    start: u64,
    taken: Vec<bool>,
}

impl SlotMap {
    fn take(&mut self, pos: u64, len: u64) {
        let first = pos.saturating_sub(self.start) / SLOT_SIZE;
        let end = pos.saturating_add(len).saturating_sub(self.start).div_ceil(SLOT_SIZE);
        let clamp = |slot: u64| slot.min(self.taken.len() as u64) as usize;
        let range = clamp(first)..clamp(end);
        if let Some(slots) = self.taken.get_mut(range) {
            slots.fill(true);
        }
    }

    /// Marks the slots that the inodes of one state use, and adds the inodes to `seen`.
    fn take_all(&mut self, image: &Image, seen: &mut HashSet<Nid>) -> Result<()> {
        let superblock = image.superblock();
        for nid in superblock.packed.into_iter().chain(superblock.metabox) {
            if seen.insert(nid) {
                self.take_inode(image, &image.inode(nid)?)?;
            }
        }
        for walked in Walk::new(image) {
            let inode = walked?.inode?;
            if seen.insert(inode.nid()) {
                self.take_inode(image, &inode)?;
            }
        }
        Ok(())
    }

    fn take_inode(&mut self, image: &Image, inode: &Inode) -> Result<()> {
        let extents = image.extents(inode, FileOffset::new(0))?;
        let end = extents.metadata_end()?;
        let (start, block) = (inode.place().pos.get(), image.superblock().block_size.bytes64());
        let own = if end.in_metabox { 0..0 } else { start..end.pos.get() };
        self.take(own.start, own.end.saturating_sub(own.start));
        for extent in extents {
            if let Some(range) = DeviceRange::of(image, &extent?)?
                && range.device == DeviceId::new(0)
            {
                let (from, to) = (range.start.get(), range.end());
                if !own.contains(&from) {
                    // A decoder may read whole blocks of content.
                    let from = from / block * block;
                    self.take(from, to.next_multiple_of(block) - from);
                }
            }
        }
        if inode.xattr_size() > 0 {
            image.walk_xattrs(inode, |entry, place| {
                if let Some(place) = place.filter(|place| !place.in_metabox) {
                    self.take(place.pos.get(), entry.size() as u64);
                }
            })?;
        }
        Ok(())
    }

    /// The position of the first `slots` free slots within one block.
    fn find_free(&self, slots: u64, block: u64) -> Option<u64> {
        let fits = |first: usize| {
            let free = self.taken.get(first..first.checked_add(slots as usize)?)?;
            let pos = self.start + first as u64 * SLOT_SIZE;
            let within = pos / block == (pos + slots * SLOT_SIZE - 1) / block;
            (within && free.iter().all(|taken| !taken)).then_some(pos)
        };
        (0..self.taken.len()).find_map(fits)
    }
}
