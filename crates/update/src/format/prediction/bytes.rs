//! The predicted bytes of inodes, and of the blocks of directories and symbolic links.

use ferofs_format::dirent::{Dirent, change_nids};
use ferofs_format::inode::{self, DataLayout};
use ferofs_format::map::{Address, change_addresses};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_format::{BytePos, FileOffset, Structure};
use ferofs_read::{DirEntry, Inode, MetadataPlace};

use super::addresses::after;
use super::directory::{self, Content};
use super::fields::{fields, set};
use super::relocations::DirForm;
use super::{Blocks, INODE_WORK, Placed, Prediction, blocks_of, moved_inode, overlay};
use crate::error::{Error, PatchFault, Result};

impl Prediction {
    fn changed(&self, address: Address) -> Address {
        match address {
            Address::Data(pos) => Address::Data(BytePos::new(self.list.data.apply(pos.get()))),
            Address::Packed(offset) => Address::Packed(self.list.packed.apply(offset)),
        }
    }

    /// The new inode.
    pub(super) fn changed_inode(&self, one: &Placed, old: &Inode) -> inode::Inode {
        let mut new = moved_inode(old, &self.image, &self.list.data, one.form, one.first);
        let mut own = fields(&new, self.image.superblock());
        let values = self.list.values.get(to_usize(one.first_value)..).unwrap_or_default();
        for (field, value) in values.iter().take(one.values.into()) {
            if let Some(own) = own.get_mut(usize::from(*field)) {
                let is_relative = self.list.relative >> field & 1 != 0;
                *own = if is_relative { own.wrapping_add(*value) } else { *value };
            }
        }
        set(&mut new, &own, &self.superblock);
        new.ino = one.ino;
        new
    }

    /// The content of a new directory whose entries are packed again; `None` for others.
    fn content(&self, one: &Placed, old: &Inode, new: &inode::Inode) -> Result<Option<Content>> {
        if one.form == DirForm::AsStored || !old.is_dir() {
            return Ok(None);
        }
        let edits = self.list.edits_of(one.number).iter().map(|(_, edit)| edit);
        let entries =
            directory::new_entries(&self.image, old, edits, |target| self.number(target))?;
        let Some(entries) = entries else { return Ok(None) };
        let entries = entries.iter().map(|entry| {
            let DirEntry { name, nid, file_type, .. } = entry;
            Dirent { nid: *nid, file_type: *file_type, name }
        });
        let entries: Vec<Dirent<'_>> = entries.collect();
        match one.form {
            DirForm::Chunks => Content::in_chunks(&self.image, old, &entries, blocks_of(new)),
            form => {
                let has_tail = form == DirForm::Tail;
                Ok(Content::flat(&entries, has_tail, self.superblock.block_size))
            }
        }
    }

    /// Puts the inode `one` with all that follows it into `out`, which starts at `pos`; `room` bytes
    /// of it at most.
    fn fill_inode(&self, one: &Placed, room: u64, pos: u64, out: &mut [u8]) -> Result<()> {
        let old = self.image.inode(one.old)?;
        let mut new = self.changed_inode(one, &old);
        let content = self.content(one, &old, &new)?;
        if let Some(content) = &content {
            let first = blocks_of(&new);
            content.set_in(&mut new, self.superblock.block_size, first);
        }
        let mut bytes = Vec::new();
        // What is not valid is not predicted.
        if new.write(&self.superblock, &mut bytes).is_err() {
            return Ok(());
        }
        let mut xattrs = vec![0; old.xattr_size()];
        let head = at(old.place(), to_u64(old.on_disk().version.size()))?;
        self.image.read_metadata(head, Structure::Xattr, &mut xattrs)?;
        bytes.extend_from_slice(&xattrs);
        let is_moved = !self.list.data.is_empty() || !self.list.packed.is_empty();
        if let Some(content) = content {
            bytes.extend_from_slice(content.after());
        } else if old.is_dir() || is_moved {
            bytes.extend_from_slice(&self.changed_after(&old)?);
        } else {
            // It is as it was. An index can be long, so only the needed part is read.
            let start = one.pos.saturating_add(to_u64(bytes.len()));
            let room = room.saturating_sub(to_u64(bytes.len()));
            self.fill_after(&old, start, room, pos, out)?;
        }
        bytes.truncate(to_usize(room));
        overlay(out, pos, one.pos, &bytes);
        Ok(())
    }

