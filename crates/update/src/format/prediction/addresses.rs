//! The bytes that follow an inode and its attributes, and the addresses of content in them.

use ferofs_format::inode::{Inode as DiskInode, Place};
use ferofs_format::map::{Address, change_addresses};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_format::{BlockSize, BytePos, FileOffset, Structure};
use ferofs_read::{Image, Inode};

use crate::error::Result;

/// Bytes of a map and an inline tail up to which the addresses in it are predicted. What follows
/// is not.
pub(super) const MAP_MAX: u64 = 1 << 20;

/// Bytes that follow the inode and its attributes, up to [`MAP_MAX`].
pub(super) fn after(image: &Image, inode: &Inode) -> Result<Vec<u8>> {
    let start = inode.end()?;
    let end = image.extents(inode, FileOffset::new(0))?.metadata_end()?.pos.get();
    let mut bytes = vec![0; to_usize(end.saturating_sub(start.pos.get()).min(MAP_MAX))];
    image.budget().charge_bytes(to_u64(bytes.len()))?;
    image.read_metadata(start, Structure::Inode, &mut bytes)?;
    Ok(bytes)
}

/// The addresses of the content of `inode`, in the order of its map.
///
/// # Errors
/// [`Error::Read`](crate::Error::Read) for an inode or a map that is not valid.
pub fn addresses(image: &Image, inode: &Inode) -> Result<Vec<Address>> {
    let block = image.superblock().block_size;
    let mut found = Vec::new();
    if let Some(first) = first_block(inode.on_disk(), block) {
        found.push(Address::Data(first));
    }
    let mut map = after(image, inode)?;
    // A map that is not valid has the addresses before the fault.
    let _ = change_addresses(inode.on_disk(), inode.end()?.pos, &mut map, block, |address| {
        found.push(address);
        address
    });
    Ok(found)
}

/// The position of content in whole blocks.
pub(super) fn first_block(inode: &DiskInode, block: BlockSize) -> Option<BytePos> {
    match inode.place {
        Place::Blocks(first) if inode.size > 0 => first.to_pos(block),
        _ => None,
    }
}
