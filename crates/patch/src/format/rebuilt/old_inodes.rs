//! The inodes of the old image, and the bytes that follow them.

use std::collections::HashSet;

use ferofs_format::inode::{FileType, Place};
use ferofs_format::map::{Address, change_addresses};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_format::{BlockSize, BytePos, FileOffset, Nid, Structure};
use ferofs_read::{Image, Inode};

use crate::error::{Error, PatchFault, Result};

/// Inodes that can be predicted. A delta between images with more predicts nothing, and a list of
/// more is malformed.
pub const INODES_MAX: usize = 1 << 19;
/// Bytes of a map and an inline tail up to which the addresses in it are predicted. What follows
/// is not.
const MAP_MAX: u64 = 1 << 20;
/// Bytes of an inode with what follows it, as it is made in memory: with a copy.
pub(super) const OF_MAP: u64 = 2 * (MAP_MAX + (64 << 10));
/// Bytes in memory for each old inode: its number, up to four times while the list grows, and the
/// list of those that are kept.
pub(super) const OF_INODE: u64 = 64;
/// Names from which on the list of old inodes is rid of those that it has twice.
const NAMES_MIN: usize = 4096;

pub(super) const MALFORMED: &str = "the numbers of its new metadata are wrong";

pub(super) fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed(MALFORMED))
}

/// The numbers of all inodes of an image, sorted: those in its tree, and the packed inode.
///
/// # Errors
/// [`Error::Read`]; [`PatchFault::Malformed`] for more than `most`.
pub fn old_inodes(image: &Image, most: usize) -> Result<Vec<Nid>> {
    let root = image.superblock().root;
    let mut found: Vec<Nid> = image.superblock().packed.into_iter().chain([root]).collect();
    let (mut directories, mut seen) = (vec![root], HashSet::from([root]));
    let mut room = NAMES_MIN;
    while let Some(directory) = directories.pop() {
        let inode = image.inode(directory)?;
        if !inode.is_dir() {
            continue;
        }
        for entry in image.read_dir(&inode)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            found.push(entry.nid);
            // Names of the same inode take no memory.
            if found.len() >= room {
                found.sort_unstable();
                found.dedup();
                if found.len() > most {
                    return Err(malformed());
                }
                room = found.len().saturating_mul(2).max(NAMES_MIN);
            }
            if entry.file_type == Some(FileType::Directory) && seen.insert(entry.nid) {
                directories.push(entry.nid);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    if found.len() > most { Err(malformed()) } else { Ok(found) }
}

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
/// [`Error::Read`] for an inode or a map that is not valid.
pub fn addresses(image: &Image, inode: &Inode) -> Result<Vec<Address>> {
    let block = image.superblock().block_size;
    let mut found = Vec::new();
    if let Some(first) = first_block(inode, block) {
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
pub(super) fn first_block(inode: &Inode, block: BlockSize) -> Option<BytePos> {
    match inode.on_disk().place {
        Place::Blocks(first) if inode.size() > 0 => first.to_pos(block),
        _ => None,
    }
}
