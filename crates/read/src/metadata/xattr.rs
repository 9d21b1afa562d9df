//! Extended attributes of an inode, inline and shared. Source: FORMAT.md 4.

use ferofs_format::superblock::PrefixTable;
use ferofs_format::xattr::{ENTRY_HEADER_SIZE, Entry, LongPrefix, NameFilter, Region, shared_pos};
use ferofs_format::{BytePos, Compat, Fault, Structure};

use super::ReadMetadata;
use super::inode::Inode;
use crate::error::{Corruption, Locate, OfInode, Result};
use crate::volume::MetadataPlace;
use ferofs_format::units::to_u64;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Xattr {
    /// The full name, such as `user.note`.
    pub name: Vec<u8>,
    /// The value, at most 65,535 bytes.
    pub value: Vec<u8>,
}

/// Calls `each` with each entry, and with its place if it is shared; returns the name filter.
pub(crate) fn walk(
    metadata: &dyn ReadMetadata,
    inode: &Inode,
    mut each: impl FnMut(&Entry<'_>, Option<MetadataPlace>),
) -> Result<NameFilter> {
    let (place, len) = inode.xattr_region()?;
    let mut walk = || {
        let mut bytes = vec![0; len];
        if len > 0 {
            metadata.read_metadata(place, Structure::Xattr, &mut bytes)?;
        }
        let region = Region::parse(&bytes).located_at(place.pos)?;
        for id in region.shared() {
            let (place, bytes) = shared_xattr(metadata, id)?;
            each(&Entry::parse(&bytes).located_at(place.pos)?, Some(place));
        }
        for entry in region.entries() {
            each(&entry.located_at(place.pos)?, None);
        }
        Ok(region.filter)
    };
    walk().of_inode(inode.nid)
}

/// The bytes of shared entry `id`, and where they are.
fn shared_xattr(metadata: &dyn ReadMetadata, id: u32) -> Result<(MetadataPlace, Vec<u8>)> {
    let superblock = &metadata.volume().superblock;
    let in_metabox = superblock.compat.contains(Compat::SHARED_EA_IN_METABOX);
    let overflow = || Corruption::new(Structure::Xattr, Fault::Overflow("xattr_blkaddr"));
    let area = superblock.xattr.to_pos(superblock.block_size).ok_or_else(overflow)?;
    let pos = shared_pos(area, id).ok_or_else(overflow)?;
    let place = MetadataPlace { in_metabox, pos };
    let mut header = [0; ENTRY_HEADER_SIZE];
    metadata.read_metadata(place, Structure::Xattr, &mut header)?;
    let mut bytes = vec![0; Entry::size_from_header(&header).located_at(pos)?];
    metadata.read_metadata(place, Structure::Xattr, &mut bytes)?;
    Ok((place, bytes))
}

/// Reads the `table` of long name prefixes; `read` fills a buffer from a position of the file or
/// device that holds it.
pub(crate) fn read_prefixes(
    table: PrefixTable,
    read: impl Fn(BytePos, &mut [u8]) -> Result<()>,
) -> Result<Vec<LongPrefix>> {
    let mut bytes = Vec::new();
    let mut at = table.start;
    for _ in 0..table.count {
        let mut size = [0; 2];
        read(at, &mut size)?;
        let record_len = usize::from(u16::from_le_bytes(size)).saturating_add(size.len());
        let start = bytes.len();
        bytes.resize(start.saturating_add(record_len), 0);
        read(at, bytes.split_at_mut(start).1)?;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let overflow =
            || Corruption::new(Structure::XattrPrefix, Fault::Overflow("xattr_prefix_start"));
        let next =
            at.checked_add(to_u64(bytes.len().saturating_sub(start))).ok_or_else(overflow)?;
        at = next;
    }
    LongPrefix::parse_table(&bytes, table.count).located_at(table.start)
}
