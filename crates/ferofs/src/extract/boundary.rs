//! Where a file can be divided, so that two parts do not decode the same cluster.

use ferofs_format::FileOffset;

use crate::error::Result;
use ferofs_read::{ExtentData, Image, Inode};

/// The start of the first extent at or after `offset`: two pieces that meet there do not decode the
/// same cluster.
pub(super) fn boundary(image: &Image, inode: &Inode, offset: u64) -> Result<u64> {
    if offset >= inode.size() {
        return Ok(inode.size());
    }
    let Some(extent) = image.extents(inode, FileOffset::new(offset))?.next().transpose()? else {
        return Ok(offset);
    };
    let end = match extent.data {
        ExtentData::Encoded { .. } if extent.start.get() < offset => extent.end(),
        // A piece can begin at the start of any extent. This one contains `offset`: find the end of
        // its cluster.
        ExtentData::Fragment { offset: start } if extent.start.get() < offset => {
            let inside = start.get().saturating_add(offset.saturating_sub(extent.start.get()));
            let packed = image.superblock().packed.map(|nid| image.inode(nid)).transpose()?;
            let Some(packed) = packed.filter(|packed| packed.nid() != inode.nid()) else {
                return Ok(offset);
            };
            match image.extents(&packed, FileOffset::new(inside))?.next().transpose()? {
                // A packed inode that is not compressed can have an extent of any size, which a
                // piece of it need not end with.
                Some(cluster)
                    if matches!(cluster.data, ExtentData::Encoded { .. })
                        && cluster.start.get() < inside =>
                {
                    offset.saturating_add(cluster.end().saturating_sub(inside))
                }
                _ => offset,
            }
        }
        _ => offset,
    };
    Ok(end.min(inode.size()))
}
