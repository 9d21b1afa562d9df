//! Writes the inodes of the metabox and the packed inode again after they have grown. Source: FORMAT.md 7.

use ferofs_build::data::stored::PackedInode;
use ferofs_build::metadata::compressed::EncodedContent;
use ferofs_build::metadata::inodes::UnnamedInode;
use ferofs_build::metadata::self_check::InodePlace;
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BytePos, Nid};

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
    // These inodes have the time and the number of the old ones.
    let old = |nid| old.inode(nid).map(|inode| (inode.on_disk().ino, inode.on_disk().mtime));
    if let (Some(metabox), Some(content)) = (&growth.metabox, metabox) {
        let (ino, mtime) = old(metabox.nid)?;
        let inode = UnnamedInode::metabox(content, ino, mtime);
        superblock.metabox = Some(append_inode(&inode, superblock, output)?);
    }
    if let (Some(packed), Some(content)) = (&growth.packed, packed) {
        let (ino, mtime) = old(packed.nid)?;
        let inode = UnnamedInode::packed(content, ino, mtime, spill)?;
        superblock.packed = Some(append_inode(&inode, superblock, output)?);
    }
    Ok(())
}

/// Appends `inode` with the bytes that follow it, at the next slot.
fn append_inode(inode: &UnnamedInode, superblock: &Superblock, output: &mut Output) -> Result<Nid> {
    let data_end = output.position();
    let pos = data_end.next_multiple_of(SLOT_SIZE);
    let mut bytes = Vec::new();
    inode.write(superblock, InodePlace { pos, data_end }, &mut bytes)?;
    output.pad_to(pos)?;
    output.append(&bytes)?;
    // Appended metadata is always after the position that nids count from.
    Ok(superblock.nid_at(BytePos::new(pos)).unwrap_or_default())
}
