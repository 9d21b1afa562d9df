//! Predicts the metadata of an image that was built again: it is that of the old image with other
//! numbers in it. What is predicted, and where, is part of the delta's format, as `create` and
//! `apply` must get the same bytes. Layout: docs/PATCH_FORMAT.md.
//!
//! [`Renumbering`] says which numbers change, and is stored; [`RebuiltMetadata`] has the bytes.

mod numbers;
mod old_inodes;
mod shifts;

use ferofs_format::dirent::change_nids;
use ferofs_format::inode::{DataLayout, Place};
use ferofs_format::map::{Address, change_addresses};
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_format::{BytePos, DeviceId, FileOffset, Nid, Structure};
use ferofs_read::Image;

use self::numbers::set;
pub use self::numbers::{ChangedInode, Fields, NUMBERS_MAX, Renumbering, fields};
pub use self::old_inodes::{INODES_MAX, addresses, old_inodes};
use self::old_inodes::{after, first_block, malformed};
pub use self::shifts::Shifts;
use super::prediction::{Predict, at, overlay};
use crate::error::Result;

/// The work of finding an inode and writing it, in units of about 100 ns.
const INODE_WORK: u64 = 20;

/// The `bytes`, each changed by the one of the superblock of `old` at its position: subtracting
/// gives what [`Renumbering`] has of the new superblock, adding the reverse.
///
/// # Errors
/// [`Error::Read`](crate::error::Error::Read) if the old image is too short.
pub fn superblock_bytes(
    old: &Image,
    mut bytes: Vec<u8>,
    change: fn(u8, u8) -> u8,
) -> Result<Vec<u8>> {
    let mut own = vec![0; bytes.len()];
    let pos = BytePos::new(to_u64(superblock::OFFSET));
    old.read_device(DeviceId::new(0), pos, Structure::Superblock, &mut own)?;
    bytes.iter_mut().zip(own).for_each(|(byte, old)| *byte = change(*byte, old));
    Ok(bytes)
}

/// An old inode that the new image has, too.
#[derive(Clone, Copy, Debug)]
struct KeptInode {
    /// Its new position.
    pos: u64,
    old: Nid,
    number: u32,
}

/// Blocks of a directory that the new image has.
#[derive(Clone, Copy, Debug)]
struct DirBlocks {
    /// Their new position.
    pos: u64,
    len: u64,
    old: Nid,
}

/// The predicted bytes of the new image's metadata.
#[derive(Debug)]
pub struct RebuiltMetadata<'a> {
    image: &'a Image,
    numbers: &'a Renumbering,
    superblock_bytes: Vec<u8>,
    superblock: Superblock,
    /// By position.
    inodes: Vec<KeptInode>,
    /// By position.
    directories: Vec<DirBlocks>,
}

impl<'a> RebuiltMetadata<'a> {
    /// Predicts the metadata of the image that has other `numbers` than the old `image`.
    ///
    /// # Errors
    /// [`Error`](crate::error::Error) if the old image is not valid, or has other inodes.
    pub fn new(numbers: &'a Renumbering, image: &'a Image) -> Result<Self> {
        let superblock_bytes =
            superblock_bytes(image, numbers.superblock.clone(), u8::wrapping_add)?;
        let superblock = Superblock::parse(&superblock_bytes).map_err(|_| malformed())?;
        let base = superblock.inode_base().ok_or_else(malformed)?;
        let all = old_inodes(image, to_usize(numbers.old_inodes))?;
        if u32::try_from(all.len()) != Ok(numbers.old_inodes) {
            return Err(malformed());
        }
        let mut inodes = Vec::with_capacity(all.len());
        let mut directories = Vec::new();
        for (number, old) in (0..).zip(all) {
            if numbers.gone.binary_search(&number).is_ok() {
                continue;
            }
            let new = Nid::new(numbers.nids.apply(old.get()));
            let Some(pos) = new.to_pos(base).map(BytePos::get) else { continue };
            inodes.push(KeptInode { pos, old, number });
            image.budget().charge(INODE_WORK)?;
            let inode = image.inode(old)?;
            let block = image.superblock().block_size;
            let whole = match inode.layout() {
                DataLayout::FlatPlain => inode.size(),
                DataLayout::FlatInline => inode.size() & !block.mask(),
                _ => 0,
            };
            if let Some(first) = first_block(&inode, block).filter(|_| inode.is_dir() && whole > 0)
            {
                let pos = numbers.data.apply(first.get());
                directories.push(DirBlocks { pos, len: whole, old });
            }
        }
        inodes.sort_by_key(|inode: &KeptInode| inode.pos);
        directories.sort_by_key(|blocks: &DirBlocks| blocks.pos);
        // Each ends where the next one starts, so that what is predicted of a byte does not depend
        // on where a reference starts.
        let mut next = u64::MAX;
        for blocks in directories.iter_mut().rev() {
            blocks.len = blocks.len.min(next.saturating_sub(blocks.pos));
            next = blocks.pos;
        }
        Ok(Self { image, numbers, superblock_bytes, superblock, inodes, directories })
    }

