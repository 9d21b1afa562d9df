//! Finds the files that use a block.

use std::path::PathBuf;

use ferofs_format::{BytePos, DeviceId, FileOffset, Nid};

use ferofs_read::Image;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::error::Result;
use ferofs_read::walk::Walk;

/// An inode that uses a part of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The path from the root.
    pub path: PathBuf,
    /// The nid of the inode.
    pub nid: Nid,
    /// The range of the file's content that is stored there; `None` for the inode itself.
    pub content: Option<std::ops::Range<u64>>,
}

/// The owners of `block` of `device`, up to `limit`.
///
/// # Errors
/// [`Error::Io`](ferofs_read::Error::Io) when the image cannot be read,
/// [`Error::Limit`](ferofs_read::Error::Limit). Damaged inodes are skipped.
pub fn block_owners(
    image: &Image,
    device: DeviceId,
    block: u64,
    limit: usize,
) -> Result<Vec<Owner>> {
    let size = image.superblock().block_size.bytes64();
    let range = block.saturating_mul(size)..block.saturating_add(1).saturating_mul(size);
    let touches = |start: u64, end: u64| start < range.end && range.start < end;
    let superblock = image.superblock();
    let mut owners = Vec::new();
    let specials = [("(packed inode)", superblock.packed), ("(metabox)", superblock.metabox)];
    let specials = specials
        .into_iter()
        .filter_map(|(name, nid)| Some((PathBuf::from(name), image.inode(nid?).ok()?)));
    let files = Walk::new(image).filter_map(|file| match file {
        Ok(file) if file.first => Some(Ok((file.path, file.inode.ok()?))),
        Err(error) if error.ends_all() => Some(Err(error)),
        Ok(_) | Err(_) => None,
    });
    for owner in specials.map(Ok).chain(files) {
        let (path, inode) = owner?;
        let mut add =
            |content| owners.push(Owner { path: path.clone(), nid: inode.nid(), content });
        let Ok(extents) = image.extents(&inode, FileOffset::new(0)) else { continue };
        let place = inode.place();
        let end = extents.metadata_end().map_or(place.pos, |end| end.pos);
        if device.get() == 0 && !place.in_metabox && touches(place.pos.get(), end.get()) {
            add(None);
        }
        for extent in extents.map_while(Result::ok) {
            if let Ok(Some(range)) = DeviceRange::of(image, &extent)
                && range.device == device
                && touches(BytePos::get(range.start), range.end())
            {
                add(Some(extent.start.get()..extent.end()));
            }
        }
        if owners.len() >= limit {
            owners.truncate(limit);
            break;
        }
    }
    Ok(owners)
}

/// A path to inode `nid`, if there is one.
#[must_use]
pub fn path_of(image: &Image, nid: Nid) -> Option<PathBuf> {
    let found = |file: &ferofs_read::walk::WalkEntry| {
        file.inode.as_ref().is_ok_and(|inode| inode.nid() == nid)
    };
    Walk::new(image).flatten().find(found).map(|file| file.path)
}
