//! Inodes of an open image.

use ferofs_format::inode::{self, DataLayout, FileType, Timestamp};
use ferofs_format::xattr;
use ferofs_format::{Nid, Structure};

use super::image::{Image, MetadataPlace, to_u64};
use crate::error::{Locate, OfInode, Result};

/// An inode, and where it stands.
#[derive(Clone, Debug)]
pub struct Inode {
    pub(super) nid: Nid,
    pub(super) place: MetadataPlace,
    pub(super) disk: inode::Inode,
}

impl Image {
    /// Reads inode `nid`.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when there is no sound inode.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        let place = self.inode_place(nid)?;
        let read = || {
            let mut bytes = [0; inode::EXTENDED_SIZE];
            self.read_metadata(place, Structure::Inode, &mut bytes[..inode::COMPACT_SIZE])?;
            // Bit 0 of the first byte tells the version; the longer form may not fit at the image's end.
            if bytes[0] & 1 != 0 {
                self.read_metadata(place, Structure::Inode, &mut bytes)?;
            }
            let disk = inode::Inode::parse(&bytes, self.superblock()).located_at(place.pos)?;
            Ok(Inode { nid, place, disk })
        };
        read().of_inode(nid)
    }

    /// Reads the root directory's inode.
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn root(&self) -> Result<Inode> {
        self.inode(self.superblock().root)
    }
}

impl Inode {
    /// Its number.
    #[must_use]
    pub const fn nid(&self) -> Nid {
        self.nid
    }

    /// Everything that its on-disk form says.
    #[must_use]
    pub const fn on_disk(&self) -> &inode::Inode {
        &self.disk
    }

    /// What it is.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.disk.file_type
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.disk.file_type == FileType::Directory
    }

    /// Bytes of its decoded content.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.disk.size
    }

    /// Bytes that can be read: none of devices, fifos and sockets, whatever their size says.
    pub(super) const fn content_len(&self) -> u64 {
        if self.disk.file_type.has_data() { self.disk.size } else { 0 }
    }

    /// Modification time.
    #[must_use]
    pub const fn mtime(&self) -> Timestamp {
        self.disk.mtime
    }

    /// How its content is laid out.
    #[must_use]
    pub const fn layout(&self) -> DataLayout {
        self.disk.layout
    }

    /// Where it stands.
    #[must_use]
    pub const fn place(&self) -> MetadataPlace {
        self.place
    }

    /// Bytes of its xattr region.
    #[must_use]
    pub fn xattr_size(&self) -> usize {
        xattr::region_size(self.disk.xattr_icount)
    }

    /// Where the xattr region starts, and its length in bytes, which may be 0.
    pub(super) fn xattr_region(&self) -> Result<(MetadataPlace, usize)> {
        let start = self.place.offset(to_u64(self.disk.version.size()))?;
        Ok((start, xattr::region_size(self.disk.xattr_icount)))
    }

    /// Where inode and xattrs end: inline data, chunk entries or the compression map follow.
    pub fn end(&self) -> Result<MetadataPlace> {
        let (start, len) = self.xattr_region()?;
        start.offset(to_u64(len))
    }
}