    fn changed(&self, address: Address) -> Address {
        match address {
            Address::Data(pos) => Address::Data(BytePos::new(self.numbers.data.apply(pos.get()))),
            Address::Packed(offset) => Address::Packed(self.numbers.packed.apply(offset)),
        }
    }

    fn change_nids(&self, block: &mut [u8]) {
        change_nids(block, |nid| Nid::new(self.numbers.nids.apply(nid.get())));
    }

    /// The inode `kept` with all that follows it; empty if it cannot be written.
    fn inode(&self, kept: &KeptInode) -> Result<Vec<u8>> {
        let old = self.image.inode(kept.old)?;
        let block = self.image.superblock().block_size;
        let mut new = old.on_disk().clone();
        let mut fields = fields(&new, self.image.superblock());
        let changes = &self.numbers.changes;
        if let Ok(found) = changes.binary_search_by_key(&kept.number, |change| change.number) {
            for (field, value) in changes.get(found).map_or(&[][..], |change| &change.fields) {
                if let Some(own) = fields.get_mut(usize::from(*field)) {
                    let is_relative = self.numbers.relative >> field & 1 != 0;
                    *own = if is_relative { own.wrapping_add(*value) } else { *value };
                }
            }
        }
        set(&mut new, &fields, &self.superblock);
        new.ino = u32::try_from(self.numbers.inos.apply(new.ino.into())).unwrap_or(new.ino);
        if let Place::Blocks(first) = new.place
            && let Some(pos) = first.to_pos(block)
            && let Address::Data(pos) = self.changed(Address::Data(pos))
        {
            new.place = Place::Blocks(pos.block(block));
        }
        let mut bytes = Vec::new();
        if new.write(&self.superblock, &mut bytes).is_err() {
            return Ok(Vec::new());
        }
        let mut xattrs = vec![0; old.xattr_size()];
        let head = at(old.place(), to_u64(old.on_disk().version.size()))?;
        self.image.read_metadata(head, Structure::Xattr, &mut xattrs)?;
        bytes.extend_from_slice(&xattrs);
        let mut after = after(self.image, &old)?;
        match old.is_dir() && old.layout() == DataLayout::FlatInline {
            true => self.change_nids(&mut after),
            // What is not valid stays as it is.
            false => {
                let end = old.end()?.pos;
                let changed = |address| self.changed(address);
                let _ = change_addresses(old.on_disk(), end, &mut after, block, changed);
            }
        }
        bytes.extend_from_slice(&after);
        Ok(bytes)
    }

    /// Puts the part of `blocks` that is within `out`, which starts at `pos`, there.
    fn fill_directory(&self, blocks: &DirBlocks, pos: u64, out: &mut [u8]) -> Result<()> {
        let block = self.image.superblock().block_size;
        let inode = self.image.inode(blocks.old)?;
        let end = pos.saturating_add(to_u64(out.len()));
        let first = pos.saturating_sub(blocks.pos) & !block.mask();
        let last = end.saturating_sub(blocks.pos).min(blocks.len);
        let mut bytes = vec![0; block.bytes()];
        let mut offset = first;
        while offset < last {
            let read = self.image.read_at(&inode, FileOffset::new(offset), &mut bytes)?;
            let own = bytes.get_mut(..read).unwrap_or_default();
            self.change_nids(own);
            let len = to_usize(last.saturating_sub(offset)).min(own.len());
            let own = own.get(..len).unwrap_or_default();
            overlay(out, pos, blocks.pos.saturating_add(offset), own);
            offset = offset.saturating_add(block.bytes64());
        }
        Ok(())
    }
}

impl Predict for RebuiltMetadata<'_> {
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        let end = pos.saturating_add(to_u64(out.len()));
        overlay(out, pos, to_u64(superblock::OFFSET), &self.superblock_bytes);
        let before = self.inodes.partition_point(|inode| inode.pos <= pos);
        let inodes = self.inodes.get(before.saturating_sub(1)..).unwrap_or_default();
        let ends = inodes.iter().skip(1).map(|next| next.pos).chain([u64::MAX]);
        for (kept, own_end) in inodes.iter().zip(ends) {
            if kept.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            let mut bytes = self.inode(kept)?;
            bytes.truncate(to_usize(own_end.saturating_sub(kept.pos)));
            overlay(out, pos, kept.pos, &bytes);
        }
        let first =
            self.directories.partition_point(|blocks| blocks.pos.saturating_add(blocks.len) <= pos);
        for blocks in self.directories.get(first..).unwrap_or_default() {
            if blocks.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            self.fill_directory(blocks, pos, out)?;
        }
        Ok(())
    }

    fn takes_much_memory(&self) -> bool {
        true
    }
}
