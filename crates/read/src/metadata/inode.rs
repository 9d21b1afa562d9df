//! Inodes of an open image.

use std::time::{Duration, SystemTime};

use ferofs_format::inode::{self, DataLayout, FileType, Rdev, Timestamp};
use ferofs_format::xattr;
use ferofs_format::{Nid, Structure};

use super::ReadMetadata;
use crate::error::{Locate, OfInode, Result};
use crate::volume::MetadataPlace;
use ferofs_format::units::to_u64;

/// An inode, and where it is stored.
#[derive(Clone, Debug)]
pub struct Inode {
    pub(crate) nid: Nid,
    pub(crate) place: MetadataPlace,
    pub(crate) disk: inode::Inode,
}

/// Reads inode `nid`.
///
/// # Errors
/// [`crate::Error::Corrupt`] when there is no sound inode.
pub(crate) fn read_inode(metadata: &dyn ReadMetadata, nid: Nid) -> Result<Inode> {
    let volume = metadata.volume();
    let place = volume.inode_place(nid)?;
    let read = || {
        let mut bytes = [0; inode::EXTENDED_SIZE];
        metadata.read_metadata(place, Structure::Inode, &mut bytes[..inode::COMPACT_SIZE])?;
        // Bit 0 of the first byte tells the version; the longer form may not fit at the image's
        // end.
        if bytes[0] & 1 != 0 {
            metadata.read_metadata(place, Structure::Inode, &mut bytes)?;
        }
        let disk = inode::Inode::parse(&bytes, &volume.superblock).located_at(place.pos)?;
        Ok(Inode { nid, place, disk })
    };
    read().of_inode(nid)
}

impl Inode {
    /// Its number.
    #[must_use]
    pub const fn nid(&self) -> Nid {
        self.nid
    }

    /// All fields of its on-disk form.
    #[must_use]
    pub const fn on_disk(&self) -> &inode::Inode {
        &self.disk
    }

    /// The type of file.
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

    /// Bytes that can be read: 0 for devices, fifos and sockets, even if their size is not 0.
    pub(crate) const fn content_len(&self) -> u64 {
        if self.disk.file_type.has_data() { self.disk.size } else { 0 }
    }

    /// Permissions, setuid, setgid and sticky bit: the low 12 bits of the mode.
    #[must_use]
    pub const fn permissions(&self) -> u16 {
        self.disk.permissions
    }

    /// The owner.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.disk.uid
    }

    /// The group.
    #[must_use]
    pub const fn gid(&self) -> u32 {
        self.disk.gid
    }

    /// The number of names.
    #[must_use]
    pub const fn nlink(&self) -> u32 {
        self.disk.nlink
    }

    /// The device that a device file stands for.
    #[must_use]
    pub const fn rdev(&self) -> Option<Rdev> {
        match self.disk.place {
            inode::Place::Device(rdev) => Some(rdev),
            _ => None,
        }
    }

    /// Modification time, as far as [`SystemTime`] can hold it.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        let Timestamp { secs, nanos } = self.disk.mtime;
        let whole = Duration::from_secs(secs.unsigned_abs());
        let time = match secs < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(whole),
            false => SystemTime::UNIX_EPOCH.checked_add(whole),
        };
        time?.checked_add(Duration::from_nanos(nanos.into()))
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

    /// The place of its on-disk form.
    #[must_use]
    pub const fn place(&self) -> MetadataPlace {
        self.place
    }

    /// Bytes of its xattr region.
    #[must_use]
    pub fn xattr_size(&self) -> usize {
        xattr::region_size(self.disk.xattr_icount)
    }

    /// The start of the xattr region, and its length in bytes, which may be 0.
    pub(crate) fn xattr_region(&self) -> Result<(MetadataPlace, usize)> {
        let start = self.place.offset(to_u64(self.disk.version.size()))?;
        Ok((start, xattr::region_size(self.disk.xattr_icount)))
    }

    /// The end of inode and xattrs: inline data, chunk entries or the compression map follow.
    pub fn end(&self) -> Result<MetadataPlace> {
        let (start, len) = self.xattr_region()?;
        start.offset(to_u64(len))
    }
}
