//! A place for another root directory's inode.
//!
//! The superblock has 16 bits for the root's number, so it stands within the first 2 MiB of the metadata, unless the
//! image has `48BIT`. What is appended is usually further on. Slots within that range that no state of the image uses
//! are free for it: builders leave some, and each patch that is near enough leaves many. Source: FORMAT.md 1, 2.

use std::collections::HashSet;
use std::sync::Arc;

use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BytePos, DeviceId, FileOffset, Incompat, Nid};

use super::PatchFault;
use super::history::History;
use super::overlay::Overlay;
use super::sector::{Front, covered_end};
use super::survey::Survey;
use crate::error::{Error, Result};
use ferofs_read::claim::Claim;
use ferofs_read::walk::Walk;
use ferofs_read::{Image, Inode, Source};

/// Numbers that the superblock's field can hold.
const NIDS: u64 = 1 << 16;

/// Where the root goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootPlace {
    /// With the other metadata.
    Anywhere,
    /// In a block of its own, the first that is appended.
    First,
    /// At this position, in slots of the base that are free.
    Free(u64),
}

/// Finds a place for `len` bytes: the root's inode and its attributes. `end` is the image's.
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
    let mut window = Window { start, taken: vec![false; NIDS as usize] };
    // No inode has number 0: old kernels take it for a deleted one.
    window.take(start, SLOT_SIZE);
    // The first KiB may be a boot loader's, and the checksum covers what follows.
    window.take(0, covered_end(superblock));
    let mut seen = HashSet::new();
    window.take_all(old, &mut seen)?;
    for sector in history.earlier_sectors() {
        let state = Overlay::state(Arc::clone(base), sector);
        window.take_all(&Image::open(state)?, &mut seen)?;
    }
    let mut bytes = vec![0; (limit - start) as usize];
    base.read_exact_at(start, &mut bytes).map_err(|e| Error::io_unnamed("read the image", e))?;
    for (number, slot) in bytes.chunks(SLOT_SIZE as usize).enumerate() {
        if slot.iter().any(|byte| *byte != 0) {
            window.take(start + number as u64 * SLOT_SIZE, SLOT_SIZE);
        }
    }
    let found = window.room(len.div_ceil(SLOT_SIZE), superblock.block_size.bytes64());
    found.map(RootPlace::Free).ok_or(no_slot)
}

/// Whether the image may get `48BIT`, so that its root can be anywhere: every file must read as before. One bit of a full
/// index' header has another meaning then.
pub(crate) fn can_be_wide(
    old: &Image,
    base: &Arc<dyn Source>,
    front: &Front,
    survey: &Survey,
) -> Result<bool> {
    let mut superblock = front.superblock().clone();
    superblock.incompat |= Incompat::BIT48;
    let sector = front.rewrite(&superblock, None)?;
    let wide = Image::open(Overlay::state(Arc::clone(base), &sector))?;
    let are_records = |image: &Image, nid| -> Result<Option<bool>> {
        let inode = image.inode(nid)?;
        let is_compressed = inode.layout().is_compressed();
        Ok(is_compressed.then_some(image.extents(&inode, FileOffset::new(0))?.are_records()))
    };
    for nid in survey.files.iter().map(|file| file.nid).chain(old.superblock().packed) {
        if are_records(old, nid)? != are_records(&wide, nid).unwrap_or(Some(true)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The slots that the root can be in.
struct Window {
    start: u64,
    taken: Vec<bool>,
}

impl Window {
    fn take(&mut self, pos: u64, len: u64) {
        let first = pos.saturating_sub(self.start) / SLOT_SIZE;
        let end = pos.saturating_add(len).saturating_sub(self.start).div_ceil(SLOT_SIZE);
        let clamp = |slot: u64| slot.min(self.taken.len() as u64) as usize;
        let range = clamp(first)..clamp(end);
        if let Some(slots) = self.taken.get_mut(range) {
            slots.fill(true);
        }
    }

    /// Takes what every inode of a state uses, but for those in `seen`.
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
            if let Some(claim) = Claim::of(image, &extent?)?
                && claim.device == DeviceId::new(0)
            {
                let (from, to) = (claim.start.get(), claim.end());
                if !own.contains(&from) {
                    // Content has its blocks to itself: a decoder may read all of them.
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

    /// Where so many slots are free, within a block.
    fn room(&self, slots: u64, block: u64) -> Option<u64> {
        let fits = |first: usize| {
            let free = self.taken.get(first..first.checked_add(slots as usize)?)?;
            let pos = self.start + first as u64 * SLOT_SIZE;
            let within = pos / block == (pos + slots * SLOT_SIZE - 1) / block;
            (within && free.iter().all(|taken| !taken)).then_some(pos)
        };
        (0..self.taken.len()).find_map(fits)
    }
}
