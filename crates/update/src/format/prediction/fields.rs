//! The fields of an inode that can differ from those of the old inode that it resembles.

use ferofs_format::BlockAddr;
use ferofs_format::inode::{Inode, InodeVersion, Place, Timestamp};
use ferofs_format::superblock::Superblock;

/// The number of fields.
pub(super) const FIELDS: usize = 9;
/// The place of the size among the [fields](Fields).
pub const SIZE: usize = 4;
/// The place of the address.
pub const ADDRESS: usize = 8;

/// Whether the inode is extended, its permissions, owner, group, size, link count, seconds and
/// nanoseconds; then the address of content in whole blocks, or the number of compressed blocks. A
/// compact inode has the time since that of its superblock.
pub type Fields = [u64; FIELDS];

/// The fields of `inode`, in an image with `superblock`.
#[must_use]
pub fn fields(inode: &Inode, superblock: &Superblock) -> Fields {
    let (mut secs, mut nanos) = (inode.mtime.secs, inode.mtime.nanos);
    if inode.version == InodeVersion::Compact {
        secs = secs.wrapping_sub(superblock.epoch);
        nanos = nanos.wrapping_sub(superblock.fixed_nsec);
    }
    [
        u64::from(inode.version == InodeVersion::Extended),
        inode.permissions.into(),
        inode.uid.into(),
        inode.gid.into(),
        inode.size,
        inode.nlink.into(),
        secs.cast_unsigned(),
        nanos.into(),
        match inode.place {
            Place::Blocks(first) => first.get(),
            Place::Compressed { blocks } => blocks,
            _ => 0,
        },
    ]
}

/// Sets what [`fields`] gives.
#[expect(
    clippy::as_conversions,
    reason = "a value that is too large is cut: the bytes are only predicted"
)]
pub(super) fn set(inode: &mut Inode, fields: &Fields, superblock: &Superblock) {
    let [is_extended, permissions, uid, gid, size, nlink, secs, nanos, place] = *fields;
    inode.version = if is_extended == 0 { InodeVersion::Compact } else { InodeVersion::Extended };
    inode.permissions = permissions as u16 & 0o7777;
    (inode.uid, inode.gid, inode.nlink) = (uid as u32, gid as u32, nlink as u32);
    inode.size = size;
    inode.mtime = Timestamp { secs: secs.cast_signed(), nanos: nanos as u32 };
    if inode.version == InodeVersion::Compact {
        inode.mtime.secs = inode.mtime.secs.wrapping_add(superblock.epoch);
        inode.mtime.nanos = inode.mtime.nanos.wrapping_add(superblock.fixed_nsec);
    }
    match &mut inode.place {
        Place::Blocks(first) => *first = BlockAddr::new(place),
        Place::Compressed { blocks } => *blocks = place,
        _ => {}
    }
}