    /// What follows the attributes of an old inode, with new numbers.
    fn changed_after(&self, old: &Inode) -> Result<Vec<u8>> {
        let mut bytes = after(&self.image, old)?;
        match old.is_dir() && old.layout() == DataLayout::FlatInline {
            true => change_nids(&mut bytes, |nid| self.relocated(nid)),
            // What is not valid stays as it is.
            false => {
                let (end, block) = (old.end()?.pos, self.image.superblock().block_size);
                let changed = |address| self.changed(address);
                let _ = change_addresses(old.on_disk(), end, &mut bytes, block, changed);
            }
        }
        Ok(bytes)
    }

    /// Puts the part of what follows the attributes of an old inode that is within `out`, which
    /// starts at `pos`, there. It starts at `start` in the new image, where `room` bytes are free.
    fn fill_after(
        &self,
        old: &Inode,
        start: u64,
        room: u64,
        pos: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let own = old.end()?;
        let end = self.image.extents(old, FileOffset::new(0))?.metadata_end()?.pos.get();
        let len = end.saturating_sub(own.pos.get()).min(room);
        let within = |position: u64| to_usize(position.saturating_sub(pos)).min(out.len());
        let range = within(start)..within(start.saturating_add(len));
        if let Some(part) = out.get_mut(range).filter(|part| !part.is_empty()) {
            self.image.budget().charge_bytes(to_u64(part.len()))?;
            let own = at(own, pos.saturating_sub(start))?;
            self.image.read_metadata(own, Structure::Inode, part)?;
        }
        Ok(())
    }

    /// Puts the part of `blocks` that is within `out`, which starts at `pos`, there.
    pub(super) fn fill_blocks(&self, blocks: &Blocks, pos: u64, out: &mut [u8]) -> Result<()> {
        let in_metabox = || self.in_metabox.get(blocks.inode.saturating_sub(self.inodes.len()));
        let Some(one) = self.inodes.get(blocks.inode).or_else(in_metabox) else { return Ok(()) };
        let old = self.image.inode(one.old)?;
        let block = self.image.superblock().block_size;
        if one.form != DirForm::AsStored && old.is_dir() {
            let new = self.changed_inode(one, &old);
            if let Some(content) = self.content(one, &old, &new)? {
                let len = to_usize(blocks.len).min(content.blocks().len());
                overlay(out, pos, blocks.pos, content.blocks().get(..len).unwrap_or_default());
            }
            return Ok(());
        }
        let end = pos.saturating_add(to_u64(out.len()));
        let last = end.saturating_sub(blocks.pos).min(blocks.len);
        let mut offset = pos.saturating_sub(blocks.pos) & !block.mask();
        let mut bytes = vec![0; block.bytes()];
        while offset < last {
            let read = self.image.read_at(&old, FileOffset::new(offset), &mut bytes)?;
            if read == 0 {
                break;
            }
            let own = bytes.get_mut(..read).unwrap_or_default();
            if old.is_dir() {
                change_nids(own, |nid| self.relocated(nid));
            }
            let len = to_usize(last.saturating_sub(offset)).min(own.len());
            let own = own.get(..len).unwrap_or_default();
            overlay(out, pos, blocks.pos.saturating_add(offset), own);
            offset = offset.saturating_add(block.bytes64());
        }
        Ok(())
    }

    /// Puts the parts of `inodes`, which are sorted by position, that are within `out` there; each
    /// ends where the next one starts.
    pub(super) fn fill_inodes(&self, inodes: &[Placed], pos: u64, out: &mut [u8]) -> Result<()> {
        let end = pos.saturating_add(to_u64(out.len()));
        let before = inodes.partition_point(|inode| inode.pos <= pos);
        let inodes = inodes.get(before.saturating_sub(1)..).unwrap_or_default();
        let ends = inodes.iter().skip(1).map(|next| next.pos).chain([u64::MAX]);
        for (one, own_end) in inodes.iter().zip(ends) {
            if one.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            self.fill_inode(one, own_end.saturating_sub(one.pos), pos, out)?;
        }
        Ok(())
    }
}

/// `place` and `bytes` more.
fn at(place: MetadataPlace, bytes: u64) -> Result<MetadataPlace> {
    let overflow = Error::Patch(PatchFault::Malformed("an inode is past the image"));
    Ok(MetadataPlace { pos: place.pos.checked_add(bytes).ok_or(overflow)?, ..place })
}
