//! Writes the inodes of the metabox and the packed inode again after they have grown. Source: FORMAT.md 7.

use ferofs_build::data::stored::PackedInode;
use ferofs_build::metadata::compressed::EncodedContent;
use ferofs_build::metadata::self_check::{self, InodePlace};
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::tree::inode_sizes;
use ferofs_format::Nid;
use ferofs_format::inode::{Inode, Place};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;

use crate::error::Result;
use crate::patch::create::decide::growth::Growth;
use ferofs_read::Image;

/// Appends the inodes of what has grown, and names them in `superblock`.
pub(crate) fn append(
    old: &Image,
    growth: &Growth,
    (metabox, packed): (Option<&EncodedContent>, Option<&PackedInode>),
    superblock: &mut Superblock,
    spill: &mut Spill,
    output: &mut Output,
) -> Result<()> {
    if metabox.is_some() || packed.is_some_and(|_| growth.packed.is_some()) {
        // Content that is placed to the byte can end within a block, which then holds no inode.
        let block = superblock.block_size.bytes64();
        output.pad_to(output.position().next_multiple_of(block))?;
    }
    if let (Some(metabox), Some(content)) = (&growth.metabox, metabox) {
        let mut inode = like(old, metabox.nid, content.size)?;
        inode.layout = content.layout;
        inode.place = Place::Compressed { blocks: content.blocks };
        superblock.metabox = Some(append_inode(&inode, &content.index, "(metabox)", superblock, output)?);
    }
    if let (Some(packed), Some(content)) = (&growth.packed, packed) {
        let mut inode = like(old, packed.nid, content.size)?;
        let after = content.content.set_in(&mut inode);
        let after = after.map(|after| spill.get(after)).transpose()?.unwrap_or_default();
        superblock.packed = Some(append_inode(&inode, after, "(packed inode)", superblock, output)?);
    }
    Ok(())
}

/// An inode with the time and the number of the old one.
fn like(old: &Image, nid: Nid, size: u64) -> Result<Inode> {
    let old = old.inode(nid)?;
    let old = old.on_disk();
    Ok(inode_sizes::packed_inode(size, old.ino, old.mtime))
}

/// Appends `inode` with the bytes that follow it, at the next slot.
fn append_inode(
    inode: &Inode,
    after: &[u8],
    name: &str,
    superblock: &Superblock,
    output: &mut Output,
) -> Result<Nid> {
    let data_end = output.position();
    let pos = data_end.next_multiple_of(SLOT_SIZE);
    let mut bytes = Vec::new();
    inode.write(superblock, &mut bytes).map_err(ferofs_build::Error::Layout)?;
    bytes.extend_from_slice(after);
    let checked = InodePlace { pos, data_end }.check(inode, &bytes, superblock);
    self_check::name_inode(checked, || name.to_owned())?;
    output.pad_to(pos)?;
    output.append(&bytes)?;
    // Appended metadata is always after the position that nids count from.
    let slots = superblock.inode_base().map_or(0, ferofs_format::BytePos::get);
    Ok(Nid::new((pos - slots) / SLOT_SIZE))
}
