//! Metadata: inodes, extended attributes, and the maps of files.
//!
//! Everything here reads through [`ReadMetadata`], because metadata is on the primary device or in
//! the decoded content of the metabox.

pub(crate) mod extent;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod slow_lookups;
pub(crate) mod xattr;

use std::fmt::Debug;

use ferofs_format::Structure;

use self::slow_lookups::SlowLookups;
use crate::error::Result;
use crate::volume::{MetadataPlace, Volume};

/// Reads metadata of one image.
///
/// A trait, because the two places of metadata are on two layers: the primary device is part of the
/// [`Volume`], below this layer, but the metabox is a file whose content must be mapped and
/// decoded, above this layer.
pub(crate) trait ReadMetadata: Debug + Sync {
    /// The devices and the superblock.
    fn volume(&self) -> &Volume;

    /// Fills `buf` with metadata, which belongs to a `structure`.
    fn read_metadata(
        &self,
        place: MetadataPlace,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()>;

    /// Look-ups in maps that took many steps.
    fn slow_lookups(&self) -> &SlowLookups;
}
